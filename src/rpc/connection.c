/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One request at a time: the next frame is served when the answer to the last one is sent. Requests
 * that a client sends ahead wait in its socket, except for frames that fit into a small buffer; a
 * client that does not read only harms itself.
 */
#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/timeline.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct rpc_connection *of_watch(struct event_watch *watch)
{
    return CONTAINER_OF(watch, struct rpc_connection, watch);
}

/* ---- lists: one connection makes a part of its list, then the next one has its turn --------- */

static void leave_listings(struct rpc_connection *connection)
{
    if (!connection->link_listing)
        return;
    *connection->link_listing = connection->next_listing;
    if (connection->next_listing)
        connection->next_listing->link_listing = connection->link_listing;
    connection->link_listing = NULL;
}

static void join_listings(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;
    struct rpc_connection **link = &rpc->listing;

    if (connection->link_listing)
        return;
    while (*link)
        link = &(*link)->next_listing;
    *link = connection;
    connection->link_listing = link;
    connection->next_listing = NULL;
    rpc->host.loop.set_timeout(rpc->host.loop.context, &rpc->lists, 0);
}

void rpc_serve_listing(struct rpc *rpc)
{
    struct rpc_connection *connection = rpc->listing;

    if (!connection)
        return;
    leave_listings(connection);
    if (rpc_advance_listing(connection))
        rpc_advance(connection);
    else
        join_listings(connection);
    if (rpc->listing)
        rpc->host.loop.set_timeout(rpc->host.loop.context, &rpc->lists, 0);
}

/* ---- its end --------------------------------------------------------------------------------- */

static void free_connection(struct rpc_connection *connection)
{
    close(connection->watch.fd);
    free(connection);
}

void rpc_connection_free(struct rpc_connection *connection)
{
    struct rpc *rpc = connection->rpc;

    peer_free(&connection->peer);
    if (connection->kept)
        kept_give(rpc->memory, connection->kept);
    if (connection->is_unread) {
        rpc_lower_charge(connection);
        connection->next_unread = rpc->unread;
        rpc->unread = connection;
    } else {
        free_connection(connection);
    }
}

void rpc_free_unread(struct rpc *rpc, bool are_all)
{
    struct rpc_connection **link = &rpc->unread;

    while (*link) {
        struct rpc_connection *connection = *link;

        if (are_all || !rpc_has_unread(connection)) {
            *link = connection->next_unread;
            rpc_give_place(connection);
            free_connection(connection);
        } else {
            link = &connection->next_unread;
        }
    }
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
    connection->is_dispatching = true; /* answers below free nothing */
    idvec_remove(&rpc->connections, connection->id);
    rpc->host.loop.unwatch(rpc->host.loop.context, &connection->watch);
    rpc->host.loop.clear_timeout(rpc->host.loop.context, &connection->pause);
    rpc->host.unhold(rpc->host.context, &connection->held);
    shutdown(connection->watch.fd, SHUT_RDWR); /* the keeper's copy may live on for a moment */
    atomic_store(&connection->kept->id, 0);    /* no next worker continues it */
    if (connection->is_kept)
        rpc->host.drop(rpc->host.context, connection->id);
    leave_listings(connection);
    rpc_free_listing(connection);
    message_buffer_free(&connection->output);
    rpc_pass(connection, -1, false);
    connection->is_unread = rpc_has_unread(connection);
    if (!connection->is_unread)
        rpc_give_place(connection);
    if (connection->finish && connection->request.alloc)
        service_interrupt(rpc->service, &connection->request);
    if (connection->file)
        service_close(rpc->service, connection->file);
    connection->file = 0;
    connection->is_dispatching = is_dispatching;
    if (!is_busy(connection) && !is_dispatching)
        rpc_connection_free(connection);
}

void rpc_on_pause_over(struct event_timeout *timeout)
{
    struct rpc_connection *connection = CONTAINER_OF(timeout, struct rpc_connection, pause);

    connection->is_paused = false;
    rpc_advance(connection);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void finish_request(struct rpc_connection *connection, int error,
                           const struct service_answer *answer)
{
    rpc_finish *finish = connection->finish;

    connection->finish = NULL;
    if (connection->is_gone)
        return;
    finish(connection, error, answer);
    rpc_note(connection);
}

static void advance_or_free(struct rpc_connection *connection)
{
    if (!connection->is_gone)
        rpc_advance(connection);
    else if (!is_busy(connection))
        rpc_connection_free(connection);
}

void rpc_on_done(struct service_request *request, int error, const struct service_answer *answer)
{
    struct rpc_connection *connection = CONTAINER_OF(request, struct rpc_connection, request);

    bool is_nested = connection->is_dispatching;

    connection->is_dispatching = true;
    finish_request(connection, error, answer);
    connection->is_dispatching = is_nested;
    if (!is_nested) /* otherwise the caller continues */
        advance_or_free(connection);
}

static void dispatch(struct rpc_connection *connection)
{
    uint64_t now_us = clock_now_us(), span_us = timeline_begin();
    connection->asked_us =
        kept_get_asked_us(connection->kept, kept_get_input(connection->kept)->consumed + 1, now_us);
    PROBE_REQUEST(connection->id, PROBE_GMS, connection->asked.type, connection->caller.uid);
    if (log_is_debug())
        rpc_trace_asked(connection);
    if (connection->phase == RPC_HELLO)
        rpc_hello(connection);
    else if (connection->protocol == MESSAGE_V0)
        rpc_serve_v0(connection);
    else
        rpc_serve_v1(connection);
    rpc_count_request(connection, now_us);
    timeline_end("loop", "GMS", span_us, NULL);
}

static void decode(struct job *job)
{
    struct rpc_connection *connection = CONTAINER_OF(job, struct rpc_connection, decoding);

    connection->decode_error =
        message_decode(connection->protocol, connection->input + MESSAGE_HEADER_BYTES,
                       connection->frame_bytes - MESSAGE_HEADER_BYTES, &connection->asked);
}

static void on_decoded(struct job *job)
{
    struct rpc_connection *connection = CONTAINER_OF(job, struct rpc_connection, decoding);

    connection->is_decoding = false;
    advance_or_free(connection);
}

/* Decodes the frame, a long one on a helper thread, because it may take long. 0: it waits; 1:
 * decoded; or the error that ends the connection. */
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

/* Returns 0 if nothing can be done now; 1: continue; or the error that ends the connection. */
static int serve_whole_frame(struct rpc_connection *connection)
{
    int error = decode_frame(connection);

    if (error <= 0)
        return error;
    if (rpc_has_misplaced_descriptor(connection))
        return -EPROTO;
    connection->is_dispatching = true;
    connection->is_served = true;
    dispatch(connection);
    rpc_note(connection);
    connection->is_dispatching = false;
    if (connection->is_paused || connection->awaits_reader)
        return 0;
    connection->pause_ms = 0;
    return 1;
}

/* Returns true if the next request waits until the client reads. */
static bool await_reader(struct rpc_connection *connection)
{
    connection->awaits_reader = rpc_count_unread(connection) >= RPC_UNREAD_BYTES;
    return connection->awaits_reader;
}

/* Serves the frame at the front, if it is whole and little is unread. Returns as
 * serve_whole_frame. */
static int serve_frame(struct rpc_connection *connection)
{
    const struct rpc_host *host = &connection->rpc->host;
    int error = 0;

    if (connection->frame_bytes == 0) {
        size_t bytes;

        error = rpc_find_frame(connection, &bytes);
        if (error < 0)
            return error;
        if (bytes == 0 || connection->input_bytes < bytes)
            return connection->has_ended ? -ECONNRESET : 0;
        connection->frame_bytes = bytes;
        connection->decode_error = 1;
    }
    if (await_reader(connection))
        return 0;
    uint64_t frame = kept_get_input(connection->kept)->consumed + 1;
    uint64_t former = host->enter(host->context, connection->id, frame);
    error = serve_whole_frame(connection);
    host->leave(host->context, former);
    return error;
}

/* Continues as far as possible without waiting. 1: more can be done; 0: it waits for the socket or
 * the service. */
static int advance_once(struct rpc_connection *connection)
{
    if (connection->note_error)
        return connection->note_error;
    if (connection->is_paused)
        return 0;
    if (connection->listing)
        return 0; /* until its list is complete */
    int error = rpc_send_output(connection);
    if (error < 0)
        return error == -EAGAIN ? 0 : error;
    if (connection->phase == RPC_CLOSING)
        return connection->finish ? 0 : -ECONNRESET;
    if (connection->finish || connection->is_decoding)
        return connection->has_ended ? -ECONNRESET : 0;
    if (connection->is_served && connection->charged_bytes > RPC_BASE_BYTES &&
        await_reader(connection))
        return 0; /* a long answer counts until then */
    if (connection->is_served)
        rpc_consume_frame(connection);
    return serve_frame(connection);
}

/* Returns true if more bytes may be read. False while the buffer is full; that the client has gone
 * is noticed all the same. */
static bool may_read(const struct rpc_connection *connection)
{
    return !connection->has_ended && connection->phase != RPC_CLOSING && !connection->is_decoding &&
           !connection->is_paused && !connection->awaits_reader && !connection->listing &&
           !(connection->finish && connection->input_bytes == connection->input_room);
}

static const char *explain(int error)
{
    switch (error) {
    case -EINVAL:
    case -EMSGSIZE:
    case -EPROTO:
        return "it sent an invalid request";
    case -EIO:
        return "workers died of its request";
    case -ENODATA:
        return "the rest of its answer is lost with the worker that has ended";
    default:
        return strerror(-error);
    }
}

void rpc_warn(const struct rpc_connection *connection, int error)
{
    const struct service_caller *caller = &connection->caller;

    if (error != -ECONNRESET && error != -EPIPE && rpc_may_warn(connection->rpc))
        log_warning("%s: GMS client %llu (uid %u) at %s: %s; its connection is dropped",
                    connection->rpc->options.mountpoint,
                    (unsigned long long)(caller->process_count ? caller->processes[0].pid : 0),
                    caller->uid, rpc_domain_name(connection->domain), explain(error));
}

/* Returns true if all requests are answered, and no byte of the next one is here. */
static bool is_at_rest(const struct rpc_connection *connection)
{
    return may_read(connection) && !connection->finish && connection->input_bytes == 0 &&
           connection->output.size_bytes == 0;
}

/* As advance_once, but reads the next request instead of waiting for an event. */
static int advance_reading(struct rpc_connection *connection)
{
    int more = advance_once(connection), error;

    if (more != 0 || connection->is_gone || connection->reads_left == 0 || !is_at_rest(connection))
        return more;
    connection->reads_left--;
    error = rpc_receive(connection);
    return error == -EAGAIN ? 0 : error < 0 ? error : 1;
}

/* Continues until the turn ends. */
static void advance_in_turn(struct rpc_connection *connection)
{
    const struct event_loop *loop = &connection->rpc->host.loop;
    uint32_t events = 0;
    int more = 1;

    while (connection->frames_left > 0 && more > 0) {
        connection->frames_left--;
        more = advance_reading(connection);
        if (connection->is_gone) {
            if (!is_busy(connection))
                rpc_connection_free(connection);
            return;
        }
    }
    if (connection->held.link)
        return; /* until the end of this step */
    if (connection->listing)
        join_listings(connection);
    /* If more can be done, the writable socket brings the connection back after the others'
     * turns. */
    if (connection->is_paused || connection->listing)
        events = 0;
    else if (connection->awaits_reader)
        events = EVENT_WRITE | EVENT_TAKEN;
    else if (more > 0 || connection->output.size_bytes > 0)
        events = EVENT_WRITE;
    else if (may_read(connection))
        events = EVENT_READ;
    if (connection->finish)
        events |= EVENT_HUP; /* despite bytes that it sent ahead */
    if (more >= 0)
        more = loop->watch(loop->context, &connection->watch, events);
    if (more < 0) {
        rpc_warn(connection, more);
        rpc_connection_end(connection);
    }
}

void rpc_advance(struct rpc_connection *connection)
{
    connection->awaits_reader = false;
    connection->frames_left = RPC_FRAMES_PER_TURN;
    connection->reads_left = RPC_READS_PER_TURN;
    advance_in_turn(connection);
}

void rpc_on_released(struct event_held *held)
{
    struct rpc_connection *connection = CONTAINER_OF(held, struct rpc_connection, held);

    advance_in_turn(connection);
}

void rpc_connection_check(struct rpc_connection *connection)
{
    bool is_stuck = connection->charged_bytes > RPC_BASE_BYTES && !connection->finish &&
                    !connection->is_decoding && connection->frame_bytes == 0;

    is_stuck |= connection->phase == RPC_CLOSING;
    if (!is_stuck || clock_now_us() - connection->moved_us < RPC_STALL_MS * 1000ull)
        return;
    rpc_warn(connection, -ETIMEDOUT);
    rpc_connection_end(connection);
}

void rpc_on_ready(struct event_watch *watch, uint32_t events)
{
    struct rpc_connection *connection = of_watch(watch);
    bool reads = may_read(connection);
    int error = reads ? rpc_receive(connection) : 0;

    if ((!reads && events & EVENT_READ) || (events & EVENT_HUP && connection->finish))
        error = -ECONNRESET;
    if (error < 0 && error != -EAGAIN) {
        rpc_warn(connection, error);
        rpc_connection_end(connection);
        return;
    }
    rpc_advance(connection);
}
