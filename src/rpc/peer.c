/* SPDX-License-Identifier: Apache-2.0 */
/* The process at the other end, as a caller of the service. */
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <sys/socket.h>

static int has_group(const struct service_caller *caller, uint32_t gid)
{
    return peer_has_group(caller->context, gid);
}

int rpc_read_peer(struct rpc_connection *connection)
{
    struct service_caller *caller = &connection->caller;
    struct rpc *rpc = connection->rpc;
    const struct peer *peer = &connection->peer;
    int on = 1, error = peer_read(connection->watch.fd, &connection->peer);

    /* The listener has SO_PASSCRED too, so that all bytes have their sender; without it on this
     * socket there would be room for descriptors. */
    if (error == 0 &&
        setsockopt(connection->watch.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        error = -errno;
    if (error)
        return error;
    caller->uid = peer->uid;
    connection->watch.whose = event_of_user(peer->uid);
    caller->gid = peer->gid;
    caller->has_group = has_group;
    caller->context = peer;
    error = rpc->host.resolve_peer(rpc->host.context, connection->watch.fd, 1, caller);
    return error;
}
