/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sessions - opening and closing files, the lock behind them, and how sessions end
 *
 * For front ends. Rights are checked here, against the store's owner and mode, and an open file
 * keeps the user and the direction that it was opened with.
 */
#ifndef GMSFS_SERVICE_SESSIONS_H
#define GMSFS_SERVICE_SESSIONS_H

#include "service/service.h"

#define SERVICE_GRACE_MS 5u /* a RELEASE follows its FLUSH within this time (measured: 0.1 ms) */

struct service_open {
    uint64_t store; /* 0: a file at the top */
    enum core_kind kind;
    uint64_t serial; /* allocation, entry */
    bool read, write, nonblock, truncate;
    bool connection; /* for a connection: no client has the file open */
};

/* Opens a file. lock, auto, data: joins, or waits if it is opened for writing too, or -EAGAIN.
 * Allocations: joins, or takes an implicit session at once or EAGAIN (a writer's as `data` does);
 * with `truncate` gives memory back, -ENOLCK if it is sealed. Others: at once. answer: file,
 * session, mode. -EACCES: a right, or the session to join is a writer's and the caller may not
 * write the store. */
int service_open(struct service *s, const struct service_open *open,
                 const struct service_caller *caller, struct service_request *request);
/* Creates an allocation (open(O_CREAT)) and opens it; -EEXIST. answer: file, slot. */
int service_create(struct service *s, uint64_t store, const char *name,
                   const struct service_open *open, const struct service_caller *caller,
                   struct service_request *request);
/* Creates a metadata entry without a value and opens it. */
int service_create_entry(struct service *s, uint64_t store, const char *key, size_t key_bytes,
                         const struct service_open *open, const struct service_caller *caller,
                         struct service_request *request);
/* INTERRUPT: answers a waiter EINTR, which keeps its place, and a request that waits for sums;
 * drops a waiting ALLOC, EINTR; an ALLOC that is making its memory ends between two pieces, with
 * nothing. */
void service_interrupt(struct service *s, struct service_request *request);
/* Ends the wait for a lock of this file, -ECANCELED, or gives up its kept place. -ENOENT */
int service_cancel_wait(struct service *s, uint64_t file);
/* Returns how many processes of the caller service_flush looks at: 1 or 0. */
size_t service_flush_asks(const struct service *s, uint64_t file);
/* Notes the close(2) of one duplicate by `caller`: soon after it, an open that does not block waits
 * SERVICE_GRACE_MS for the RELEASE. -ECANCELED: the file is the last of an implicit writer, whose
 * bytes will not be kept */
int service_flush(struct service *s, uint64_t file, const struct service_caller *caller);
/* Closes a file after its last duplicate: never fails, and is recorded when it returns. The session
 * that it ends may have to wait for its transfers. */
void service_close(struct service *s, uint64_t file);

/* ---- the lock on a `ctl` -------------------------------------------------------------------- */

struct service_acquire {
    enum lock_wish wish;
    uint64_t timeout_ms;
    uint64_t reserve_bytes; /* reserved with RW; 0: none */
    bool again;             /* the caller asks again soon after the timeout: CORE_OPEN_AGAIN */
    bool owned;      /* the session ends with the caller's process, even if others have its files */
    bool replace;    /* RW in any tier: CORE_OPEN_REPLACE */
    bool any;        /* RO in any tier: CORE_OPEN_ANY */
    bool by_process; /* reached by process too: CORE_OPEN_BY_PROCESS */
    bool fresh;      /* RW begins empty: the committed layout is dropped at the grant */
    bool grouped;    /* one of several stores that a client takes together */
};

int service_acquire(struct service *s, uint64_t file, const struct service_acquire *acquire,
                    const struct service_caller *caller, struct service_request *request);
int service_join(struct service *s, uint64_t file, const uint8_t token[16], uint64_t *session);
int service_release(struct service *s, uint64_t file, struct service_request *request);

/* ---- endings -------------------------------------------------------------------------------- */

/* flags: CORE_COMMIT_*. With SEAL the session stays, and answer.mode is RW_DATA; -EOPNOTSUPP: a
 * process that is not visible may write the memory. */
int service_commit(struct service *s, const struct service_actor *by, uint32_t flags,
                   const uint8_t group[16], struct service_request *request);
/* Aborts. With RW_DATA it only ends the session, and keeps all bytes. */
int service_abort(struct service *s, const struct service_actor *by,
                  struct service_request *request);
/* Revokes a session or a waiter by its number as `sessions` shows it (a waiter's number with a
 * leading w). By a file of the store that is open for writing and was opened by an administrator or
 * the store's owner, else -EPERM. -ENOENT */
int service_revoke(struct service *s, uint64_t file, uint64_t number, bool waiter,
                   struct service_request *request);

#endif
