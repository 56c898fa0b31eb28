/* SPDX-License-Identifier: Apache-2.0 */
/* What the protocols ask of a connection and of its server. */
#include "triton/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define WARNING_MS 10000u

const struct call_host *server_get_host(const struct server *server)
{
    return &server->host;
}

bool server_is_stopping(const struct server *server)
{
    return server->is_stopping;
}

uint64_t server_now_ms(void)
{
    return loop_now_ms();
}

#ifdef GMSFS_TEST_HOOKS
static uint64_t hasten(uint64_t wait_ms)
{
    const char *haste = getenv("GMSFS_TRITON_HASTE");
    uint64_t divisor = haste ? strtoull(haste, NULL, 10) : 1;

    return divisor > 1 ? wait_ms / divisor : wait_ms;
}
#else
static uint64_t hasten(uint64_t wait_ms)
{
    return wait_ms;
}
#endif

uint64_t server_deadline_ms(uint64_t wait_ms)
{
    return loop_now_ms() + hasten(wait_ms);
}

/* ---- connections --------------------------------------------------------------------------- */

bool server_may_warn(struct server *server)
{
    uint64_t now_ms = loop_now_ms();
    bool may = server->warned_ms == 0 || now_ms - server->warned_ms >= WARNING_MS;

    if (may)
        server->warned_ms = now_ms;
    return may;
}

static void watch_listeners(struct server *server, uint32_t events)
{
    for (unsigned i = 0; i < server->listener_count; i++)
        loop_watch(server->loop, &server->listeners[i].watch, events);
}

void server_count_out(struct connection *connection)
{
    struct server *server = connection->server;

    if (!connection->is_new)
        return;
    connection->is_new = false;
    if (server->new_count-- == server->max_new)
        watch_listeners(server, EVENT_READ);
}

void server_count_in(struct connection *connection)
{
    connection->is_new = true;
    if (++connection->server->new_count == connection->server->max_new)
        watch_listeners(connection->server, 0);
}

/* The first that came are the last of the list. */
bool server_end_stranger(struct server *server, const struct connection *other, uint64_t held_bytes)
{
    struct connection *first = NULL;

    for (struct connection *at = server->connections; at; at = at->next) {
        if (at->uid == SERVER_STRANGER && !at->is_new && at->who.id == 0 && at != other &&
            at->held_bytes >= held_bytes)
            first = at;
    }
    if (first)
        connection_end(first);
    return first != NULL;
}

/* Those of one that is not known yet wait until it is: for all strangers a flood would be one. */
uint64_t connection_get_owner(const struct connection *connection)
{
    return connection->is_new ? OPENER_OF(connection->id) : connection->uid;
}

void connection_watch(struct connection *connection, uint32_t events)
{
    if (connection->is_ended || connection->events == events)
        return;
    connection->events = events;
    if (loop_watch(connection->server->loop, &connection->watch, events) != 0)
        connection_end(connection);
}

static int take_memory(const struct connection *connection, uint64_t more)
{
    struct share *held = &connection->server->held;
    int error = share_check(held, connection->uid, SHARE_USER, more);

    while (error && connection->uid == SERVER_STRANGER &&
           server_end_stranger(connection->server, connection, 1))
        error = share_check(held, connection->uid, SHARE_USER, more);
    return error ? error : share_take(held, connection->uid, more);
}

int connection_hold(struct connection *connection, uint64_t bytes)
{
    struct share *held = &connection->server->held;
    int error = 0;

    if (connection->is_ended)
        return 0; /* what is freed is freed with it */
    if (bytes > connection->held_bytes) {
        error = take_memory(connection, bytes - connection->held_bytes);
    } else {
        share_give(held, connection->uid, connection->held_bytes - bytes);
    }
    if (!error)
        connection->held_bytes = bytes;
    return error;
}

void connection_end(struct connection *connection)
{
    struct server *server = connection->server;

    if (connection->is_ended)
        return;
    connection_hold(connection, 0);
    connection->is_ended = true;
    loop_unwatch(server->loop, &connection->watch);
    close(connection->watch.fd);
    server_count_out(connection);
    opener_cancel(&connection->identify);
    opener_cancel(&connection->who);
    opener_forget(server->host.opener, connection->id);
    share_give(&server->share, connection->uid, 1);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    connection->next = server->ended;
    server->ended = connection;
    loop_set_idle(server->loop);
}

void connection_is_free(struct connection *connection)
{
    loop_set_idle(connection->server->loop);
}

/* Of an ended one the number of its descriptor may be another's already. */
int connection_receive(struct connection *connection, void *to, size_t room, size_t *bytes)
{
    ssize_t got;

    *bytes = 0;
    if (connection->is_ended)
        return -ENOTCONN;
    do
        got = recv(connection->watch.fd, to, room, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    *bytes = got > 0 ? (size_t)got : 0;
    return got < 0 ? -errno : 0;
}

int connection_send(struct connection *connection, const void *bytes, size_t size, size_t *sent)
{
    ssize_t put;

    *sent = 0;
    if (connection->is_ended)
        return -ENOTCONN;
    do
        put = send(connection->watch.fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (put < 0 && errno == EINTR);
    *sent = put > 0 ? (size_t)put : 0;
    return put < 0 ? -errno : 0;
}
