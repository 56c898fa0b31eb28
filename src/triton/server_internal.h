/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by server.c, connection.c and connection_user.c alone. */
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
    uint64_t warned_ms; /* time of the last warning; 0: none yet */
    int error;
};

/* connection.c */
/* Returns true at most once in a while, so that a flood of clients does not flood the log. */
bool server_may_warn(struct server *server);
void server_init_lines(struct server *server);
/* Updates the connection's places in the lines after its user, token lookup or bytes changed. */
void connection_update_lines(struct connection *connection);
/* Ends the oldest connection in the line except `other`, to make room for newer ones. Returns false
 * if there is no such connection. */
bool server_end_stranger(struct server *server, enum connection_line_name name,
                         const struct connection *other);

#endif
