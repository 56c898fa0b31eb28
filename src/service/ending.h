/* SPDX-License-Identifier: Apache-2.0 */
/* ending - what sessions have in flight, by the session, and how they end after it */
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
    bool flushed;     /* the last thing heard of it was a FLUSH: a RELEASE may be under way */
    uint64_t flushed_ms;
    struct ending *endings; /* first come first served */
};

enum ending_type {
    ENDING_COMMIT,
    ENDING_ABORT,
    ENDING_DETACH,
    ENDING_CLOSE, /* its last file is closed, and recorded */
    ENDING_REVOKE,
    ENDING_EXIT, /* the owner's process is gone */
};

struct ending {
    enum ending_type type;
    uint64_t session, file;
    uint32_t flags;
    uint8_t group[16];
    struct core_process by; /* REVOKE: who asked */
    uint32_t by_uid;        /* or CORE_BY_DAEMON */
    bool may_read;          /* COMMIT: the handle may, so it is told the hash */
    enum ending_state state;
    int error;                    /* COMMIT: one of its spools could not end */
    struct commit_job *preparing; /* COMMIT: by this job; NULL: by none now */
    struct core_commit *prepared; /* COMMIT: the record has to compute less; NULL: it has not */
    unsigned tries;
    struct service_request *request; /* NULL: nobody waits */
    struct ending *next;
};

/* in_flight.c */
struct in_flight *service_get_in_flight(struct service *s,
                                        uint64_t session); /* makes it; NULL: no memory */
/* Something will end it, or may: a commit that is refused, or stays, does not. */
bool service_is_closing(const struct service *s, uint64_t session);
/* It will surely be over when what it has in flight is done, or is over already. */
bool service_is_leaving(const struct service *s, uint64_t session);
/* A transfer begins: -ESTALE when the session is over or ends, -ENOMEM. */
int service_begin_use(struct service *s, uint64_t session);
int service_begin_use_while_closing(struct service *s, uint64_t session);
/* After the last one the session's endings run, at the end of the step. */
void service_end_use(struct service *s, uint64_t session);
/* A spool could not end: a commit that waits for it says why. */
void service_on_seal_failed(struct service *s, uint64_t session, int error);

/* end.c */
/* Of sessions whose last use is over. */
void service_run_endings(struct service *s);
void service_on_session_over(struct service *s, uint64_t session);
int service_end_session(struct service *s, const struct ending *ending);
void service_end_owned(struct service *s, uint64_t session);

/* commit.c */
/* Before the record: true, it is being computed, and its end is a use's. */
bool service_prepare_commit(struct service *s, struct in_flight *in_flight, struct ending *ending);
void service_drop_prepared(struct service *s, struct ending *ending);
/* CORE_COMMIT_CHECK, which ends nothing. */
int service_check_commit(struct service *s, uint64_t session, uint32_t flags,
                         struct service_request *request);

/* admin.c */
/* Any session that is not surely about to end; NULL: there is none. */
const struct core_session *service_find_open_session(const struct service *s);
void service_revoke_all(struct service *s, const struct ending *revocation);
/* service_free: answered -ENOTCONN. */
void service_drop_in_flight(struct service *s, struct in_flight *in_flight);

#endif
