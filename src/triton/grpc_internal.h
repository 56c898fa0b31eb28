/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grpc_internal - what the files share that speak gRPC
 *
 * grpc.c has the connection, as HTTP/2 has it; grpc_stream.c the calls on it, a stream each; both
 * send by grpc_output.c.
 */
#ifndef GMSFS_TRITON_GRPC_INTERNAL_H
#define GMSFS_TRITON_GRPC_INTERNAL_H

#include "triton/server.h"
#include "triton/wire_frames.h"

#include <nghttp2/nghttp2.h>

/* What one costs before a byte of its message has come, and while the opener is asked. */
#define GRPC_STREAM_BYTES (sizeof(struct stream) + sizeof(struct opener_request))

/* One call. */
struct stream {
    struct stream *next, **link;
    struct grpc_connection *grpc;
    int32_t id;
    bool is_post, is_grpc, is_answered, is_known, is_over_limit, is_malformed;
    char *path, *session; /* malloc'ed; NULL: not there */
    struct wire_buffer message;
    struct wire_buffer answer; /* with its prefix */
    size_t sent_bytes;
    uint64_t held_bytes;
    uint64_t deadline_ms; /* for the request to be whole, or the answer to be taken */
    struct call call;
};

struct grpc_connection {
    struct connection base; /* first */
    nghttp2_session *session;
    struct stream *streams;
    struct stream *left;   /* closed, and a thread still works for them */
    const uint8_t *output; /* nghttp2's, until the next call of it */
    size_t output_bytes;
    unsigned resets;
    uint64_t resets_ms;
    struct wire_frames frames;
    size_t block_bytes; /* decoded, of the header block that is coming */
    bool has_ended, is_leaving;
};

/* grpc_output.c. 0: all is sent; -EAGAIN; or it is broken */
int grpc_send_output(struct grpc_connection *grpc);
/* Sends what there is to send, and waits for what comes next. */
void grpc_flush(struct grpc_connection *grpc);

/* grpc_stream.c */
struct stream *grpc_stream_new(struct grpc_connection *grpc, int32_t id);
/* At once, or when the thread that works for it has done so. */
void grpc_stream_free(struct stream *stream);
/* It takes so many bytes altogether. As connection_hold */
int grpc_stream_hold(struct stream *stream, uint64_t bytes);
/* Its headers are here: what it is, and whether it is known. */
void grpc_stream_open(struct stream *stream);
/* Its message is here. */
void grpc_stream_serve(struct stream *stream);
/* Without a message: one block of headers says all. */
void grpc_stream_refuse(struct stream *stream, enum wire_code code, struct wire_text text);

#endif
