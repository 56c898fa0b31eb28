/* SPDX-License-Identifier: Apache-2.0 */
/* Who is at the other end: what the kernel noted when it connected, which nobody can change. */
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define SOME_GROUPS 64u

static int has_group(const struct service_caller *caller, uint32_t gid)
{
    const struct rpc_connection *connection = caller->context;

    for (size_t i = 0; i < connection->group_count; i++) {
        if (connection->groups[i] == gid)
            return 1;
    }
    return 0;
}

static int read_groups(struct rpc_connection *connection)
{
    socklen_t size = SOME_GROUPS * sizeof(gid_t);

    for (;;) {
        gid_t *groups = realloc(connection->groups, size ? size : 1);

        if (!groups)
            return -ENOMEM;
        connection->groups = groups;
        if (getsockopt(connection->watch.fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0)
            break;
        if (errno != ERANGE || size > RPC_MAX_GROUPS * sizeof(gid_t))
            return -errno;
    }
    connection->group_count = size / sizeof(gid_t);
    return 0;
}

int rpc_read_peer(struct rpc_connection *connection)
{
    struct service_caller *caller = &connection->caller;
    struct rpc *rpc = connection->rpc;
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int on = 1, error;

    /* The listener has SO_PASSCRED too, so that all bytes have their sender; without it here there
     * would be room for descriptors. */
    if (getsockopt(connection->watch.fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        setsockopt(connection->watch.fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0)
        return -errno;
    caller->uid = peer.uid;
    caller->gid = peer.gid;
    caller->has_group = has_group;
    caller->context = connection;
    error = read_groups(connection);
    if (error == 0)
        error = rpc->host.resolve_peer(rpc->host.context, connection->watch.fd, 1, caller);
    return error;
}
