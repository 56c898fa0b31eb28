/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/opener_client.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/idvec.h"
#include "base/test_hooks.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLIES_PER_TURN 64
/* Requests already sent have left the order of turns, so the buffer is small: a few requests, at
 * least one of the largest. */
#define SENT_BYTES (2 * (int)sizeof(struct opener_request))

/* The unsent requests of one turn, in order. */
struct opener_turn {
    uint64_t owner; /* first for idvec */
    struct opener_call *first, **end;
    struct opener_turn *next;
    bool is_in_line; /* it is in the line, even if it has nothing left to send, and is freed when it
                        leaves */
};

struct opener_client {
    struct event_watch watch;
    struct event_timeout timeout; /* of the oldest request in flight */
    struct event_loop loop;
    struct opener_events events;
    struct idvec asked; /* of struct opener_call */
    uint64_t next_id;
    struct idvec turns;
    struct opener_turn *line, **line_end; /* turns with a request to send, the next first */
    bool is_lost;
    struct opener_reply reply;
};

static void set_events(struct opener_client *client)
{
    client->loop.watch(client->loop.context, &client->watch,
                       EVENT_READ | (client->line ? EVENT_WRITE : 0));
}

/* ---- turns --------------------------------------------------------------------------------- */

static struct opener_turn *find_turn(struct opener_client *client, uint64_t owner)
{
    struct opener_turn *turn = idvec_find(&client->turns, owner);

    if (turn)
        return turn;
    turn = calloc(1, sizeof *turn);
    if (!turn)
        return NULL;
    turn->owner = owner;
    turn->end = &turn->first;
    if (idvec_insert(&client->turns, turn) == 0)
        return turn;
    free(turn);
    return NULL;
}

static void free_turn(struct opener_client *client, struct opener_turn *turn)
{
    idvec_remove(&client->turns, turn->owner);
    free(turn);
}

static void stand_in_line(struct opener_client *client, struct opener_turn *turn)
{
    if (turn->is_in_line)
        return;
    turn->is_in_line = true;
    turn->next = NULL;
    *client->line_end = turn;
    client->line_end = &turn->next;
}

/* Takes the first turn of the line; the caller may append it again. */
static struct opener_turn *leave_line(struct opener_client *client)
{
    struct opener_turn *turn = client->line;

    client->line = turn->next;
    if (!client->line)
        client->line_end = &client->line;
    turn->is_in_line = false;
    return turn;
}

static void append_call(struct opener_turn *turn, struct opener_call *call)
{
    call->turn = turn;
    call->next = NULL;
    call->link = turn->end;
    *turn->end = call;
    turn->end = &call->next;
}

static void unlink_call(struct opener_call *call)
{
    struct opener_turn *turn = call->turn;

    *call->link = call->next;
    if (call->next)
        call->next->link = call->link;
    else
        turn->end = call->link;
    call->turn = NULL;
}

/* Frees the request after it was sent, or will not be. */
static void take_out(struct opener_call *call)
{
    struct opener_turn *turn = call->turn;

    if (turn) {
        unlink_call(call);
        if (!turn->first && !turn->is_in_line)
            free_turn(call->client, turn);
    }
    free(call->request);
    call->request = NULL;
    if (call->passed_fd >= 0)
        close(call->passed_fd);
    call->passed_fd = -1;
}

/* ---- calls --------------------------------------------------------------------------------- */

static void forget_call(struct opener_call *call)
{
    struct opener_client *client = call->client;

    take_out(call);
    idvec_remove(&client->asked, call->id);
    call->id = 0;
}

static void fail_call(struct opener_call *call, int error)
{
    forget_call(call);
    if (call->done)
        call->done(call, NULL, NULL, 0, error);
}

/* All requests have the same time limit, so the oldest is the first to be late. */
static void on_timeout(struct event_timeout *timeout)
{
    struct opener_client *client = CONTAINER_OF(timeout, struct opener_client, timeout);
    uint64_t now = clock_now_ms();

    while (client->asked.count > 0) {
        struct opener_call *first = client->asked.items[0];
        if (first->end_ms > now) {
            client->loop.set_timeout(client->loop.context, timeout, first->end_ms);
            break;
        }
        fail_call(first, -ETIMEDOUT);
    }
}

static void lose(struct opener_client *client, int error)
{
    client->is_lost = true;
    client->loop.unwatch(client->loop.context, &client->watch);
    while (client->asked.count > 0)
        fail_call(client->asked.items[0], -ENOTCONN);
    client->events.on_lost(client->events.context, error);
}

/* Sends the first request of the first turn. 0, or a negative errno and the line is unchanged. */
static int send_next(struct opener_client *client)
{
    struct opener_call *call = client->line->first;
    int error = 0;

    if (call)
        error = opener_send(client->watch.fd, call->request,
                            OPENER_REQUEST_BYTES(call->request->name_count), &call->passed_fd,
                            call->passed_fd >= 0);
    if (error)
        return error;
    struct opener_turn *turn = leave_line(client);
    if (call && call->next)
        stand_in_line(client, turn);
    if (call)
        take_out(call); /* also the turn, if this was its last request */
    else
        free_turn(client, turn);
    return 0;
}

static void send_waiting(struct opener_client *client)
{
    int error = 0;

    while (client->line && !error)
        error = send_next(client);
    if (error && error != -EAGAIN)
        lose(client, error);
    else
        set_events(client);
}

static void give_reply(struct opener_client *client, const int *fds, size_t fd_count)
{
    const struct opener_reply *reply = &client->reply;

    if (reply->id == OPENER_STOP) {
        client->events.on_stop(client->events.context);
        return;
    }
    if (reply->id == OPENER_ENDED) {
        client->events.on_ended(client->events.context, reply->region);
        return;
    }
    struct opener_call *call = idvec_find(&client->asked, reply->id);
    if (call && !reply->more)
        forget_call(call);
    if (call && call->done) {
        call->done(call, reply, fds, fd_count, 0);
        return;
    }
    for (size_t i = 0; i < fd_count; i++)
        close(fds[i]);
}

static void on_ready(struct event_watch *watch, uint32_t events)
{
    struct opener_client *client = CONTAINER_OF(watch, struct opener_client, watch);
    int error = 0;

    if (events & EVENT_WRITE)
        send_waiting(client);
    for (int i = 0; i < REPLIES_PER_TURN && !error && !client->is_lost; i++) {
        int fds[OPENER_MAX_FDS];
        size_t fd_count = OPENER_MAX_FDS, bytes = sizeof client->reply;
        error = opener_receive(watch->fd, &client->reply, &bytes, fds, &fd_count);
        if (!error && bytes == 0)
            error = -ENOTCONN;
        if (!error)
            give_reply(client, fds, fd_count);
    }
    if (error && error != -EAGAIN && !client->is_lost)
        lose(client, error);
}

int opener_client_new(const struct event_loop *loop, int socket, const struct opener_events *events,
                      struct opener_client **client)
{
    struct opener_client *new = calloc(1, sizeof *new);
    int sent_bytes = SENT_BYTES, error;

    if (!new)
        return -ENOMEM;
    setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &sent_bytes, sizeof sent_bytes);
    new->loop = *loop;
    new->events = *events;
    new->next_id = 1;
    new->line_end = &new->line;
    new->timeout.expired = on_timeout;
    new->watch = (struct event_watch){.fd = socket, .ready = on_ready};
    error = fcntl(socket, F_SETFL, O_NONBLOCK) == 0 ? 0 : -errno;
    if (!error)
        error = loop->watch(loop->context, &new->watch, EVENT_READ);
    if (error) {
        free(new);
        return error;
    }
    *client = new;
    return 0;
}

void opener_client_free(struct opener_client *client)
{
    if (!client)
        return;
    client->loop.unwatch(client->loop.context, &client->watch);
    client->is_lost = true;
    while (client->asked.count > 0)
        fail_call(client->asked.items[0], -ENOTCONN);
    while (client->line)
        free_turn(client, leave_line(client));
    client->loop.clear_timeout(client->loop.context, &client->timeout);
    close(client->watch.fd);
    idvec_free(&client->asked);
    idvec_free(&client->turns);
    free(client);
}

struct opener_request *opener_prepare(struct opener_client *client, struct opener_call *call,
                                      enum opener_op op)
{
    *call = (struct opener_call){.client = client, .passed_fd = -1, .owner = OPENER_AT_ONCE};
    call->request = malloc(sizeof *call->request);
    if (!call->request)
        return NULL;
    memset(call->request, 0, offsetof(struct opener_request, names));
    call->request->op = op;
    return call->request;
}

/* Sends at once if no other request waits. After an error the loop tries again, so that opener_ask
 * itself never calls `done`. */
static void send_now(struct opener_client *client, const struct opener_call *call)
{
    bool is_alone =
        client->line == call->turn && client->line->first == call && !client->line->next;

    if (is_alone && send_next(client) != 0)
        set_events(client);
}

int opener_ask(struct opener_call *call)
{
    struct opener_client *client = call->client;
    int error = client->is_lost ? -ENOTCONN : 0, passed_fd = call->passed_fd;

    call->passed_fd = -1;
    call->id = client->next_id++;
    call->request->id = call->id;
    if (!error && passed_fd >= 0) {
        call->passed_fd = fcntl(passed_fd, F_DUPFD_CLOEXEC, 0);
        error = call->passed_fd < 0 ? -errno : 0;
    }
    struct opener_turn *turn = error ? NULL : find_turn(client, call->owner);
    if (!error)
        error = turn ? idvec_append(&client->asked, call) : -ENOMEM;
    if (error) {
        if (turn && !turn->first && !turn->is_in_line)
            free_turn(client, turn);
        take_out(call);
        call->id = 0;
        return error;
    }
    append_call(turn, call);
    stand_in_line(client, turn);
    call->end_ms = clock_now_ms() + OPENER_TIMEOUT_MS * hook_number("GMSFS_TRITON_PATIENCE", 1);
    if (client->asked.count == 1)
        client->loop.set_timeout(client->loop.context, &client->timeout, call->end_ms);
    send_now(client, call);
    return 0;
}

bool opener_cancel(struct opener_call *call)
{
    bool is_sent = call->id == 0 || !call->turn;

    if (call->id != 0)
        forget_call(call);
    return !is_sent;
}

static void on_forgotten(struct opener_call *call, const struct opener_reply *reply, const int *fds,
                         size_t fd_count, int error)
{
    (void)reply;
    (void)fds;
    (void)fd_count;
    (void)error;
    free(call);
}

void opener_forget(struct opener_client *client, uint64_t connection)
{
    struct opener_call *call = malloc(sizeof *call);
    struct opener_request *request = call ? opener_prepare(client, call, OPENER_FORGET) : NULL;

    if (!request) {
        free(call);
        return;
    }
    request->connection = connection;
    call->done = on_forgotten;
    if (opener_ask(call))
        free(call);
}
