/* SPDX-License-Identifier: Apache-2.0 */
/* Asks for bytes of one file, and holds answers against it. */
#include "source/http_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* A weak ETag, and a date beside one, do not stand for bytes: the server would send all of them. */
int http_file_ask(const struct http_file *file, uint64_t from, uint64_t end, char *lines,
                  size_t room)
{
    const bool is_weak = file->etag && file->etag[0] == 'W';
    const char *same = file->etag ? file->etag : file->modified;
    char last[24] = "";

    if (end != UINT64_MAX)
        snprintf(last, sizeof(last), "%" PRIu64, end - 1);
    if (!same || is_weak)
        return snprintf(lines, room, "Range: bytes=%" PRIu64 "-%s\n", from, last);
    return snprintf(lines, room, "Range: bytes=%" PRIu64 "-%s\nIf-Range: %s\n", from, last, same);
}

const char *http_file_url(const struct http_file *file)
{
    return file->direct && !atomic_load(&file->direct_ended) ? file->direct : file->target.url;
}

bool http_file_leave(struct http_file *file, const char *url, int error)
{
    if ((error != -EACCES && error != -ENOENT) || url == file->target.url)
        return false;
    atomic_store(&file->direct_ended, true);
    return true;
}

static bool is_same(const struct http_reply *reply, const char *name, const char *before)
{
    char now[HTTP_REPLY_ETAG_BYTES];

    return !before || !http_reply_get(reply, name, now, sizeof(now)) || strcmp(now, before) == 0;
}

static int changed(struct flow *flow)
{
    return failure_set(flow->failure, -ESTALE,
                       "the file on the server has changed since it was opened; load it again");
}

int http_file_check(const struct http_file *file, struct flow *flow, uint64_t from)
{
    struct http_range range;
    uint64_t bytes;

    if (!is_same(&flow->reply, "ETag", file->etag) ||
        (!file->etag && !is_same(&flow->reply, "Last-Modified", file->modified)))
        return changed(flow);
    if (flow->reply.status == 200)
        return http_reply_get_length(&flow->reply, &bytes) && bytes != file->size_bytes
                   ? changed(flow)
                   : 0;
    if (!http_reply_get_range(&flow->reply, &range) || range.first != from)
        return failure_set(flow->failure, -EPROTO,
                           "the server sends another range than it was asked for");
    return range.total != UINT64_MAX && range.total != file->size_bytes ? changed(flow) : 0;
}
