/* SPDX-License-Identifier: Apache-2.0 */
/* pace - the costs of a request, and its waits; connection.c continues it */
#include "base/clock.h"
#include "rpc/rpc_internal.h"
#include "service/bounds.h"

static int set_charge(struct rpc_connection *connection, uint64_t bytes)
{
    return service_charge(connection->rpc->service, SERVICE_BOUND_FRAMES, connection->caller.uid,
                          &connection->charged_bytes, bytes);
}

int rpc_charge(struct rpc_connection *connection, uint64_t bytes)
{
    return set_charge(connection, RPC_BASE_BYTES + bytes);
}

void rpc_lower_charge(struct rpc_connection *connection)
{
    uint64_t bytes = rpc_count_unread(connection);

    if (!connection->is_gone)
        bytes += RPC_BASE_BYTES + connection->input_room;
    if (bytes < connection->charged_bytes)
        set_charge(connection, bytes);
}

void rpc_give_place(struct rpc_connection *connection)
{
    set_charge(connection, 0);
    service_give(connection->rpc->service, SERVICE_BOUND_CONNECTIONS, connection->caller.uid, 1);
}

/* for memory or descriptors that other processes have to give back, which no event announces */
#define LONGEST_PAUSE_MS 32u

void rpc_pause(struct rpc_connection *connection)
{
    const struct event_loop *loop = &connection->rpc->host.loop;

    connection->is_paused = true;
    connection->is_served = false;
    connection->pause_ms = connection->pause_ms ? 2 * connection->pause_ms : 1;
    if (connection->pause_ms > LONGEST_PAUSE_MS)
        connection->pause_ms = LONGEST_PAUSE_MS;
    loop->set_timeout(loop->context, &connection->pause,
                      clock_now_us() / 1000 + connection->pause_ms);
}

/* The request is served again after each message that the client has read. */
void rpc_await_reader(struct rpc_connection *connection)
{
    connection->awaits_reader = true;
    connection->is_served = false;
}

struct service_request *rpc_wait(struct rpc_connection *connection, rpc_finish *finish)
{
    connection->finish = finish;
    connection->request = (struct service_request){.done = connection->request.done,
                                                   .since_ms = connection->asked_us / 1000};
    return &connection->request;
}
