/* SPDX-License-Identifier: Apache-2.0 */
/* events - a stream of JSON lines: each open file has its own position in the ring */
#include "fs/fs_internal.h"

#include "service/event_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t get_oldest(const struct core *core)
{
    return core->next_event > CORE_MAX_EVENTS ? core->next_event - CORE_MAX_EVENTS : 1;
}

/* The next line becomes the handle's text. False: there is none. */
static int load_line(struct fs *fs, struct fs_handle *handle, bool *loaded)
{
    uint64_t oldest = get_oldest(fs->core);
    struct fs_text text = {0};
    int error;
    *loaded = false;
    if (handle->position == 0) /* the first read: what came before is not lost but old */
        handle->position = oldest;
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

/* Fills `out` as far as there are lines; a line that does not fit goes on at the next read. */
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

/* Where a next worker goes on. */
static void keep_position(struct fs *fs, struct fs_handle *handle)
{
    struct fs_kept_handle *kept = fs_handle_keep(fs, handle);
    bool has_rest = handle->shown.at < handle->shown.size;
    if (!kept)
        return;
    fs_kept_move(fs, kept, handle->position, has_rest ? handle->shown.at : 0);
}

void fs_events_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from)
{
    bool loaded;
    fs_shown_drop(fs, handle);
    handle->position = from->position;
    if (from->at == 0 || from->position <= get_oldest(fs->core))
        return;
    handle->position--; /* the rest of a line that was read in part */
    if (load_line(fs, handle, &loaded) == 0 && loaded && from->at < handle->shown.size)
        handle->shown.at = from->at;
    handle->position = from->position;
}

void fs_events_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *handle = fs_handle_get(fs, fh, node);
    char *out = malloc(size ? size : 1);
    size_t used = 0;
    if (handle && handle->kept && fs_kept_return(fs, handle->kept)) /* its answer was lost */
        fs_events_restore(fs, handle, fs_kept_position(handle->kept));
    int error = handle && out ? fill(fs, handle, out, size, &used) : -ENOMEM;
    if (handle)
        keep_position(fs, handle);
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
