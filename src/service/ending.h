/* SPDX-License-Identifier: Apache-2.0 */
/* ending - the transfers that sessions have in flight, and how sessions end after them */
#ifndef GMSFS_SERVICE_ENDING_H
#define GMSFS_SERVICE_ENDING_H

#include "service/service_internal.h"
#include "service/steps.h"

struct commit_job;

struct in_flight {
    uint64_t id;      /* the session */
    unsigned running; /* transfers and other jobs that must end before the session does */
    bool closing;     /* an ending waits: no new transfers */
    bool is_due;      /* service_run_endings has to look at it */
    bool flushed;     /* its last request was a FLUSH: a RELEASE may be under way */
    uint64_t flushed_ms;
    struct ending *endings; /* the oldest comes first */
};

enum ending_type {
    ENDING_COMMIT,
    ENDING_ABORT,
    ENDING_DETACH,
    ENDING_CLOSE, /* its last file is closed, and recorded */
    ENDING_REVOKE,
    ENDING_EXIT, /* the owner's process has exited */
};

struct ending {
    enum ending_type type;
    uint64_t session, file;
    uint32_t flags;
    uint8_t group[16];
    struct core_process by; /* REVOKE: the process that asked */
    uint32_t by_uid;        /* or CORE_BY_DAEMON */
    bool may_read;          /* COMMIT: the handle may read, so the answer has the hash */
    enum ending_state state;
    int error;                    /* COMMIT: why one of its spools could not end */
    struct commit_job *preparing; /* COMMIT: the job that prepares it; NULL: none now */
    struct core_commit *prepared; /* COMMIT: computed in advance for the record; NULL: nothing */
    unsigned tries;
    char refusal[256]; /* COMMIT: why its memory cannot be committed, with `error`; "" */
    struct service_request *request; /* NULL: no request waits */
    struct ending *next;
};

/* in_flight.c */
/* Returns the session's entry, which it makes if there is none; NULL: no memory */
struct in_flight *service_get_in_flight(struct service *s, uint64_t session);
/* Returns true if an ending waits, or the session ends already. A commit may leave it alive: if it
 * is refused, or seals. */
bool service_is_closing(const struct service *s, uint64_t session);
/* Returns true if the session is over, or will surely be once its transfers have ended. */
bool service_is_leaving(const struct service *s, uint64_t session);
/* Begins a transfer: -ESTALE if the session is over or ends, -ENOMEM. */
int service_begin_use(struct service *s, uint64_t session);
int service_begin_use_while_closing(struct service *s, uint64_t session);
/* Ends a transfer. After the last one the session's endings run, at the end of the step. */
void service_end_use(struct service *s, uint64_t session);
/* Tells a commit that waits for a spool that the spool could not end. */
void service_on_seal_failed(struct service *s, uint64_t session, int error);

/* end.c */
/* Runs the endings of sessions after their last use. */
void service_run_endings(struct service *s);
void service_on_session_over(struct service *s, uint64_t session);
int service_end_session(struct service *s, const struct ending *ending);
void service_end_owned(struct service *s, uint64_t session);

/* commit.c */
/* Prepares a commit before its record. Returns true while a job computes; the job's end counts as a
 * use's. */
bool service_prepare_commit(struct service *s, struct in_flight *in_flight, struct ending *ending);
void service_drop_prepared(struct service *s, struct ending *ending);
/* CORE_COMMIT_CHECK, which ends nothing. */
int service_check_commit(struct service *s, uint64_t session, uint32_t flags,
                         struct service_request *request);

/* admin.c */
/* Returns a session that is not surely about to end; NULL: there is none. */
const struct core_session *service_find_open_session(const struct service *s);
void service_revoke_all(struct service *s, const struct ending *revocation);
/* For service_free: answers -ENOTCONN. */
void service_drop_in_flight(struct service *s, struct in_flight *in_flight);

#endif
