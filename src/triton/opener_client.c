/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/opener_client.h"

#include "base/idvec.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define REPLIES_PER_TURN 64

struct opener_client {
    struct event_watch watch;
    struct event_loop loop;
    struct opener_events events;
    struct idvec asked; /* of struct opener_call */
    uint64_t next_id;
    struct opener_call *waiting, **waiting_end; /* not sent yet, in order */
    bool is_lost;
    struct opener_reply reply;
};

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void set_events(struct opener_client *client)
{
    client->loop.watch(client->loop.context, &client->watch,
                       EVENT_READ | (client->waiting ? EVENT_WRITE : 0));
}

/* Its request is sent, or never will be. */
static void take_out(struct opener_call *call)
{
    if (call->link) {
        *call->link = call->next;
        if (call->next)
            call->next->link = call->link;
        else
            call->client->waiting_end = call->link;
        call->link = NULL;
    }
    free(call->request);
    call->request = NULL;
    if (call->passed_fd >= 0)
        close(call->passed_fd);
    call->passed_fd = -1;
}

static void forget_call(struct opener_call *call)
{
    struct opener_client *client = call->client;

    take_out(call);
    client->loop.clear_timeout(client->loop.context, &call->timeout);
    idvec_remove(&client->asked, call->id);
    call->id = 0;
}

static void fail_call(struct opener_call *call, int error)
{
    forget_call(call);
    call->done(call, NULL, NULL, 0, error);
}

static void on_timeout(struct event_timeout *timeout)
{
    struct opener_call *call =
        (struct opener_call *)((char *)timeout - offsetof(struct opener_call, timeout));

    fail_call(call, -ETIMEDOUT);
}

static void lose(struct opener_client *client, int error)
{
    client->is_lost = true;
    client->loop.unwatch(client->loop.context, &client->watch);
    while (client->asked.count > 0)
        fail_call(client->asked.items[0], -ENOTCONN);
    client->events.on_lost(client->events.context, error);
}

static void send_waiting(struct opener_client *client)
{
    int error = 0;

    while (client->waiting && !error) {
        struct opener_call *call = client->waiting;
        error = opener_send(client->watch.fd, call->request,
                            OPENER_REQUEST_BYTES(call->request->name_count), &call->passed_fd,
                            call->passed_fd >= 0);
        if (!error)
            take_out(call);
    }
    if (error && error != -EAGAIN)
        lose(client, error);
    else
        set_events(client);
}

static void give_reply(struct opener_client *client, const int *fds, size_t fd_count)
{
    const struct opener_reply *reply = &client->reply;
    struct opener_call *call;

    if (reply->id == OPENER_STOP) {
        client->events.on_stop(client->events.context);
        return;
    }
    if (reply->id == OPENER_ENDED) {
        client->events.on_ended(client->events.context, reply->region);
        return;
    }
    call = idvec_find(&client->asked, reply->id);
    if (!call) {
        for (size_t i = 0; i < fd_count; i++)
            close(fds[i]);
        return;
    }
    if (!reply->more)
        forget_call(call);
    call->done(call, reply, fds, fd_count, 0);
}

static void on_ready(struct event_watch *watch, uint32_t events)
{
    struct opener_client *client =
        (struct opener_client *)((char *)watch - offsetof(struct opener_client, watch));
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
    int error;

    if (!new)
        return -ENOMEM;
    new->loop = *loop;
    new->events = *events;
    new->next_id = 1;
    new->waiting_end = &new->waiting;
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
    close(client->watch.fd);
    idvec_free(&client->asked);
    free(client);
}

struct opener_request *opener_prepare(struct opener_client *client, struct opener_call *call,
                                      enum opener_op op)
{
    *call = (struct opener_call){.client = client, .passed_fd = -1, .timeout.expired = on_timeout};
    call->request = malloc(sizeof *call->request);
    if (!call->request)
        return NULL;
    memset(call->request, 0, offsetof(struct opener_request, names));
    call->request->op = op;
    return call->request;
}

/* At once where nothing waits. What goes wrong then is found by the loop when it tries again, so
 * that nobody is told of a failure while he asks. */
static void send_now(struct opener_call *call)
{
    struct opener_client *client = call->client;

    if (client->waiting != call)
        return;
    if (opener_send(client->watch.fd, call->request,
                    OPENER_REQUEST_BYTES(call->request->name_count), &call->passed_fd,
                    call->passed_fd >= 0) == 0)
        take_out(call);
    else
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
    if (!error)
        error = idvec_append(&client->asked, call);
    if (error) {
        take_out(call);
        call->id = 0;
        return error;
    }
    call->next = NULL;
    call->link = client->waiting_end;
    *client->waiting_end = call;
    client->waiting_end = &call->next;
    client->loop.set_timeout(client->loop.context, &call->timeout, now_ms() + OPENER_TIMEOUT_MS);
    send_now(call);
    return 0;
}

void opener_cancel(struct opener_call *call)
{
    if (call->id != 0)
        forget_call(call);
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
