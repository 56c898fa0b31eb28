/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of a server without ranges: one transfer of the whole file serves all reads.
 *
 * A read takes its bytes when the transfer has come to them; bytes before them that no read has
 * taken are lost for reads that come later, which begin the transfer anew. So a read ahead of the
 * transfer waits a while for reads of the bytes between: threads that share a file take it in
 * pieces.
 */
#include "source/http_internal.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TURN_MS    500u /* a read ahead of the transfer waits so long after the last byte */
#define TURN_LOOKS 10u

struct http_stream {
    struct http *http;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool is_busy;      /* a thread uses all that follows */
    struct flow *flow; /* the transfer; NULL: none has begun */
    const char *url;   /* its address, of the file */
    uint64_t at;       /* offset of the next byte that no read has got */
    uint8_t *rest;     /* bytes that have come already, the next ones */
    size_t rest_bytes, rest_room;
    uint64_t moved_ms; /* time of the last byte */

    /* The read that is served. */
    struct http_file *file;
    uint64_t from, end; /* bytes up to `from` are skipped */
    http_put *put;
    void *context;
};

int http_stream_new(struct http *http, struct http_stream **stream)
{
    *stream = calloc(1, sizeof(**stream));
    if (!*stream)
        return -ENOMEM;
    (*stream)->http = http;
    pthread_mutex_init(&(*stream)->lock, NULL);
    thread_init_condition(&(*stream)->moved);
    return 0;
}

static void stop(struct http_stream *stream)
{
    if (stream->flow) {
        flow_end(stream->flow);
        http_give(stream->http, stream->flow);
    }
    stream->flow = NULL;
    stream->at = 0;
    stream->rest_bytes = 0;
}

void http_stream_free(struct http_stream *stream)
{
    if (!stream)
        return;
    stop(stream);
    pthread_cond_destroy(&stream->moved);
    pthread_mutex_destroy(&stream->lock);
    free(stream->rest);
    free(stream);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

/* Skips and passes on; returns how many bytes of these the read does not want, at their end. An
 * error of the read: negative. */
static int64_t give(struct http_stream *stream, const uint8_t *bytes, size_t size_bytes)
{
    uint64_t skipped = stream->from > stream->at ? stream->from - stream->at : 0, wanted;
    int error = 0;

    if (skipped > size_bytes)
        skipped = size_bytes;
    stream->at += skipped;
    wanted = stream->end - stream->at;
    if (wanted > size_bytes - skipped)
        wanted = size_bytes - skipped;
    if (stream->at < stream->from)
        wanted = 0;
    if (wanted > 0)
        error = stream->put(stream->context, bytes + skipped, (size_t)wanted);
    stream->at += wanted;
    stream->from = stream->at > stream->from ? stream->at : stream->from;
    return error ? error : (int64_t)(size_bytes - skipped - wanted);
}

static int keep(struct http_stream *stream, const uint8_t *bytes, size_t size_bytes)
{
    if (size_bytes > stream->rest_room) {
        uint8_t *larger = realloc(stream->rest, size_bytes);

        if (!larger)
            return -ENOMEM;
        stream->rest = larger;
        stream->rest_room = size_bytes;
    }
    memmove(stream->rest, bytes, size_bytes);
    stream->rest_bytes = size_bytes;
    return 0;
}

static int stream_put(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct http_stream *stream = context;

    if (stream->at == stream->end || stream->rest_bytes > 0)
        return FLOW_PAUSE;
    if (size_bytes > stream->file->size_bytes - stream->at)
        return -EOVERFLOW;
    int64_t left = give(stream, bytes, size_bytes);
    return left <= 0 ? (int)left : keep(stream, bytes + size_bytes - left, (size_t)left);
}

static int stream_check(void *context, struct flow *flow)
{
    const struct http_stream *stream = context;

    return http_file_check(stream->file, flow, 0);
}

static int begin(struct http_stream *stream, struct failure *failure)
{
    const struct http_file *file = stream->file;

    stop(stream);
    stream->url = http_file_url(file);
    stream->flow = http_take(stream->http);
    if (!stream->flow)
        return failure_no_memory(failure);
    stream->flow->check = stream_check;
    stream->flow->put = stream_put;
    stream->flow->context = stream;
    return http_attempt_begin(stream->flow, &file->target, stream->url, "", failure);
}

/* Serves the read as far as this transfer goes. */
static int stream_attempt(struct http_stream *stream, struct http_tries *tries, bool *passes,
                          struct failure *failure)
{
    int64_t left;
    int error = 0;

    *passes = false;
    if (!stream->flow || stream->at > stream->from)
        error = begin(stream, failure);
    if (error == 0 && stream->rest_bytes > 0) {
        left = give(stream, stream->rest, stream->rest_bytes);
        if (left < 0)
            return (int)left;
        error = keep(stream, stream->rest + stream->rest_bytes - left, (size_t)left);
    }
    if (error || stream->from == stream->end)
        return error;
    stream->flow->failure = failure;
    error = http_judge(stream->flow, stream->file->target.auth, flow_move(stream->flow), tries,
                       passes, failure);
    if (error == -EOVERFLOW)
        return failure_set(failure, -EPROTO, "the server sends more bytes than it announced");
    if (http_file_leave(stream->file, stream->url, error))
        *passes = true;
    if (error || stream->from == stream->end)
        return error;
    *passes = true;
    return failure_set(failure, -ECONNRESET, "the server sends fewer bytes than it announced");
}

static int stream_serve(struct http_stream *stream, struct failure *failure)
{
    const uint64_t first = stream->from;
    struct http_tries tries = {.is_known = true};
    bool passes = false;
    int error;

    do {
        if (error = stream_attempt(stream, &tries, &passes, failure), error)
            stop(stream);
    } while (error && passes && http_wait(stream->http, &tries, stream->from - first, &error));
    return error;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void take_turn(struct http_stream *stream, uint64_t offset_bytes)
{
    struct timespec until;

    SCOPED_LOCK(&stream->lock);
    while (stream->is_busy || (stream->at < offset_bytes && stream->flow &&
                               clock_now_ms() - stream->moved_ms < TURN_MS &&
                               !atomic_load(&stream->http->cancelled))) {
        until = clock_after_ms(CLOCK_MONOTONIC, TURN_MS / TURN_LOOKS);
        pthread_cond_timedwait(&stream->moved, &stream->lock, &until);
    }
    stream->is_busy = true;
}

static void leave_turn(struct http_stream *stream)
{
    SCOPED_LOCK(&stream->lock);
    stream->is_busy = false;
    stream->moved_ms = clock_now_ms();
    pthread_cond_broadcast(&stream->moved);
}

int http_stream_copy(struct http_file *file, uint64_t offset_bytes, uint64_t size_bytes,
                     http_put *put, void *context, struct failure *failure)
{
    struct http_stream *stream = file->stream;

    take_turn(stream, offset_bytes);
    stream->file = file;
    stream->from = offset_bytes;
    stream->end = offset_bytes + size_bytes;
    stream->put = put;
    stream->context = context;
    int error = atomic_load(&stream->http->cancelled) ? -ECANCELED : stream_serve(stream, failure);
    leave_turn(stream);
    return error;
}
