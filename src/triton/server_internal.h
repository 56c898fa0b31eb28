/* SPDX-License-Identifier: Apache-2.0 */
/* What server.c, connection.c and connection_user.c share; nobody else includes it. */
#ifndef GMSFS_TRITON_SERVER_INTERNAL_H
#define GMSFS_TRITON_SERVER_INTERNAL_H

#include "base/share.h"
#include "daemon/loop.h"
#include "triton/server.h"

struct listener {
    struct event_watch watch;
    struct server *server;
    enum server_protocol protocol;
};

struct server {
    struct loop *loop;
    struct call_host host;
    struct listener listeners[SERVER_MAX_LISTENERS];
    unsigned listener_count;
    struct connection *connections, *ended;
    struct call *waiting;
    uint64_t next_id, stop_at_ms;
    struct share share, held;
    unsigned new_count, max_new; /* of connections that are being identified */
    bool is_stopping;
    uint64_t warned_ms; /* that somebody was turned away */
    int error;
};

/* connection.c */
/* Whoever floods us does not flood the log. */
bool server_may_warn(struct server *server);
/* It is being identified: while too many are, nobody else is let in. */
void server_count_in(struct connection *connection);
/* It is known whose it is, or it is gone. */
void server_count_out(struct connection *connection);
/* Whoever has shown no token, and is known by nothing else, makes room for those who come after
 * him: the first one to have come goes that holds so many bytes, but not this one. False: there is
 * none. */
bool server_end_stranger(struct server *server, const struct connection *other,
                         uint64_t held_bytes);

/* connection_user.c */
/* Asks the opener whose it is. 0 or a negative errno: it is to end. */
int connection_identify(struct connection *connection);

#endif
