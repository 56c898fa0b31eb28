/* SPDX-License-Identifier: Apache-2.0 */
/* The output of a gRPC connection, and the event it waits for then. */
#include "triton/grpc_internal.h"

#include <errno.h>

int grpc_send_output(struct grpc_connection *grpc)
{
    for (;;) {
        while (grpc->output_bytes > 0) {
            size_t sent;
            int error = connection_send(&grpc->base, grpc->output, grpc->output_bytes, &sent);
            if (error)
                return error;
            grpc->output += sent;
            grpc->output_bytes -= sent;
            wire_frames_move(&grpc->frames, sent);
        }
        ssize_t bytes = nghttp2_session_mem_send(grpc->session, &grpc->output);
        if (bytes < 0)
            return -EPROTO;
        if (bytes == 0)
            return 0;
        grpc->output_bytes = (size_t)bytes;
    }
}

/* Returns UINT64_MAX if the stream does not wait for the client. */
static uint64_t get_deadline(const struct stream *stream)
{
    return call_is_under_way(&stream->call) ? UINT64_MAX : stream->deadline_ms;
}

/* A connection without streams, or with unread output, has a deadline of its own. */
static void set_deadline(struct grpc_connection *grpc, bool is_blocked)
{
    uint64_t deadline_ms = UINT64_MAX;

    if (is_blocked)
        deadline_ms = server_deadline_ms(SERVER_UNREAD_MS);
    else if (!grpc->streams)
        deadline_ms = server_deadline_ms(SERVER_IDLE_MS);
    for (struct stream *at = grpc->streams; at; at = at->next) {
        if (get_deadline(at) < deadline_ms)
            deadline_ms = get_deadline(at);
    }
    grpc->base.deadline_ms = deadline_ms;
}

void grpc_flush(struct grpc_connection *grpc)
{
    if (grpc->base.is_ended)
        return;
    int error = grpc_send_output(grpc);
    bool is_done =
        !nghttp2_session_want_read(grpc->session) && !nghttp2_session_want_write(grpc->session);
    if ((error && error != -EAGAIN) || (!error && is_done) || (grpc->has_ended && !grpc->streams)) {
        connection_end(&grpc->base);
        return;
    }
    if (!error && (grpc->is_leaving || server_is_stopping(grpc->base.server)) && !grpc->streams) {
        connection_end(&grpc->base);
        return;
    }
    set_deadline(grpc, error == -EAGAIN);
    if (error == -EAGAIN)
        connection_watch(&grpc->base, EVENT_WRITE);
    else
        connection_watch(&grpc->base, grpc->has_ended ? 0 : EVENT_READ);
}
