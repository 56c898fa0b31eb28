/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end, as a caller of the service. */
#include "rpc/rpc_internal.h"

static int has_group(const struct service_caller *caller, uint32_t gid)
{
    return peer_has_group(caller->context, gid);
}

int rpc_read_peer(struct rpc_connection *connection)
{
    struct service_caller *caller = &connection->caller;
    struct rpc *rpc = connection->rpc;
    const struct peer *peer = &connection->peer;
    int error = peer_read(connection->watch.fd, &connection->peer);

    if (error)
        return error;
    caller->uid = peer->uid;
    caller->gid = peer->gid;
    caller->has_group = has_group;
    caller->context = peer;
    error = rpc->host.resolve_peer(rpc->host.context, connection->watch.fd, 1, caller);
    return error;
}
