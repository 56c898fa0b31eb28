/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc_internal - shared by the files that speak gRPC
 *
 * grpc.c has the HTTP/2 connection; grpc_stream.c its calls, each a stream; both send through
 * grpc_output.c.
 */
#ifndef GMSFS_TRITON_GRPC_INTERNAL_H
#define GMSFS_TRITON_GRPC_INTERNAL_H

#include "triton/server.h"
#include "triton/wire_frames.h"

#include <nghttp2/nghttp2.h>

/* Cost of a stream before the first byte of its message, and while the opener is asked. */
#define GRPC_STREAM_BYTES (sizeof(struct stream) + sizeof(struct opener_request))

/* One call. */
struct stream {
    struct stream *next, **link;
    struct grpc_connection *grpc;
    int32_t id;
    bool is_post, is_grpc, is_answered, is_known, is_over_limit, is_malformed;
    char *path, *session; /* malloc'ed; NULL: absent */
    struct wire_buffer message;
    struct wire_buffer answer; /* with its prefix */
    size_t sent_bytes;
    uint64_t held_bytes;
    uint64_t deadline_ms; /* for the whole request to arrive, or the answer to be read */
    struct call call;
};

struct grpc_connection {
    struct connection base; /* first */
    nghttp2_session *session;
    struct stream *streams;
    struct stream *left;   /* closed streams for which a thread still works */
    const uint8_t *output; /* nghttp2's, until the next call of nghttp2 */
    size_t output_bytes;
    unsigned resets;
    uint64_t resets_ms;
    struct wire_frames frames;
    size_t block_bytes; /* of the header block being received, decoded */
    bool has_ended, is_leaving;
};

/* grpc_output.c. 0: all is sent; -EAGAIN; or the connection is broken */
int grpc_send_output(struct grpc_connection *grpc);
/* Sends all pending output, then sets the events and the deadline to wait for. */
void grpc_flush(struct grpc_connection *grpc);

/* grpc_stream.c */
struct stream *grpc_stream_new(struct grpc_connection *grpc, int32_t id);
/* Frees the stream now, or when the thread that works for it is finished. */
void grpc_stream_free(struct stream *stream);
/* Raises the stream's share of its connection's held bytes to `bytes`. Returns as connection_hold
 * does. */
int grpc_stream_hold(struct stream *stream, uint64_t bytes);
/* Called when the headers are complete: refuses an invalid request, or finds the call. */
void grpc_stream_open(struct stream *stream);
/* Called when the message is complete: decodes it and starts the call. */
void grpc_stream_serve(struct stream *stream);
/* Answers with one block of headers: status and text, no message. */
void grpc_stream_refuse(struct stream *stream, enum wire_code code, struct wire_text text);

#endif
