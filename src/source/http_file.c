/* SPDX-License-Identifier: Apache-2.0 */
/* Files: what their server says of them, and ranges of their bytes. */
#include "source/http_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking -------------------------------------------------------------------------------- */

static char *copy_header(const struct http_reply *reply, const char *name)
{
    char value[HTTP_REPLY_ETAG_BYTES];

    return http_reply_get(reply, name, value, sizeof(value)) ? strdup(value) : NULL;
}

/* Takes size and ranges out of an answer. False: the server does not tell the size. */
static bool take_size(struct http_file *file, const struct http_reply *reply)
{
    struct http_range range;

    if (reply->status == 200)
        return http_reply_get_length(reply, &file->size_bytes);
    if (!http_reply_get_range(reply, &range) || range.total == UINT64_MAX)
        return false;
    file->has_ranges = true;
    file->size_bytes = range.total;
    return range.total <= INT64_MAX;
}

static int look_check(void *context, struct flow *flow)
{
    (void)context;
    return flow->reply.status == 200 ? -ECONNABORTED : 0; /* the whole file would come */
}

/* Ends an answer that goes on after the byte that was asked for, perhaps without end. */
static int look_put(void *context, const uint8_t *bytes, size_t size_bytes)
{
    size_t *count = context;

    (void)bytes;
    *count += size_bytes;
    return *count > 1 ? -ECONNABORTED : 0;
}

/* Returns the nanoseconds of a date; 0: it is none, or too far from 1970. */
static int64_t parse_date(const struct libcurl *curl, const char *text)
{
    const int64_t seconds = (int64_t)curl->getdate(text, NULL);

    return seconds > 0 && seconds <= INT64_MAX / 1000000000 ? seconds * 1000000000 : 0;
}

/* True for an answer with bytes from another offset than 0. */
static bool has_other_range(const struct http_reply *reply)
{
    struct http_range range;

    return reply->status == 206 && (!http_reply_get_range(reply, &range) || range.first != 0);
}

static int take_file(struct http *http, struct flow *flow, struct http_file *file,
                     struct failure *failure)
{
    const char *direct = flow_redirected(flow);

    if (has_other_range(&flow->reply))
        return failure_set(failure, -EPROTO,
                           "the server sends another range than it was asked for; download it, "
                           "and load the file");
    if (!take_size(file, &flow->reply))
        return failure_set(failure, -EPROTO,
                           "the server does not tell its size; download it, and load the file");
    file->etag = copy_header(&flow->reply, "ETag");
    file->modified = copy_header(&flow->reply, "Last-Modified");
    if (file->modified)
        file->mtime_ns = parse_date(http->curl, file->modified);
    file->direct = direct ? strdup(direct) : NULL;
    if (file->has_ranges || file->size_bytes == 0)
        return 0;
    return http_stream_new(http, &file->stream) ? failure_no_memory(failure) : 0;
}

/* The answer to a range of an empty file may be 416. */
static bool is_look_good(const struct flow *flow, int error)
{
    struct http_range range;

    return error == 0 || error == -ECONNABORTED ||
           (flow->reply.status == 416 && http_reply_get_range(&flow->reply, &range) &&
            range.total == 0);
}

int http_file_look(struct http *http, const struct http_target *target, struct http_file *file,
                   struct http_reply *reply, struct failure *failure)
{
    struct http_tries tries = {0};
    struct flow *flow = http_take(http);
    size_t count;
    bool passes;
    int error;

    *file = (struct http_file){.target = *target};
    if (!flow)
        return failure_no_memory(failure);
    do {
        flow->check = look_check;
        flow->put = look_put;
        flow->context = &count;
        count = 0;
        error = http_attempt(http, flow, target, target->url, "Range: bytes=0-0\n", &tries, &passes,
                             failure);
        if (is_look_good(flow, error)) {
            error = take_file(http, flow, file, failure);
            passes = false;
        }
        flow_end(flow);
    } while (error && passes && http_wait(http, &tries, 0, &error));
    if (reply) {
        *reply = flow->reply;
        flow->reply = (struct http_reply){0};
    }
    http_give(http, flow);
    return error;
}

void http_file_free(struct http_file *file)
{
    http_stream_free(file->stream);
    free(file->etag);
    free(file->modified);
    free(file->direct);
    *file = (struct http_file){0};
}

/* ---- ranges --------------------------------------------------------------------------------- */

struct range {
    struct http_file *file;
    uint64_t from, end; /* from: offset of the next byte */
    http_put *put;
    void *context;
};

static int range_check(void *context, struct flow *flow)
{
    const struct range *range = context;
    int error = http_file_check(range->file, flow, range->from);

    if (error || flow->reply.status == 206)
        return error;
    flow->passes = true; /* of several servers behind one name, another may know ranges */
    return failure_set(flow->failure, -EPROTO,
                       "the server sends the whole file instead of a range");
}

static int range_put(void *context, const uint8_t *bytes, size_t size_bytes)
{
    struct range *range = context;

    if (size_bytes > range->end - range->from)
        return -EOVERFLOW;
    range->from += size_bytes;
    return range->put(range->context, bytes, size_bytes);
}

static int range_attempt(struct http *http, struct flow *flow, struct range *range,
                         struct http_tries *tries, bool *passes, struct failure *failure)
{
    const char *url = http_file_url(range->file);
    char lines[HTTP_REPLY_ETAG_BYTES + 96];

    flow->check = range_check;
    flow->put = range_put;
    flow->context = range;
    http_file_ask(range->file, range->from, range->end, lines, sizeof(lines));
    int error = http_attempt(http, flow, &range->file->target, url, lines, tries, passes, failure);
    if (error == -EOVERFLOW)
        return failure_set(failure, -EPROTO, "the server sends more bytes than it was asked for");
    if (http_file_leave(range->file, url, error))
        *passes = true;
    if (error || range->from == range->end)
        return error;
    *passes = true;
    return failure_set(failure, -ECONNRESET, "the server sends fewer bytes than it was asked for");
}

static int range_copy(struct http *http, struct range *range, struct failure *failure)
{
    const uint64_t begin = range->from;
    struct http_tries tries = {.is_known = true};
    struct flow *flow = http_take(http);
    bool passes;
    int error;

    if (!flow)
        return failure_no_memory(failure);
    do {
        error = range_attempt(http, flow, range, &tries, &passes, failure);
        flow_end(flow);
    } while (error && passes && http_wait(http, &tries, range->from - begin, &error));
    http_give(http, flow);
    return error;
}

int http_file_copy(struct http *http, struct http_file *file, uint64_t offset_bytes,
                   uint64_t size_bytes, http_put *put, void *context, struct failure *failure)
{
    struct range range = {file, offset_bytes, offset_bytes + size_bytes, put, context};

    failure->text[0] = '\0';
    if (size_bytes == 0)
        return 0;
    if (offset_bytes > file->size_bytes || size_bytes > file->size_bytes - offset_bytes)
        return -ENODATA;
    if (file->stream)
        return http_stream_copy(file, offset_bytes, size_bytes, put, context, failure);
    return range_copy(http, &range, failure);
}
