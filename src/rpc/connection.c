/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request at a time: the next frame is looked at when the answer to the last one is sent. What
 * a client sends ahead waits in its socket, apart from what fits into a small buffer; what it does
 * not read costs itself alone.
 */
#include "base/log.h"
#include "rpc/rpc_internal.h"
#include "service/bounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rpc_connection *of_watch(struct event_watch *watch)
{
    return (struct rpc_connection *)((char *)watch - offsetof(struct rpc_connection, watch));
}

/* ---- what it costs -----------------------------------------------------------------------------
 */

int rpc_charge(struct rpc_connection *connection, uint64_t bytes)
{
    struct service *service = connection->rpc->service;
    uint32_t uid = connection->caller.uid;
    int error = 0;

    if (bytes > connection->charged_bytes)
        error =
            service_take(service, SERVICE_BOUND_FRAMES, 0, uid, bytes - connection->charged_bytes);
    else
        service_give(service, SERVICE_BOUND_FRAMES, uid, connection->charged_bytes - bytes);
    if (error == 0)
        connection->charged_bytes = bytes;
    return error;
}

/* ---- its end -----------------------------------------------------------------------------------
 */

static void free_connection(struct rpc_connection *connection)
{
    close(connection->watch.fd);
    free(connection->groups);
    free(connection->input);
    free(connection);
}

static bool is_busy(const struct rpc_connection *connection)
{
    return connection->finish || connection->is_decoding || connection->keeping.fd >= 0;
}

void rpc_connection_end(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    bool is_dispatching = connection->is_dispatching;

    if (connection->is_gone)
        return;
    connection->is_gone = true;
    connection->is_dispatching = true; /* what is answered below frees nothing */
    idvec_remove(&rpc->connections, connection->id);
    rpc->host.loop.unwatch(rpc->host.loop.context, &connection->watch);
    shutdown(connection->watch.fd, SHUT_RDWR); /* where the keeper's copy lives on for a moment */
    if (connection->is_kept)
        rpc->host.drop(rpc->host.context, connection->id);
    rpc_free_listing(connection);
    message_buffer_free(&connection->output);
    rpc_pass(connection, -1, false);
    rpc_charge(connection, 0);
    service_give(rpc->service, SERVICE_BOUND_CONNECTIONS, connection->caller.uid, 1);
    if (connection->finish && connection->request.alloc)
        service_interrupt(rpc->service, &connection->request);
    if (connection->file)
        service_close(rpc->service, connection->file);
    connection->file = 0;
    connection->is_dispatching = is_dispatching;
    if (!is_busy(connection) && !is_dispatching)
        free_connection(connection);
}

/* ---- bytes out ---------------------------------------------------------------------------------
 */

static ssize_t send_some(struct rpc_connection *connection)
{
    const struct message_buffer *output = &connection->output;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {.iov_base = output->bytes + connection->sent_bytes,
                         .iov_len = output->size_bytes - connection->sent_bytes};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};

    if (connection->passed_fd >= 0) {
        head.msg_control = &control;
        head.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&head);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &connection->passed_fd, sizeof(int));
    }
    return sendmsg(connection->watch.fd, &head, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* 0: all is sent; -EAGAIN; else the client is gone. */
static int send_output(struct rpc_connection *connection)
{
    struct message_buffer *output = &connection->output;

    while (connection->sent_bytes < output->size_bytes) {
        ssize_t sent = send_some(connection);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return errno == ENOBUFS || errno == ETOOMANYREFS ? -EAGAIN : -errno;
        rpc_pass(connection, -1, false);
        connection->sent_bytes += (size_t)sent;
    }
    connection->sent_bytes = 0;
    if (output->room_bytes > RPC_INPUT_BYTES)
        message_buffer_free(output);
    output->size_bytes = output->used_bytes = 0;
    return 0;
}

/* ---- bytes in ----------------------------------------------------------------------------------
 */

/* What the frame at the front takes; 0: that cannot be told yet. -EINVAL, -EMSGSIZE */
static int find_frame(const struct rpc_connection *connection, size_t *bytes)
{
    size_t payload_bytes = 0;
    int error;

    *bytes = 0;
    if (connection->input_bytes < MESSAGE_HEADER_BYTES)
        return 0;
    error = message_payload_bytes(connection->protocol, connection->input, &payload_bytes);
    if (error == 0)
        *bytes = MESSAGE_HEADER_BYTES + payload_bytes;
    return error;
}

/* Grows with what has come, not with what a header claims. */
static int make_room(struct rpc_connection *connection)
{
    size_t room = connection->input_room ? connection->input_room : RPC_INPUT_BYTES, frame_bytes;
    uint8_t *input;
    int error = find_frame(connection, &frame_bytes);

    if (error < 0)
        return error;
    if (connection->input && (connection->input_bytes < room || frame_bytes <= room))
        return 0;
    if (connection->input)
        room = 2 * room < frame_bytes ? 2 * room : frame_bytes;
    if (room > RPC_INPUT_BYTES)
        error = rpc_charge(connection, room);
    if (error < 0)
        return error;
    input = realloc(connection->input, room);
    if (!input)
        return -ENOMEM;
    connection->input = input;
    connection->input_room = room;
    return 0;
}

/* V0 ignores descriptors that clients send. In V1 one may come with the wish for a process fence,
 * which is refused in words; before that is decoded, none is known to be that one. */
static bool is_misplaced_descriptor(const struct rpc_connection *connection)
{
    const struct message *asked = &connection->asked;

    return connection->brought_descriptor && connection->protocol == MESSAGE_V1 &&
           !(connection->phase == RPC_HELLO && asked->type == MESSAGE_HANDSHAKE_REQUEST &&
             asked->process_fence);
}

/* 0, -EAGAIN, or why the connection ends. */
static int receive(struct rpc_connection *connection)
{
    size_t room;
    ssize_t size;
    int error = make_room(connection);

    if (error < 0)
        return error;
    room = connection->input_room - connection->input_bytes;
    if (room == 0)
        return -EAGAIN;
    size = rpc_read(connection, connection->input + connection->input_bytes, room);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -errno;
    if (is_misplaced_descriptor(connection) && connection->phase != RPC_HELLO)
        return -EPROTO;
    connection->has_ended = size == 0;
    connection->input_bytes += (size_t)size;
    return 0;
}

static void consume_frame(struct rpc_connection *connection)
{
    rpc_consume_senders(connection);
    connection->input_bytes -= connection->frame_bytes;
    memmove(connection->input, connection->input + connection->frame_bytes,
            connection->input_bytes);
    connection->frame_bytes = 0;
    connection->is_served = false;
    if (connection->input_room > RPC_INPUT_BYTES && connection->input_bytes <= RPC_INPUT_BYTES) {
        uint8_t *smaller = realloc(connection->input, RPC_INPUT_BYTES);

        if (smaller) {
            connection->input = smaller;
            connection->input_room = RPC_INPUT_BYTES;
        }
    }
    if (connection->output.room_bytes <= RPC_INPUT_BYTES &&
        connection->input_room <= RPC_INPUT_BYTES)
        rpc_charge(connection, 0);
}

/* ---- requests ----------------------------------------------------------------------------------
 */

static void go_on(struct rpc_connection *connection);

static void finish_request(struct rpc_connection *connection, int error,
                           const struct service_answer *answer)
{
    rpc_finish *finish = connection->finish;

    connection->finish = NULL;
    if (!connection->is_gone)
        finish(connection, error, answer);
}

static void on_done(struct service_request *request, int error, const struct service_answer *answer)
{
    struct rpc_connection *connection =
        (struct rpc_connection *)((char *)request - offsetof(struct rpc_connection, request));

    finish_request(connection, error, answer);
    if (connection->is_dispatching)
        return; /* who called goes on */
    if (!connection->is_gone)
        go_on(connection);
    else if (!is_busy(connection))
        free_connection(connection);
}

struct service_request *rpc_wait(struct rpc_connection *connection, rpc_finish *finish)
{
    connection->finish = finish;
    connection->request = (struct service_request){.done = on_done};
    return &connection->request;
}

static void dispatch(struct rpc_connection *connection)
{
    connection->asked_us = rpc_now_us();
    if (connection->phase == RPC_HELLO)
        rpc_hello(connection);
    else if (connection->protocol == MESSAGE_V0)
        rpc_serve_v0(connection);
    else
        rpc_serve_v1(connection);
}

static void decode(struct job *job)
{
    struct rpc_connection *connection =
        (struct rpc_connection *)((char *)job - offsetof(struct rpc_connection, decoding));

    connection->decode_error =
        message_decode(connection->protocol, connection->input + MESSAGE_HEADER_BYTES,
                       connection->frame_bytes - MESSAGE_HEADER_BYTES, &connection->asked);
}

static void on_decoded(struct job *job)
{
    struct rpc_connection *connection =
        (struct rpc_connection *)((char *)job - offsetof(struct rpc_connection, decoding));

    connection->is_decoding = false;
    if (!connection->is_gone)
        go_on(connection);
    else if (!is_busy(connection))
        free_connection(connection);
}

/* Of a long one on a helper thread: it may say a lot. 0: it waits; 1; or why the connection ends.
 */
static int decode_frame(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    int error = 0;

    if (connection->frame_bytes <= RPC_SHORT_BYTES) {
        decode(&connection->decoding);
    } else if (connection->decode_error > 0) {
        connection->decoding = (struct job){.run = decode, .done = on_decoded};
        error = rpc->host.submit(rpc->host.context, &connection->decoding);
        connection->is_decoding = error == 0;
        return error;
    }
    return connection->decode_error < 0 ? connection->decode_error : 1;
}

/* The frame at the front, if it is whole. 0: nothing is to be done now; 1; or why it ends. */
static int serve_frame(struct rpc_connection *connection)
{
    int error = 0;

    if (connection->frame_bytes == 0) {
        size_t bytes;

        error = find_frame(connection, &bytes);
        if (error < 0)
            return error;
        if (bytes == 0 || connection->input_bytes < bytes)
            return connection->has_ended ? -ECONNRESET : 0;
        connection->frame_bytes = bytes;
        connection->decode_error = 1;
    }
    error = decode_frame(connection);
    if (error <= 0)
        return error;
    if (is_misplaced_descriptor(connection))
        return -EPROTO;
    connection->is_dispatching = true;
    connection->is_served = true;
    dispatch(connection);
    connection->is_dispatching = false;
    return 1;
}

/* As far as it can go without waiting. 1: it would go on; 0: for the socket or the service. */
static int go_on_once(struct rpc_connection *connection)
{
    int error;

    if (connection->listing && !rpc_go_on_listing(connection))
        return 1;
    error = send_output(connection);
    if (error < 0)
        return error == -EAGAIN ? 0 : error;
    if (connection->phase == RPC_CLOSING)
        return connection->finish ? 0 : -ECONNRESET;
    if (connection->finish || connection->is_decoding)
        return connection->has_ended ? -ECONNRESET : 0;
    if (connection->is_served)
        consume_frame(connection);
    return serve_frame(connection);
}

/* While it is served nothing is read that the buffer does not take; 0: that the client is gone is
 * heard all the same. */
static bool may_read(const struct rpc_connection *connection)
{
    return !connection->has_ended && connection->phase != RPC_CLOSING && !connection->is_decoding &&
           !(connection->finish && connection->input_bytes == connection->input_room);
}

static void warn(const struct rpc_connection *connection, int error)
{
    const struct service_caller *caller = &connection->caller;

    if (error != -ECONNRESET && error != -EPIPE && rpc_may_warn(connection->rpc))
        log_warning("%s: GMS client %llu (uid %u) at %s: %s; its connection is dropped",
                    connection->rpc->options.mountpoint,
                    (unsigned long long)(caller->process_count ? caller->processes[0].pid : 0),
                    caller->uid, rpc_domain_name(connection->domain),
                    error == -EINVAL || error == -EMSGSIZE || error == -EPROTO
                        ? "what it sent is no request"
                        : strerror(-error));
}

static void go_on(struct rpc_connection *connection)
{
    const struct event_loop *loop = &connection->rpc->host.loop;
    uint32_t events = 0;
    int more = 1;

    for (unsigned i = 0; i < RPC_FRAMES_PER_TURN && more > 0; i++) {
        more = go_on_once(connection);
        if (connection->is_gone) {
            if (!is_busy(connection))
                free_connection(connection);
            return;
        }
        if (connection->listing)
            break;
    }
    /* There is more to do, and the socket takes it: so it comes round when others had their turn.
     */
    if (more > 0 || connection->output.size_bytes > 0)
        events = EVENT_WRITE;
    else if (may_read(connection))
        events = EVENT_READ;
    if (more >= 0)
        more = loop->watch(loop->context, &connection->watch, events);
    if (more < 0) {
        warn(connection, more);
        rpc_connection_end(connection);
    }
}

static void on_ready(struct event_watch *watch, uint32_t events)
{
    struct rpc_connection *connection = of_watch(watch);
    bool reads = may_read(connection);
    int error = reads ? receive(connection) : 0;

    if (!reads && events & EVENT_READ)
        error = -ECONNRESET;
    if (error < 0 && error != -EAGAIN) {
        warn(connection, error);
        rpc_connection_end(connection);
        return;
    }
    go_on(connection);
}

/* ---- its beginning -----------------------------------------------------------------------------
 */

static void on_kept(struct rpc_keeping *keeping, int error)
{
    struct rpc_connection *connection =
        (struct rpc_connection *)((char *)keeping - offsetof(struct rpc_connection, keeping));
    struct rpc *rpc = connection->rpc;

    keeping->fd = -1;
    if (connection->is_gone) {
        rpc->host.drop(rpc->host.context, connection->id);
        free_connection(connection);
        return;
    }
    connection->is_kept = true;
    connection->phase = RPC_HELLO;
    if (error < 0 || rpc->host.loop.watch(rpc->host.loop.context, &connection->watch, EVENT_READ))
        rpc_connection_end(connection);
}

static int start(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    int error = rpc_read_peer(connection);

    if (error == 0)
        error = service_take(rpc->service, SERVICE_BOUND_CONNECTIONS, 0, connection->caller.uid, 1);
    if (error < 0)
        return error;
    error = idvec_insert(&rpc->connections, connection);
    if (error == 0) {
        connection->keeping.fd = connection->watch.fd;
        error = rpc->host.keep(rpc->host.context, &connection->keeping);
        if (error < 0)
            idvec_remove(&rpc->connections, connection->id);
    }
    if (error < 0)
        service_give(rpc->service, SERVICE_BOUND_CONNECTIONS, connection->caller.uid, 1);
    return error;
}

int rpc_connection_new(struct rpc_listener *listener, int fd)
{
    struct rpc_connection *connection = calloc(1, sizeof *connection);
    int error;

    if (!connection) {
        close(fd);
        return -ENOMEM;
    }
    *connection = (struct rpc_connection){
        .id = listener->rpc->next_connection++,
        .watch = {.fd = fd, .ready = on_ready},
        .rpc = listener->rpc,
        .domain = listener->domain,
        .protocol = listener->protocol,
        .passed_fd = -1,
        .keeping = {.fd = -1, .done = on_kept},
    };
    connection->keeping.id = connection->id;
    error = start(connection);
    if (error < 0)
        free_connection(connection);
    return error;
}
