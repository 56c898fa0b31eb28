/* SPDX-License-Identifier: Apache-2.0 */
/* parked - the session of a caller, and requests that wait for a lock behind a waiter of the
 * core */
#ifndef GMSFS_SERVICE_PARKED_H
#define GMSFS_SERVICE_PARKED_H

#include "service/service_internal.h"
#include "service/sessions.h"

struct parked {  /* a request that waits behind a waiter of the core */
    uint64_t id; /* the waiter */
    struct service_request *request;
    struct deadline deadline; /* of the request's wait */
    uint64_t since_wall_ms;   /* when the waiter first asked, perhaps by an earlier request */
    bool acquire, grouped;
    struct core_process watched; /* of an ACQUIRE: the process that it has watched; pid 0: none */
    bool truncate;               /* O_TRUNC of the open, done at the grant */
    const char *create; /* O_CREAT: the allocation's name, added at the grant; NULL: none. Owned */
};

/* member.c: the session of a caller */
struct core_process service_caller_process(const struct service_caller *caller);
/* Finds the session of `store` that this caller belongs to and that is not ending; NULL if there is
 * none. -EACCES: it is a writer's, and the caller may not write the store. */
int service_find_membership(const struct service *s, uint64_t store,
                            const struct service_caller *caller,
                            const struct core_session **session);
/* Finds the RW session through which this actor may change the store. 0, -EBADF (the file is not
 * open for writing), -ENOLCK, -ESTALE, -EACCES */
int service_find_writer(const struct service *s, const struct service_actor *by, uint64_t *session);
/* The same, also for a session that writes bytes alone (RW_DATA). */
int service_find_byte_writer(const struct service *s, const struct service_actor *by,
                             uint64_t *session);
/* Finds a file that may read. 0, -EBADF */
int service_find_reader(const struct service *s, uint64_t file, const struct core_file **found);

/* open.c */
struct service_open;
/* Opens in this session, or (0) in none. */
int service_open_in(struct service *s, const struct service_open *open, uint64_t session,
                    const struct service_caller *caller, struct service_answer *answer);
/* Asks the lock, for the file or (create) for a new allocation. Sets answer->file if granted at
 * once, else parks the request. */
int service_open_locking(struct service *s, const struct service_open *open, enum lock_wish wish,
                         const char *create, const struct service_caller *caller,
                         struct service_request *request, struct service_answer *answer);

/* wait.c: requests that wait behind a waiter of the core */
/* Applies a record that asks for the lock. Parks the request if it must wait. Returns true if it
 * was granted at once, or failed. */
bool service_ask(struct service *s, struct record *record, const struct parked *how,
                 struct service_request *request, struct outcome *outcome, int *error);
void service_on_granted(struct service *s, const struct effect *effect);
void service_on_refused(struct service *s, const struct effect *effect);
/* Ends a wait from our side; flags CORE_WAIT_*. */
void service_end_wait(struct service *s, struct record *record);

/* granted.c: the second half of opens */
void service_fill_granted(const struct service *s, uint64_t file, uint64_t session,
                          struct service_answer *answer);
/* Frees the memory of the opened allocation; sealed memory: -ENOLCK. */
int service_truncate_opened(struct service *s, const struct core_file *file);
/* Adds an allocation of that name, without memory. */
int service_add_named(struct service *s, uint64_t session, const char *name,
                      struct outcome *outcome);
/* Ends a creation outside a session: the lock is granted, and answer->file is open without a
 * serial. Undoes the grant on failure. */
int service_create_granted(struct service *s, const char *name, struct service_answer *answer);

/* watch.c: processes whose exit ends their sessions, and the memory that they can write */
/* Before an ACQUIRE is applied: watches its process, until as many calls of service_unwatch. 0,
 * -EDQUOT, -ENFILE, -ENOMEM */
int service_watch(struct service *s, const struct core_file *file, const struct record *record);
void service_unwatch(struct service *s, struct core_process process);
/* Before this process gets a writable descriptor of the session's memory: records it, and watches
 * it in the share of `uid`. pid 0: it is not visible; a process that has exited counts as such, for
 * another process may have its connection. -EOPNOTSUPP: RW_DATA, and it is not visible; -ENOSPC,
 * -EDQUOT, -ENFILE, -ENOMEM, -ENOLCK, -ESTALE */
int service_note_writer(struct service *s, uint64_t session, uint32_t uid,
                        struct core_process process);
/* After a grant: ends the session if its owner has exited. */
void service_check_owner(struct service *s, uint64_t session);
void service_free_watches(struct service *s);
void service_restore_watches(struct service *s);
/* Ends the sessions of processes that have exited meanwhile, or cannot be watched. */
void service_settle_watches(struct service *s);
/* For service_free: answers waiting requests -ENOTCONN. */
void service_drop_parked(struct service *s);

#endif
