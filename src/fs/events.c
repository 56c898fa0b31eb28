/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events - a stream of JSON lines, from which the oldest lines are dropped
 *
 * An offset counts all bytes that the stream ever had. A read that continues the last one of its
 * open file may be at another place of the stream: if lines were dropped, the reader got a line
 * with their number, which is not part of the stream.
 */
#include "fs/fs_internal.h"

#include "core/event_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bound of one answer: other requests wait while its lines are made. */
#define READ_BYTES (16u << 10)

/* Makes the next line the handle's text. loaded: false if there is none. */
static int load_line(struct fs *fs, struct fs_handle *handle, bool *loaded)
{
    uint64_t oldest = core_first_event(fs->core);
    struct fs_text text = {0};
    int error;
    *loaded = false;
    if (handle->position >= fs->core->next_event)
        return 0;
    if (handle->position < oldest) {
        int size = asprintf(&text.data, "{\"lost\":%llu}\n",
                            (unsigned long long)(oldest - handle->position));
        error = size < 0 ? -ENOMEM : 0;
        text.size = size < 0 ? 0 : (size_t)size;
    } else {
        const struct core_event *event = core_find_event(fs->core, handle->position);
        error = event ? event_line_render(event, handle->uid, &text.data, &text.size) : -EIO;
    }
    if (error)
        return error;
    error = fs_shown_set(fs, handle, (uint8_t *)text.data, text.size);
    if (error)
        return error;
    handle->position = handle->position < oldest ? oldest : handle->position + 1;
    *loaded = true;
    return 0;
}

/* Returns how many events were dropped since the byte at `offset` was written. An estimate, because
 * their lines are gone; from offset 0 it is exact, all of them. */
static uint64_t count_lost(const struct core *core, uint64_t offset)
{
    uint64_t gone = core_first_event(core) - 1, bytes = core_first_offset(core);
    uint64_t lost = (uint64_t)((double)gone * (double)(bytes - offset) / (double)bytes);

    return lost > 0 ? lost : 1;
}

/* Starts a read that does not continue the last one at this byte of the whole stream. */
static int seek(struct fs *fs, struct fs_handle *handle, uint64_t offset)
{
    const struct core *core = fs->core;
    const struct core_event *event = core_find_event_at(core, offset);
    bool loaded;
    int error = 0;
    fs_shown_drop(fs, handle);
    handle->offset = offset;
    if (offset < core_first_offset(core)) {
        handle->position = core_first_event(core) - count_lost(core, offset);
    } else if (event) {
        handle->position = event->seq;
        error = load_line(fs, handle, &loaded);
        handle->shown.at = error ? 0 : (size_t)(offset - event->at);
    } else {
        handle->position = core->next_event;
    }
    if (error)
        handle->position = 0;
    return error;
}

/* Fills `out` with lines; the next read continues a line that does not fit. */
static int fill(struct fs *fs, struct fs_handle *handle, char *out, size_t size, size_t *used)
{
    while (*used < size) {
        size_t left = handle->shown.size - handle->shown.at;
        if (left == 0) {
            bool loaded;
            fs_shown_drop(fs, handle);
            int error = load_line(fs, handle, &loaded);
            if (error || !loaded)
                return error;
            continue;
        }
        size_t now = left < size - *used ? left : size - *used;
        memcpy(out + *used, handle->shown.bytes + handle->shown.at, now);
        handle->shown.at += now;
        *used += now;
    }
    return 0;
}

/* Keeps the position for the next worker. */
static void keep_position(struct fs *fs, struct fs_handle *handle)
{
    struct fs_kept_handle *kept = fs_handle_keep(fs, handle);
    bool has_rest = handle->shown.at < handle->shown.size;
    if (!kept)
        return;
    fs_kept_move(fs, kept,
                 (struct fs_kept_position){.position = handle->position,
                                           .at = has_rest ? handle->shown.at : 0,
                                           .offset = handle->offset});
}

void fs_events_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from)
{
    bool loaded;
    fs_shown_drop(fs, handle);
    handle->position = from->position;
    handle->offset = from->offset;
    if (from->at == 0 || from->position <= core_first_event(fs->core))
        return;
    handle->position--; /* the rest of a line that was read in part */
    if (load_line(fs, handle, &loaded) == 0 && loaded && from->at < handle->shown.size)
        handle->shown.at = from->at;
    handle->position = from->position;
}

static int read_on(struct fs *fs, struct fs_handle *handle, uint64_t offset, char *out, size_t size,
                   size_t *used)
{
    int error = 0;
    if (handle->kept && fs_kept_return(fs, handle->kept)) /* its answer was lost */
        fs_events_restore(fs, handle, fs_kept_position(handle->kept));
    if (offset > fs->core->event_bytes && offset != handle->offset)
        return 0; /* nothing is there yet, and no line ends there */
    if (handle->position == 0 || offset != handle->offset)
        error = seek(fs, handle, offset);
    if (!error)
        error = fill(fs, handle, out, size, used);
    handle->offset += *used;
    keep_position(fs, handle);
    return error;
}

/* For the kernel's pages, which all open files share: the lines as every user may see them, at
 * their own offsets. -EINVAL: some of them were dropped. */
static int read_pages(struct fs *fs, uint64_t offset, char *out, size_t size, size_t *used)
{
    const struct core *core = fs->core;
    const struct core_event *event = core_find_event_at(core, offset);
    char *line;
    size_t bytes;
    if (offset < core_first_offset(core))
        return -EINVAL;
    for (; event && *used < size; event = core_find_event(core, event->seq + 1)) {
        size_t from = event->at < offset ? (size_t)(offset - event->at) : 0;
        if (event_line_render(event, FS_NOBODY, &line, &bytes))
            return -ENOMEM;
        bytes -= from;
        if (bytes > size - *used)
            bytes = size - *used;
        memcpy(out + *used, line + from, bytes);
        *used += bytes;
        free(line);
    }
    return 0;
}

void fs_events_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *handle = fs_handle_get(fs, fh, node);
    if (reading != FS_READ_PAGES && size > READ_BYTES)
        size = READ_BYTES;
    char *out = malloc(size ? size : 1);
    size_t used = 0;
    int error = handle && out ? 0 : -ENOMEM;
    if (!error && reading == FS_READ_PAGES)
        error = read_pages(fs, offset, out, size, &used);
    else if (!error)
        error = read_on(fs, handle, offset, out, size, &used);
    if (error && used == 0)
        fs_reply_error(req, error);
    else
        fuse_reply_buf(req, out, used);
    free(out);
}

bool fs_events_are_readable(struct fs *fs, const struct fs_handle *handle)
{
    if (!handle || handle->position == 0)
        return fs->core->next_event > 1;
    return handle->shown.at < handle->shown.size || handle->position < fs->core->next_event;
}
