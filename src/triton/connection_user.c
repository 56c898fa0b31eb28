/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the user of a connection that the kernel does not know, by asking the opener for its
 * token. */
#include "triton/server_internal.h"

#include "base/container.h"
#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* Counts the connection for this user. 0, or a negative errno: it counts for the old user, holds no
 * bytes, and must end. */
static int count_for(struct connection *connection, uint32_t uid)
{
    struct server *server = connection->server;
    uint64_t held_bytes = connection->held_bytes;
    int error = share_check(&server->share, uid, SHARE_USER, 1);

    connection_hold(connection, 0);
    if (!error)
        error = share_take(&server->share, uid, 1);
    if (error)
        return error;
    share_give(&server->share, connection->uid, 1);
    connection->uid = uid;
    connection->watch.whose = event_of_user(uid);
    return connection_hold(connection, held_bytes);
}

static void on_user(struct opener_call *call, const struct opener_reply *reply, const int *fds,
                    size_t fd_count, int error)
{
    struct connection *connection = CONTAINER_OF(call, struct connection, user_lookup);

    (void)fds;
    (void)fd_count;
    if (!error && !reply->error && reply->uid != SERVER_STRANGER)
        error = count_for(connection, reply->uid);
    else
        error = 0;
    connection_update_lines(connection);
    if (!error)
        return;
    if (server_may_warn(connection->server))
        log_warning("triton: a connection of user %u is closed: %s", reply->uid,
                    error == -ENOMEM ? "the server is out of memory"
                                     : "this user has as many connections, or as many bytes in "
                                       "them, as one user may have");
    connection_end(connection);
}

void connection_show_token(struct connection *connection, struct wire_text token)
{
    struct opener_request *request;

    if (!token.at || token.bytes > OPENER_TOKEN_BYTES || connection->is_ended ||
        connection->uid != SERVER_STRANGER || connection->user_lookup.id != 0)
        return;
    request =
        opener_prepare(connection->server->host.opener, &connection->user_lookup, OPENER_FIND_USER);
    if (!request)
        return; /* the next request tries again */
    request->connection = connection->id;
    memcpy(request->token, token.at, token.bytes);
    request->token[token.bytes] = '\0';
    connection->user_lookup.done = on_user;
    connection->user_lookup.owner = connection->uid;
    opener_ask(&connection->user_lookup);
    connection_update_lines(connection);
}
