/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_connection - a connection of the ticket socket
 *
 * For fds.c, which owns the connections, and for the files that serve their requests.
 */
#ifndef GMSFS_FS_FDS_CONNECTION_H
#define GMSFS_FS_FDS_CONNECTION_H

#include "fs/fds_answer.h"
#include "fs/fs_internal.h"
#include "service/drain.h"

struct connection {
    struct event_watch watch;
    struct fs *fs;
    struct fds_answer answer;
    struct event_held held; /* descriptors to be sent once the step's records are written */
    uint32_t uid;
    int pid;
    bool sending, starved; /* starved: no descriptor can be sent now; the tick tries again */
    uint32_t asked;        /* op of the last request */
    uint64_t active_ms;    /* last progress */
    struct service_redeemed ticket;
    uint64_t sent;
    uint32_t unread;        /* upper bound of its unread descriptors (fds_unread.h) */
    bool awaits_share;      /* the reason why it is starved */
    bool awaits_reader;     /* its next request is read once its client has read the last answer */
    uint64_t charged_bytes; /* bytes of long answers, until its client has read them (fds_charge) */
    uint64_t kept;          /* number under which the keeper holds it; 0: it does not */
    bool is_passed_on;      /* the keeper answers on its socket */
    uint32_t batch;
    struct fds_region_op *registering; /* nothing is read until it is answered; NULL: none */
    struct service_drain drain;        /* drain of a store, which ends with the connection */
};

struct fs_connections {
    size_t count;
    struct connection *items[SERVICE_MAX_CONNECTIONS];
};

struct service_peer fds_peer_of(const struct connection *connection);
/* Finds the process that sent the request, which gets the descriptors: another process than the
 * one behind connect(2) if that one has forked since. pid 0: it cannot be seen. */
int fds_find_sender(struct connection *connection, int pid, struct core_process *process);
/* Returns true for root and the mount's owner, who control the daemon anyway. */
bool fds_is_trusted(const struct connection *connection);
/* Returns how long a transfer may stay without progress. */
uint64_t fds_stall_ms(void);
/* Tells the keeper that this request is in work now, and names the next answer in the log by it. */
void fds_work_for(struct connection *connection, uint32_t op);
/* Returns true if workers died of this request again and again. */
bool fds_is_refused(const struct connection *connection, uint32_t op);
/* fds_admin.c: answers CLEAR_SUSPECT and LOG. Returns as fds_answer_send. */
int fds_admin_answer(struct connection *connection, const struct gmsfs_fds_request *request);
/* Answers a header without descriptors. Returns as fds_answer_send. */
int fds_send_answer(struct connection *connection, int error, uint64_t remaining);

#endif
