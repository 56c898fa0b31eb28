/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that speaks gRPC: HTTP/2 by nghttp2, each call a stream. Nothing is read while the
 * client does not read its answers, so its streams bound the memory that it can make us use.
 */
#include "triton/grpc_internal.h"
#include "triton/wire_http.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define READ_BYTES         16384u
#define READS_PER_TURN     8
#define MAX_STREAMS        100u
#define MAX_HEADER_BYTES   16384u /* of a request, as HTTP/2 counts them: 32 more for each field */
#define MAX_BLOCK_BYTES    65536u /* of any header block; a longer one ends the connection */
#define MAX_SETTINGS       16u    /* in a SETTINGS frame */
#define FIELD_EXTRA_BYTES  32u
#define STREAM_WINDOW      (1 << 20)
#define CONNECTION_WINDOW  (4 << 20)
#define MAX_PATH_BYTES     256u  /* longer than every known path */
#define MAX_CONTROL_FRAMES 1000u /* of ours that the client has not read */
/* A client may cancel calls, or make us reset them by an error; a client that does little else has
 * to leave. */
#define RESETS_AT_ONCE    200u
#define RESETS_PER_SECOND 20u

static struct grpc_connection *grpc_of(struct connection *connection)
{
    return (struct grpc_connection *)connection;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_connection *grpc = context;

    grpc->block_bytes = 0;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct stream *stream = grpc_stream_new(grpc, frame->hd.stream_id);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (grpc_stream_hold(stream, GRPC_STREAM_BYTES) != 0) {
        grpc_stream_free(stream);
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    nghttp2_session_set_stream_user_data(session, frame->hd.stream_id, stream);
    return 0;
}

/* Copies at most `max` bytes: a value that is too long is invalid, and so is its beginning. */
static char *keep(const uint8_t *value, size_t bytes, size_t max)
{
    return strndup((const char *)value, bytes < max ? bytes : max);
}

/* Counts a decoded field, and stops at the bound: a few bytes may name a field of the compression
 * table that is thousands long. Returns false at the bound. */
static bool count_field(struct grpc_connection *grpc, size_t name_bytes, size_t value_bytes)
{
    size_t bytes = name_bytes + value_bytes + FIELD_EXTRA_BYTES;

    grpc->block_bytes += bytes;
    return grpc->block_bytes <= MAX_BLOCK_BYTES && wire_frames_decode(&grpc->frames, bytes);
}

/* Ignores a field that HTTP/2 forbids, but counts it. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                             const uint8_t *name, size_t name_bytes, const uint8_t *value,
                             size_t value_bytes, uint8_t flags, void *context)
{
    (void)session;
    (void)frame;
    (void)name;
    (void)value;
    (void)flags;
    return count_field(context, name_bytes, value_bytes) ? 0 : NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                     void *context)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    struct wire_text key = {(const char *)name, name_bytes},
                     text = {(const char *)value, value_bytes};

    struct grpc_connection *grpc = context;

    (void)flags;
    if (!count_field(grpc, name_bytes, value_bytes))
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    if (!stream || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    if (grpc->block_bytes > MAX_HEADER_BYTES) {
        stream->is_over_limit = true;
        return 0;
    }
    if (wire_text_is(key, ":path") && !stream->path)
        stream->path = keep(value, value_bytes, MAX_PATH_BYTES);
    else if (wire_text_is(key, "gmsfs-session") && !stream->session)
        stream->session = keep(value, value_bytes, OPENER_TOKEN_BYTES + 1);
    else if (wire_text_is(key, ":authority") || wire_text_is(key, "host"))
        stream->is_malformed |= !wire_http_is_authority(text);
    else if (wire_text_is(key, ":method"))
        stream->is_post = wire_text_is(text, "POST");
    else if (wire_text_is(key, "content-type"))
        stream->is_grpc = wire_text_cut_front(&text, "application/grpc");
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *bytes,
                   size_t size, void *context)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);
    char text[128];

    (void)flags;
    (void)context;
    if (!stream || stream->is_answered)
        return 0; /* dropped */
    if (stream->message.size + size > stream->message.limit_bytes) {
        snprintf(text, sizeof text,
                 "the request's message is larger than the %u bytes that are taken",
                 SERVER_MAX_MESSAGE);
        grpc_stream_refuse(stream, WIRE_EXHAUSTED, wire_text_of(text));
    } else if (grpc_stream_hold(stream, GRPC_STREAM_BYTES + 2 * (stream->message.size + size)) !=
               0) {
        grpc_stream_refuse(
            stream, WIRE_EXHAUSTED,
            WIRE_TEXT("the requests of this user take more memory than one user may have"));
    } else {
        wire_put(&stream->message, bytes, size);
        return 0;
    }
    wire_buffer_free(&stream->message);
    return 0;
}

/* Counts a reset in a bucket that empties over time. Returns true if it was one too many. */
static bool is_reset_too_often(struct grpc_connection *grpc)
{
    uint64_t now_ms = server_now_ms(),
             drained = (now_ms - grpc->resets_ms) * RESETS_PER_SECOND / 1000;

    if (drained > 0) {
        grpc->resets -= drained < grpc->resets ? (unsigned)drained : grpc->resets;
        grpc->resets_ms = now_ms;
    }
    return ++grpc->resets > RESETS_AT_ONCE;
}

/* Counts a reset. If it was one too many, tells the client to leave and returns true. */
static bool count_reset(struct grpc_connection *grpc)
{
    if (!is_reset_too_often(grpc))
        return false;
    grpc->is_leaving = true;
    nghttp2_session_terminate_session(grpc->session, NGHTTP2_ENHANCE_YOUR_CALM);
    return true;
}

/* Returns false for our own resets that follow an answer or a lack of memory. */
static bool is_clients_fault(uint32_t code)
{
    return code != NGHTTP2_NO_ERROR && code != NGHTTP2_REFUSED_STREAM &&
           code != NGHTTP2_INTERNAL_ERROR;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_connection *grpc = context;
    struct stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

    if (frame->hd.type == NGHTTP2_RST_STREAM && count_reset(grpc))
        return 0;
    if (!stream)
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
        connection_show_token(&grpc->base, wire_text_of(stream->session));
        grpc_stream_open(stream);
    }
    if ((frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
        (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && stream->is_known && !stream->is_answered) {
        wire_frames_call(&grpc->frames);
        grpc_stream_serve(stream);
    }
    return 0;
}

/* Resets a stream that was answered before its request was complete, so that the client stops
 * sending. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct grpc_connection *grpc = context;

    if (frame->hd.type == NGHTTP2_RST_STREAM && is_clients_fault(frame->rst_stream.error_code))
        count_reset(grpc);
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || frame->hd.stream_id == 0 ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    struct stream *stream = nghttp2_session_get_stream_user_data(session, id);

    (void)code;
    (void)context;
    if (stream)
        grpc_stream_free(stream);
    return 0;
}

/* ---- the connection ------------------------------------------------------------------------ */

/* 0, -EPROTO, or -EDQUOT: the client causes more work than it may. */
static int take_input(struct grpc_connection *grpc, const uint8_t *bytes, size_t size)
{
    bool is_within = wire_frames_take(&grpc->frames, bytes, size, server_now_ms());
    ssize_t taken = is_within ? nghttp2_session_mem_recv(grpc->session, bytes, size) : 0;

    if (!is_within || taken == NGHTTP2_ERR_CALLBACK_FAILURE || taken == NGHTTP2_ERR_FLOODED) {
        nghttp2_session_terminate_session(grpc->session, NGHTTP2_ENHANCE_YOUR_CALM);
        return -EDQUOT;
    }
    return taken < 0 ? -EPROTO : 0;
}

static void grpc_ready(struct connection *connection, uint32_t events)
{
    struct grpc_connection *grpc = grpc_of(connection);
    uint8_t bytes[READ_BYTES];
    int error = 0;

    if (grpc->has_ended && (events & EVENT_READ)) { /* the client neither reads nor sends */
        connection_end(connection);
        return;
    }
    for (int i = 0; i < READS_PER_TURN && (events & EVENT_READ) && !error && !grpc->has_ended &&
                    grpc->output_bytes == 0;
         i++) {
        size_t got;
        error = connection_receive(connection, bytes, sizeof bytes, &got);
        if (!error && got == 0)
            grpc->has_ended = true;
        if (!error)
            error = take_input(grpc, bytes, got);
        if (!error && grpc_send_output(grpc) == -EPROTO)
            error = -EPROTO;
        if (got < sizeof bytes)
            break;
    }
    if (error && error != -EAGAIN) {
        grpc_send_output(grpc); /* the reason, if it can be sent */
        connection_end(connection);
        return;
    }
    grpc_flush(grpc);
}

static void grpc_expired(struct connection *connection)
{
    struct grpc_connection *grpc = grpc_of(connection);

    nghttp2_session_terminate_session(grpc->session, NGHTTP2_NO_ERROR);
    if (grpc->output_bytes == 0)
        grpc_send_output(grpc);
    connection_end(connection);
}

static void grpc_stop(struct connection *connection)
{
    struct grpc_connection *grpc = grpc_of(connection);

    nghttp2_submit_goaway(grpc->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(grpc->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    grpc_flush(grpc);
}

static bool grpc_free(struct connection *connection)
{
    struct grpc_connection *grpc = grpc_of(connection);

    while (grpc->streams)
        grpc_stream_free(grpc->streams);
    if (grpc->left)
        return false;
    nghttp2_session_del(grpc->session);
    return true;
}

static int new_session(struct grpc_connection *grpc)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    int error = -ENOMEM;

    if (nghttp2_session_callbacks_new(&callbacks) != 0)
        return -ENOMEM;
    if (nghttp2_option_new(&option) != 0)
        goto out;
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    nghttp2_option_set_max_outbound_ack(option, MAX_CONTROL_FRAMES);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_settings(option, MAX_SETTINGS);
    if (nghttp2_session_server_new2(&grpc->session, callbacks, grpc, option) == 0)
        error = 0;
    nghttp2_option_del(option);
out:
    nghttp2_session_callbacks_del(callbacks);
    return error;
}

int grpc_new(struct connection **connection)
{
    static const struct connection_calls calls = {
        .ready = grpc_ready, .expired = grpc_expired, .stop = grpc_stop, .free = grpc_free};
    struct grpc_connection *grpc = calloc(1, sizeof *grpc);
    int error = grpc ? new_session(grpc) : -ENOMEM;

    if (error) {
        free(grpc);
        return error;
    }
    grpc->base.calls = &calls;
    *connection = &grpc->base;
    return 0;
}

int grpc_begin(struct connection *connection)
{
    static const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, MAX_STREAMS},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW}};
    struct grpc_connection *grpc = grpc_of(connection);

    grpc->resets_ms = server_now_ms();
    wire_frames_begin(&grpc->frames, grpc->resets_ms);
    if (nghttp2_submit_settings(grpc->session, NGHTTP2_FLAG_NONE, settings,
                                sizeof settings / sizeof *settings) != 0 ||
        nghttp2_session_set_local_window_size(grpc->session, NGHTTP2_FLAG_NONE, 0,
                                              CONNECTION_WINDOW) != 0)
        return -ENOMEM;
    grpc_flush(grpc);
    return 0;
}
