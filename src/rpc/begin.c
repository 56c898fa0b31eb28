/* SPDX-License-Identifier: Apache-2.0 */
/* Begins connections: nothing is read from one before the keeper holds it as well. */
#include "rpc/rpc_internal.h"

#include "base/clock.h"
#include "base/container.h"
#include "service/bounds.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_kept(struct rpc_keeping *keeping, int error)
{
    struct rpc_connection *connection = CONTAINER_OF(keeping, struct rpc_connection, keeping);
    struct rpc *rpc = connection->rpc;

    keeping->fd = -1;
    if (connection->is_gone) {
        rpc->host.drop(rpc->host.context, connection->id);
        rpc_connection_free(connection);
        return;
    }
    connection->is_kept = true;
    connection->phase = RPC_HELLO;
    if (error < 0)
        rpc_warn(connection, error);
    if (error < 0 || rpc->host.loop.watch(rpc->host.loop.context, &connection->watch, EVENT_READ))
        rpc_connection_end(connection);
}

static bool has_hung_up(int fd)
{
    struct pollfd peer = {.fd = fd};

    return poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR));
}

/* Ends connections whose clients have hung up, and frees connections whose clients have read
 * all. */
static void end_gone(struct rpc *rpc, uint32_t uid)
{
    for (size_t i = rpc->connections.count; i-- > 0;) {
        struct rpc_connection *connection = rpc->connections.items[i];

        if (connection->caller.uid == uid && connection->phase == RPC_HELLO &&
            has_hung_up(connection->watch.fd))
            rpc_connection_end(connection);
    }
    rpc_free_unread(rpc, false);
}

int rpc_take_place(struct rpc *rpc, uint32_t uid)
{
    int error = service_take(rpc->service, SERVICE_BOUND_CONNECTIONS, 0, uid, 1);

    if (error != -EDQUOT && error != -ENFILE)
        return error;
    end_gone(rpc, uid);
    return service_take(rpc->service, SERVICE_BOUND_CONNECTIONS, 0, uid, 1);
}

/* Begins the connection. The keeper gets it at once, except refused ones: a client that connects
 * again and again would make it work for each. A connection has no waiting request until the keeper
 * holds it, because until then it ends with this worker. */
static int start(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    int error = connection->kept ? rpc_read_peer(connection) : -ENOMEM;

    if (error == 0)
        error = rpc_take_place(rpc, connection->caller.uid);
    if (error < 0)
        return error;
    error = rpc_charge(connection, 0);
    if (error == -EDQUOT || error == -ENOMEM) {
        end_gone(rpc, connection->caller.uid);
        error = rpc_charge(connection, 0);
    }
    if (error < 0) {
        rpc_give_place(connection);
        return error;
    }
    rpc->host.keep_ahead(rpc->host.context, connection->id, connection->watch.fd);
    error = idvec_insert(&rpc->connections, connection);
    if (error == 0) {
        connection->keeping.fd = connection->watch.fd;
        error = rpc->host.keep(rpc->host.context, &connection->keeping);
        if (error < 0)
            idvec_remove(&rpc->connections, connection->id);
    }
    if (error < 0) {
        rpc_give_place(connection);
        rpc->host.drop(rpc->host.context, connection->id);
    }
    return error;
}

struct rpc_connection *rpc_connection_make(struct rpc *rpc, uint64_t id, int fd)
{
    struct rpc_connection *connection = calloc(1, sizeof *connection);

    if (!connection) {
        close(fd);
        return NULL;
    }
    *connection = (struct rpc_connection){
        .id = id,
        .watch = {.fd = fd, .ready = rpc_on_ready},
        .rpc = rpc,
        .passed_fd = -1,
        .pause = {.expired = rpc_on_pause_over},
        .held = {.released = rpc_on_released},
        .request = {.done = rpc_on_done},
        .moved_us = clock_now_us(),
        .keeping = {.id = id, .fd = -1, .done = on_kept},
        .noted = {.connection = id, .phase = RPC_HELLO},
    };
    return connection;
}

int rpc_connection_new(struct rpc_listener *listener, uint64_t id, struct kept *kept, int fd)
{
    struct rpc *rpc = listener->rpc;
    struct rpc_connection *connection = rpc_connection_make(rpc, id, fd);

    if (!connection) {
        if (kept)
            kept_give(rpc->memory, kept);
        return -ENOMEM;
    }
    connection->domain = listener->domain;
    connection->protocol = listener->protocol;
    connection->kept = kept;
    int error = start(connection);
    if (error == 0) {
        rpc_show_input(connection);
        return 0;
    }
    shutdown(fd, SHUT_RDWR); /* the keeper's copy may live on for a moment */
    rpc_connection_free(connection);
    return error;
}
