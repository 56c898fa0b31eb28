/* SPDX-License-Identifier: Apache-2.0 */
/* Calls: the request of a stream, and its answer. */
#include "triton/grpc_internal.h"

#include "base/container.h"
#include "triton/wire_grpc.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELD_STEP 4096u /* counted in advance, to ask once for many pieces */

/* ---- streams ------------------------------------------------------------------------------- */

int grpc_stream_hold(struct stream *stream, uint64_t bytes)
{
    struct connection *base = &stream->grpc->base;

    if (bytes <= stream->held_bytes)
        return 0;
    int error = connection_hold(base, base->held_bytes + (bytes - stream->held_bytes) + HELD_STEP);
    if (!error)
        stream->held_bytes = bytes + HELD_STEP;
    return error;
}

static void link_stream(struct stream *stream, struct stream **list)
{
    stream->next = *list;
    stream->link = list;
    if (stream->next)
        stream->next->link = &stream->next;
    *list = stream;
}

static void unlink_stream(struct stream *stream)
{
    *stream->link = stream->next;
    if (stream->next)
        stream->next->link = stream->link;
}

void grpc_stream_free(struct stream *stream)
{
    struct connection *base = &stream->grpc->base;

    unlink_stream(stream);
    if (!call_end(&stream->call)) {
        link_stream(stream, &stream->grpc->left);
        return;
    }
    if (!base->is_ended)
        connection_hold(base, base->held_bytes - stream->held_bytes);
    free(stream->path);
    free(stream->session);
    wire_buffer_free(&stream->message);
    wire_buffer_free(&stream->answer);
    free(stream);
}

struct stream *grpc_stream_new(struct grpc_connection *grpc, int32_t id)
{
    struct stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    stream->grpc = grpc;
    stream->id = id;
    stream->deadline_ms = server_deadline_ms(SERVER_REQUEST_MS);
    stream->message.limit_bytes = SERVER_MAX_MESSAGE + WIRE_GRPC_PREFIX_BYTES;
    stream->answer.limit_bytes = SERVER_MAX_ANSWER;
    link_stream(stream, &grpc->streams);
    return stream;
}

/* ---- answers ------------------------------------------------------------------------------- */

static void set_answered(struct stream *stream)
{
    stream->is_answered = true;
    stream->deadline_ms = server_deadline_ms(SERVER_UNREAD_MS);
}

static nghttp2_nv field(const char *name, const char *value, size_t value_bytes)
{
    return (nghttp2_nv){.name = (uint8_t *)name,
                        .value = (uint8_t *)value,
                        .namelen = strlen(name),
                        .valuelen = value_bytes};
}

void grpc_stream_refuse(struct stream *stream, enum wire_code code, struct wire_text text)
{
    char number[12];
    struct wire_buffer quoted = {.limit_bytes = 3 * WIRE_MAX_TEXT_BYTES};

    snprintf(number, sizeof number, "%d", (int)code);
    wire_put_quoted(&quoted, text);
    nghttp2_nv fields[] = {field(":status", "200", 3),
                           field("content-type", "application/grpc", 16),
                           field("grpc-status", number, strlen(number)),
                           field("grpc-message", (const char *)quoted.bytes, quoted.size),
                           field("grpc-accept-encoding", "identity", 8)};
    set_answered(stream);
    nghttp2_submit_response(stream->grpc->session, stream->id, fields,
                            sizeof fields / sizeof *fields, NULL);
    wire_buffer_free(&quoted);
}

static void answer_http(struct stream *stream, const char *status)
{
    nghttp2_nv fields[] = {field(":status", status, 3)};

    set_answered(stream);
    nghttp2_submit_response(stream->grpc->session, stream->id, fields, 1, NULL);
}

static ssize_t read_answer(nghttp2_session *session, int32_t id, uint8_t *to, size_t room,
                           uint32_t *flags, nghttp2_data_source *source, void *context)
{
    struct stream *stream = source->ptr;
    size_t bytes = stream->answer.size - stream->sent_bytes;
    nghttp2_nv ok = field("grpc-status", "0", 1);

    (void)context;
    if (bytes > room)
        bytes = room;
    memcpy(to, stream->answer.bytes + stream->sent_bytes, bytes);
    stream->sent_bytes += bytes;
    if (stream->sent_bytes < stream->answer.size)
        return (ssize_t)bytes;
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    if (nghttp2_submit_trailer(session, id, &ok, 1) != 0)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return (ssize_t)bytes;
}

static void answer_message(struct stream *stream)
{
    nghttp2_nv fields[] = {field(":status", "200", 3),
                           field("content-type", "application/grpc", 16)};
    nghttp2_data_provider provider = {.source.ptr = stream, .read_callback = read_answer};
    size_t bytes = stream->answer.size - WIRE_GRPC_PREFIX_BYTES;

    stream->answer.bytes[0] = 0; /* not compressed */
    for (int i = 0; i < 4; i++)
        stream->answer.bytes[1 + i] = (uint8_t)(bytes >> (24 - 8 * i));
    set_answered(stream);
    nghttp2_submit_response(stream->grpc->session, stream->id, fields, 2, &provider);
}

static void answer_call(struct stream *stream)
{
    static const uint8_t prefix[WIRE_GRPC_PREFIX_BYTES];
    struct wire_answer *answer = &stream->call.answer;

    if (answer->code != WIRE_OK) {
        grpc_stream_refuse(stream, answer->code,
                           (struct wire_text){(const char *)answer->text.bytes, answer->text.size});
        return;
    }
    wire_put(&stream->answer, prefix, sizeof prefix);
    wire_grpc_encode(&stream->call.request, answer, &stream->answer);
    wire_answer_free(answer); /* uncounted, and the message may be queued for long */
    if (stream->answer.has_failed ||
        grpc_stream_hold(stream, GRPC_STREAM_BYTES + stream->message.room + stream->answer.room))
        grpc_stream_refuse(
            stream, WIRE_EXHAUSTED,
            WIRE_TEXT("the answers of this user take more memory than one user may have"));
    else
        answer_message(stream);
}

static void on_call_done(struct call *call)
{
    struct stream *stream = CONTAINER_OF(call, struct stream, call);
    struct grpc_connection *grpc = stream->grpc;

    if (grpc->base.is_ended)
        return; /* too late; the stream is freed soon */
    answer_call(stream);
    grpc_flush(grpc);
}

static void on_call_released(struct call *call)
{
    struct stream *stream = CONTAINER_OF(call, struct stream, call);
    struct connection *base = &stream->grpc->base;

    grpc_stream_free(stream);
    if (base->is_ended)
        connection_is_free(base);
}

/* ---- requests ------------------------------------------------------------------------------ */

/* Finds the one message that a call has. 0, or -EINVAL and the call is answered. */
static int open_message(struct stream *stream, struct wire_text *message)
{
    const uint8_t *at = stream->message.bytes;
    size_t size = stream->message.size;

    if (stream->message.has_failed || size < WIRE_GRPC_PREFIX_BYTES) {
        grpc_stream_refuse(stream, WIRE_INTERNAL, WIRE_TEXT("the request's message is incomplete"));
        return -EINVAL;
    }
    uint32_t bytes = (uint32_t)at[1] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 8 | at[4];
    if (at[0] != 0) {
        grpc_stream_refuse(stream, WIRE_UNSUPPORTED,
                           WIRE_TEXT("compressed messages are not served; send them uncompressed"));
        return -EINVAL;
    }
    if (bytes != size - WIRE_GRPC_PREFIX_BYTES) {
        grpc_stream_refuse(stream, bytes < size ? WIRE_UNSUPPORTED : WIRE_INTERNAL,
                           WIRE_TEXT("a call must have one complete message"));
        return -EINVAL;
    }
    *message = (struct wire_text){(const char *)at + WIRE_GRPC_PREFIX_BYTES, bytes};
    return 0;
}

void grpc_stream_serve(struct stream *stream)
{
    const struct connection *base = &stream->grpc->base;
    struct call *call = &stream->call;
    struct wire_text message;

    if (open_message(stream, &message) != 0)
        return;
    call->request.session = wire_text_of(stream->session);
    if (wire_grpc_decode(message, &call->request, &call->answer) != 0 ||
        call_begin(call, base->id, base->uid))
        answer_call(stream);
}

void grpc_stream_open(struct stream *stream)
{
    call_init(&stream->call, server_get_host(stream->grpc->base.server), on_call_done,
              on_call_released);
    if (stream->is_over_limit)
        answer_http(stream, "431");
    else if (stream->is_malformed)
        answer_http(stream, "400");
    else if (!stream->is_post)
        answer_http(stream, "405");
    else if (!stream->is_grpc)
        answer_http(stream, "415");
    else if (wire_grpc_route(wire_text_of(stream->path), &stream->call.request) != 0)
        grpc_stream_refuse(stream, WIRE_UNSUPPORTED, WIRE_TEXT("this call is not served here"));
    else
        stream->is_known = true;
}
