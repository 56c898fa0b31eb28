/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lost - what clients have written for later, and a worker takes with it
 *
 * What is gathered for a file lies in the worker's memory. As long as it is little, it is noted in
 * the journal as well, until the next snapshot. What is lost all the same is noticed, for the core
 * knows how much it was, and told where it would have been used.
 */
#include "fs/fs_internal.h"

#include <errno.h>
#include <string.h>

#define NOTED_BYTES (2u << 20) /* of one file */

struct note {
    uint64_t file, node, change, offset;
};

int fs_note_gathered(struct fs *fs, struct fs_handle *handle, enum fs_gathered_change change,
                     uint64_t offset, const void *bytes, size_t size)
{
    struct note note = {
        .file = handle->id, .node = handle->node, .change = change, .offset = offset};
    struct iovec parts[2] = {{&note, sizeof note}, {(void *)(uintptr_t)bytes, size}};

    if (change == FS_GATHERED_DROP)
        handle->notes_nothing = false;
    else if (handle->notes_nothing)
        return 0;
    if (change == FS_GATHERED_WRITE && offset + size > NOTED_BYTES) {
        handle->notes_nothing = true;
        note.change = FS_GATHERED_LOST;
        parts[1].iov_len = 0;
    }
    return fs->host.note(fs->host.context, parts, 2);
}

/* As large as this, what is new of it zeros. */
static int grow(struct fs *fs, struct fs_handle *handle, size_t bytes)
{
    struct fs_gathered *gathered = &handle->gathered;
    int error = fs_gather(fs, handle, bytes ? bytes : 1, NOTED_BYTES);

    if (!error && bytes > gathered->used)
        memset(gathered->bytes + gathered->used, 0, bytes - gathered->used);
    if (!error && bytes > gathered->used)
        gathered->used = bytes;
    return error;
}

/* A new value begins as a copy of the present one. */
static int begin_value(struct fs *fs, struct fs_handle *handle)
{
    struct node node;
    int error = 0;

    if (node_get_kind(handle->node) != NODE_ENTRY || handle->has_gathered)
        return 0;
    if (node_find(fs->core, handle->node, &node) == 0 && node.entry->value_bytes > 0)
        error = grow(fs, handle, node.entry->value_bytes);
    if (!error && handle->gathered.used > 0)
        memcpy(handle->gathered.bytes, node.entry->value, handle->gathered.used);
    handle->has_gathered = true;
    return error;
}

static int restore_bytes(struct fs *fs, struct fs_handle *handle, const struct note *note,
                         const void *bytes, size_t size)
{
    int error = note->change == FS_GATHERED_WRITE ? begin_value(fs, handle) : 0;

    if (note->offset > NOTED_BYTES || size > NOTED_BYTES)
        return -EFBIG;
    if (!error)
        error = grow(fs, handle, (size_t)note->offset + size);
    if (error)
        return error;
    if (size)
        memcpy(handle->gathered.bytes + note->offset, bytes, size);
    if (note->change == FS_GATHERED_RESIZE)
        handle->gathered.used = (size_t)note->offset;
    if (node_get_kind(handle->node) == NODE_ENTRY)
        handle->has_gathered = handle->dirty = true;
    return 0;
}

static void drop_gathered(struct fs *fs, struct fs_handle *handle, bool is_lost)
{
    fs_gather_free(fs, handle, &handle->gathered);
    handle->has_gathered = handle->dirty = false;
    handle->is_lost = is_lost;
}

void fs_restore_note(struct fs *fs, const void *bytes, size_t size)
{
    struct note note;
    struct fs_handle *handle;
    int error = 0;

    if (size < sizeof note)
        return;
    memcpy(&note, bytes, sizeof note);
    handle = core_find_file(fs->core, note.file) ? fs_handle_get(fs, note.file, note.node) : NULL;
    if (!handle || (handle->is_lost && note.change != FS_GATHERED_DROP))
        return;
    switch (note.change) {
    case FS_GATHERED_WRITE:
    case FS_GATHERED_RESIZE:
        error = restore_bytes(fs, handle, &note, (const uint8_t *)bytes + sizeof note,
                              size - sizeof note);
        break;
    case FS_GATHERED_PUT:
        handle->dirty = false;
        break;
    case FS_GATHERED_DROP:
        drop_gathered(fs, handle, false);
        break;
    default:
        error = -ENODATA;
    }
    if (error)
        drop_gathered(fs, handle, true);
}

static int note_handle(struct fs *fs, struct fs_handle *handle)
{
    const struct fs_gathered *gathered = &handle->gathered;
    int error = 0;

    if (handle->has_gathered)
        error = fs_note_gathered(fs, handle, FS_GATHERED_RESIZE, 0, NULL, 0);
    if (!error && gathered->used > 0)
        error = fs_note_gathered(fs, handle, FS_GATHERED_WRITE, 0, gathered->bytes, gathered->used);
    if (!error && handle->has_gathered && !handle->dirty)
        error = fs_note_gathered(fs, handle, FS_GATHERED_PUT, 0, NULL, 0);
    return error;
}

void fs_note_all(struct fs *fs)
{
    for (size_t i = 0; i < fs->files.count; i++) {
        struct fs_handle *handle = fs->files.items[i];
        if ((handle->has_gathered || handle->gathered.used > 0) && !handle->notes_nothing &&
            note_handle(fs, handle)) {
            fs_note_gathered(fs, handle, FS_GATHERED_LOST, 0, NULL, 0);
            handle->notes_nothing = true;
        }
    }
}

bool fs_has_lost_bytes(struct fs *fs, uint64_t fh)
{
    const struct core_file *file = core_find_file(fs->core, fh);
    const struct fs_handle *handle = fs_handle_find(fs, fh);
    return file && ((handle && handle->is_lost) ||
                    (file->gathered_bytes > 0 && (!handle || handle->counted_bytes == 0)));
}

int fs_take_loss(struct fs *fs, uint64_t fh)
{
    if (!fs_has_lost_bytes(fs, fh))
        return 0;
    struct fs_handle *handle = fs_handle_find(fs, fh);
    service_gather(fs->service, fh, 0);
    if (handle) {
        handle->is_lost = false;
        fs_note_gathered(fs, handle, FS_GATHERED_DROP, 0, NULL, 0);
    }
    return -EIO;
}
