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
    struct connection_line lines[LINE_COUNT];
    struct call *waiting;
    uint64_t next_id, stop_at_ms;
    struct share share, held;
    bool is_stopping;
    uint64_t warned_ms; /* that somebody was turned away */
    int error;
};

/* connection.c */
/* Whoever floods us does not flood the log. */
bool server_may_warn(struct server *server);
void server_init_lines(struct server *server);
/* Enters or removes the connection where its user, its token or its bytes have changed. */
void connection_update_lines(struct connection *connection);
/* Ends the connection that has stood longest in the line, but not `other`. A connection whose user
 * is not known makes room for newer ones. False: no other one stands there. */
bool server_end_stranger(struct server *server, enum connection_line_name name,
                         const struct connection *other);

#endif
