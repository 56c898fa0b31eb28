/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_connection - a connection of the ticket socket
 *
 * For fds.c, whose these are, and for what serves requests of one.
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
    struct event_held held; /* descriptors are to be sent when what was recorded counts */
    uint32_t uid;
    int pid;
    bool sending, starved; /* starved: no descriptor may be in flight now; the tick tries again */
    uint32_t asked;        /* op of the last request */
    uint64_t active_ms;    /* last progress */
    struct service_redeemed ticket;
    uint64_t sent;
    uint32_t unread;        /* so many of its descriptors are unread at most (fds_unread.h) */
    bool awaits_share;      /* that is why it is starved */
    bool awaits_reader;     /* its next request is read when its client has read the last answer */
    uint64_t charged_bytes; /* of long answers, until its client has read them (fds_charge) */
    uint64_t kept;          /* under this number the keeper holds it; 0: it does not */
    bool is_passed_on;      /* the keeper answers on its socket */
    uint32_t batch;
    struct fds_region_op *registering; /* nothing is read until it is answered; NULL: none */
    struct service_drain drain;        /* of a store; it ends with the connection */
};

struct fs_connections {
    size_t count;
    struct connection *items[SERVICE_MAX_CONNECTIONS];
};

struct service_peer fds_peer_of(const struct connection *connection);
/* Who is to have the descriptors: not who connected, where that has forked since. pid 0: it cannot
 * be seen. */
int fds_find_sender(struct connection *connection, int pid, struct core_process *process);
/* Root's, or the mount's owner's: they can do to the daemon what they like. */
bool fds_is_trusted(const struct connection *connection);
/* So long one may go without progress. */
uint64_t fds_stall_ms(void);
/* This is served now, for the keeper to see. */
void fds_work_for(const struct connection *connection, uint32_t op);
/* Worker after worker has died of it. */
bool fds_is_refused(const struct connection *connection, uint32_t op);
/* A header without descriptors. As fds_answer_send. */
int fds_send_answer(struct connection *connection, int error, uint64_t remaining);

#endif
