/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on connections and on the server, for the protocols. */
#include "triton/server_internal.h"

#include "base/test_hooks.h"

#include <errno.h>
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

uint64_t server_deadline_ms(uint64_t wait_ms)
{
    uint64_t haste = hook_number("GMSFS_TRITON_HASTE", 1);

    return loop_now_ms() + wait_ms / (haste > 0 ? haste : 1);
}

/* ---- the log --------------------------------------------------------------------------------- */

bool server_may_warn(struct server *server)
{
    uint64_t now_ms = loop_now_ms();
    bool may = server->warned_ms == 0 || now_ms - server->warned_ms >= WARNING_MS;

    if (may)
        server->warned_ms = now_ms;
    return may;
}

/* ---- lines of connections that make room ----------------------------------------------------- */

void server_init_lines(struct server *server)
{
    for (unsigned i = 0; i < LINE_COUNT; i++)
        server->lines[i].end = &server->lines[i].first;
}

static void line_append(struct connection *connection, enum connection_line_name name)
{
    struct connection_line *line = &connection->server->lines[name];
    struct connection_place *place = &connection->places[name];

    place->next = NULL;
    place->link = line->end;
    *line->end = connection;
    line->end = &place->next;
}

static void line_remove(struct connection *connection, enum connection_line_name name)
{
    struct connection_line *line = &connection->server->lines[name];
    struct connection_place *place = &connection->places[name];

    *place->link = place->next;
    if (place->next)
        place->next->places[name].link = place->link;
    else
        line->end = place->link;
    place->link = NULL;
}

static void line_set(struct connection *connection, enum connection_line_name name, bool stands)
{
    bool stood = connection->places[name].link != NULL;

    if (stands && !stood)
        line_append(connection, name);
    else if (!stands && stood)
        line_remove(connection, name);
}

/* Updates the lines. A connection whose token is being looked up is not ended for others. */
void connection_update_lines(struct connection *connection)
{
    bool is_stranger = !connection->is_ended && connection->uid == SERVER_STRANGER &&
                       connection->user_lookup.id == 0;

    line_set(connection, LINE_STRANGERS, is_stranger);
    line_set(connection, LINE_HOLDERS, is_stranger && connection->held_bytes > 0);
}

bool server_end_stranger(struct server *server, enum connection_line_name name,
                         const struct connection *other)
{
    struct connection *first = server->lines[name].first;

    if (first && first == other)
        first = first->places[name].next;
    if (first)
        connection_end(first);
    return first != NULL;
}

/* ---- operations on connections --------------------------------------------------------------- */

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
           server_end_stranger(connection->server, LINE_HOLDERS, connection))
        error = share_check(held, connection->uid, SHARE_USER, more);
    return error ? error : share_take(held, connection->uid, more);
}

int connection_hold(struct connection *connection, uint64_t bytes)
{
    struct share *held = &connection->server->held;
    int error = 0;

    if (connection->is_ended)
        return 0; /* all was given back when it ended */
    if (bytes > connection->held_bytes) {
        error = take_memory(connection, bytes - connection->held_bytes);
    } else {
        share_give(held, connection->uid, connection->held_bytes - bytes);
    }
    if (!error)
        connection->held_bytes = bytes;
    connection_update_lines(connection);
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
    if (connection->is_introduced && !opener_cancel(&connection->identify))
        opener_forget(server->host.opener, connection->id);
    opener_cancel(&connection->user_lookup);
    connection_update_lines(connection);
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

/* Tells the opener, once, of a connection whose user the kernel knows: after its first bytes, so
 * that a silent connection costs the opener nothing. The message goes in the user's own turn,
 * before its requests, so that users wait for each other's connections no longer than for their
 * requests. */
static int introduce(struct connection *connection)
{
    struct opener_request *request;

    if (connection->is_introduced || connection->uid == SERVER_STRANGER)
        return 0; /* the opener knows only connections that it was told of */
    request =
        opener_prepare(connection->server->host.opener, &connection->identify, OPENER_IDENTIFY);
    if (!request)
        return -ENOMEM;
    request->connection = connection->id;
    connection->identify.owner = connection->uid;
    connection->identify.passed_fd = connection->watch.fd;
    int error = opener_ask(&connection->identify);
    connection->is_introduced = !error;
    return error;
}

/* Refuses an ended connection, whose descriptor's number may be in use again. */
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
    if (got < 0)
        return -errno;
    return got > 0 ? introduce(connection) : 0;
}

void connection_end_sending(struct connection *connection)
{
    if (!connection->is_ended)
        shutdown(connection->watch.fd, SHUT_WR);
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
