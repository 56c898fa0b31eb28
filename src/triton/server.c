/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/server_internal.h"

#include "base/container.h"
#include "base/failure.h"
#include "base/log.h"
#include "triton/identity.h"

#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCEPTS_PER_TURN 32
#define SPARE_FDS        64u /* beyond connections and the regions of their requests */
#define FDS_PER_USE      2u  /* a connection, and its other descriptors on average */

/* ---- connections --------------------------------------------------------------------------- */

static void free_ended(struct server *server)
{
    struct connection **link = &server->ended;

    while (*link) {
        struct connection *connection = *link;
        if (!connection->calls->free(connection)) {
            link = &connection->next;
            continue;
        }
        *link = connection->next;
        free(connection);
    }
}

static void on_connection(struct event_watch *watch, uint32_t events)
{
    struct connection *connection = CONTAINER_OF(watch, struct connection, watch);

    connection->calls->ready(connection, events);
}

/* Makes room by ending another connection, but not for a user beyond its own share. */
static int check_room(struct server *server, uint32_t uid)
{
    int error = share_check(&server->share, uid, SHARE_USER, 1);
    bool may_end = error == -ENOSPC || (error && uid == SERVER_STRANGER);

    if (may_end && server_end_stranger(server, LINE_STRANGERS, NULL))
        error = share_check(&server->share, uid, SHARE_USER, 1);
    return error;
}

/* 0, or a negative errno and the caller still owns the descriptor. */
static int add_connection(struct listener *listener, int fd, uint32_t uid)
{
    struct server *server = listener->server;
    struct connection *connection;
    int error = check_room(server, uid);

    if (!error)
        error = listener->protocol == SERVER_HTTP ? http_new(&connection) : grpc_new(&connection);
    if (error)
        return error;
    error = share_take(&server->share, uid, 1);
    if (error) {
        connection->calls->free(connection);
        free(connection);
        return error;
    }
    connection->watch =
        (struct event_watch){.fd = fd, .ready = on_connection, .whose = event_of_user(uid)};
    connection->server = server;
    connection->id = ++server->next_id;
    connection->uid = uid;
    connection->deadline_ms = server_deadline_ms(SERVER_REQUEST_MS);
    connection->next = server->connections;
    connection->link = &server->connections;
    if (connection->next)
        connection->next->link = &connection->next;
    server->connections = connection;
    connection_update_lines(connection);
    connection_watch(connection, EVENT_READ);
    if (!connection->is_ended && listener->protocol == SERVER_GRPC && grpc_begin(connection) != 0)
        connection_end(connection);
    return 0;
}

static void accept_one(struct listener *listener, int fd)
{
    struct server *server = listener->server;
    int on = 1;

    uint32_t uid = identity_of_socket(fd);
    int error = add_connection(listener, fd, uid);
    if (!error) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                   sizeof on); /* fails on a unix socket, harmlessly */
        return;
    }
    close(fd);
    if (server_may_warn(server))
        log_warning(
            "triton: a new connection of %s is closed: %s (there are at most %d, and for one "
            "user half of the number that others leave free)",
            uid == SERVER_STRANGER ? "an unknown user" : "a user",
            error == -EDQUOT ? "this user has as many as one user may have" : failure_reason(error),
            (int)server->share.limit);
}

static void on_listener(struct event_watch *watch, uint32_t events)
{
    struct listener *listener = CONTAINER_OF(watch, struct listener, watch);

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            break;
        accept_one(listener, fd);
    }
}

/* ---- the end ------------------------------------------------------------------------------- */

static void close_listeners(struct server *server)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        loop_unwatch(server->loop, &server->listeners[i].watch);
        close(server->listeners[i].watch.fd);
    }
    server->listener_count = 0;
}

static void stop_if_done(struct server *server)
{
    if (server->is_stopping && !server->connections)
        loop_stop(server->loop);
}

static void stop(struct server *server)
{
    if (server->is_stopping)
        return;
    server->is_stopping = true;
    server->stop_at_ms = loop_now_ms() + SERVER_STOP_MS;
    close_listeners(server);
    for (struct connection *next, *at = server->connections; at; at = next) {
        next = at->next;
        at->calls->stop(at);
    }
    loop_set_idle(server->loop); /* on_idle then ends the loop if no connection is left */
}

static void on_stop(void *context)
{
    stop(context);
}

static void on_ended(void *context, uint64_t region)
{
    struct server *server = context;

    call_end_region(&server->host, region);
}

static void on_lost(void *context, int error)
{
    struct server *server = context;

    server->error = error;
    stop(server);
}

static void on_idle(void *context)
{
    struct server *server = context;

    free_ended(server);
    stop_if_done(server);
}

/* Looks once a second for connections past their deadline, while there are connections. */
static bool on_tick(void *context, uint64_t now_ms)
{
    struct server *server = context;

    for (struct connection *next, *at = server->connections; at; at = next) {
        next = at->next;
        if (server->is_stopping && now_ms >= server->stop_at_ms)
            connection_end(at);
        else if (now_ms >= at->deadline_ms)
            at->calls->expired(at);
    }
    return server->connections != NULL;
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* Returns how many connections the limit of open files allows. */
static uint64_t limit_connections(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return SERVER_MAX_CONNECTIONS / 16;
    uint64_t room = files.rlim_cur > SPARE_FDS ? (files.rlim_cur - SPARE_FDS) / FDS_PER_USE : 1;
    return room < SERVER_MAX_CONNECTIONS ? room : SERVER_MAX_CONNECTIONS;
}

static int take_listeners(struct server *server, const struct server_options *options)
{
    int error = 0;

    for (unsigned i = 0; !error && i < options->listener_count; i++) {
        struct listener *listener = &server->listeners[server->listener_count++];
        listener->watch =
            (struct event_watch){.fd = options->listeners[i].fd, .ready = on_listener};
        listener->server = server;
        listener->protocol = options->listeners[i].protocol;
        error = loop_watch(server->loop, &listener->watch, EVENT_READ);
    }
    return error;
}

static int begin(struct server *server, const struct server_options *options)
{
    struct loop_calls calls = {.context = server, .on_idle = on_idle, .on_tick = on_tick};
    struct opener_events events = {
        .context = server, .on_stop = on_stop, .on_ended = on_ended, .on_lost = on_lost};
    int error = loop_new(&calls, &server->loop);

    if (error)
        return error;
    server->host = (struct call_host){.loop = loop_get_calls(server->loop),
                                      .has_test_models = options->has_test_models,
                                      .has_cuda = options->has_cuda,
                                      .delay_ms = options->delay_ms,
                                      .waiting = &server->waiting};
    share_init(&server->share, limit_connections());
    share_init(&server->held, SERVER_MAX_HELD_BYTES);
    server_init_lines(server);
    error = workers_new(server->loop, &server->host.workers);
    if (!error)
        error =
            opener_client_new(&server->host.loop, options->opener, &events, &server->host.opener);
    return error ? error : take_listeners(server, options);
}

static void free_server(struct server *server)
{
    opener_client_free(server->host.opener);
    workers_free(server->host.workers);
    loop_free(server->loop);
    share_free(&server->share);
    share_free(&server->held);
    free(server);
}

/* Keeps freed pages in the process: each request allocates tensors of some megabytes, and clearing
 * new pages would take half of the time. */
static void keep_pages(void)
{
    mallopt(M_MMAP_THRESHOLD, 2 * SERVER_MAX_MESSAGE);
    mallopt(M_TRIM_THRESHOLD, 4 * SERVER_MAX_MESSAGE);
    mallopt(M_ARENA_MAX, 1);
}

int server_run(const struct server_options *options)
{
    struct server *server = calloc(1, sizeof *server);

    if (!server)
        return -ENOMEM;
    keep_pages();
    int error = begin(server, options);
    if (!error)
        error = loop_run(server->loop);
    if (!error)
        error = server->error;
    if (!server->loop) {
        free(server);
        return error;
    }
    close_listeners(server);
    while (server->connections)
        connection_end(server->connections);
    free_ended(server);
    if (!server->ended) /* else a thread waits for the mount, and only the end of the process frees
                           all */
        free_server(server);
    return error;
}
