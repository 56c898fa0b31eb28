/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry - the value of a metadata entry as a file
 *
 * Written bytes are gathered for the open file and become the entry's value, whole, at FLUSH, fsync
 * or RELEASE: an entry never shows half of a write. The session is the file's, fixed at open.
 */
#include "fs/fs_internal.h"

#include "meta/name.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int put_value(struct fs *fs, const struct service_actor *by,
                     const struct layout_entry *entry, const void *value, size_t bytes)
{
    char key[NAME_MAX_BYTES];
    struct service_entry changed = {.key = key,
                                    .key_bytes = entry->key_bytes,
                                    .slot = entry->slot,
                                    .offset = entry->offset,
                                    .value = value,
                                    .value_bytes = bytes};
    memcpy(key, entry->key, entry->key_bytes); /* the change frees the entry */
    return service_entry_put(fs->service, by, &changed);
}

/* Begins a new value as a copy of the present one, which another client may have changed when the
 * next worker continues. */
static int start_gathering(struct fs *fs, struct fs_handle *handle,
                           const struct layout_entry *entry)
{
    if (handle->has_gathered)
        return 0;
    int error =
        fs_note_gathered(fs, handle, FS_GATHERED_BEGIN, 0, entry->value, entry->value_bytes);
    return error ? error : fs_gather_begin_value(fs, handle, entry->value, entry->value_bytes);
}

static int resize_gathered(struct fs *fs, struct fs_handle *handle, size_t bytes)
{
    int error = fs_gather(fs, handle, bytes ? bytes : 1, LAYOUT_MAX_VALUE_BYTES);
    if (!error)
        error = fs_note_gathered(fs, handle, FS_GATHERED_RESIZE, bytes, NULL, 0);
    if (error)
        return error;
    fs_gather_set_size(handle, bytes);
    handle->dirty = true;
    return 0;
}

static int find_for_writing(struct fs *fs, uint64_t id, uint64_t fh, struct node *node,
                            struct fs_handle **handle)
{
    struct service_actor by = {.file = fh};
    int error = service_touch(fs->service, &by);
    if (!error && node_find(fs->core, id, node))
        error = -ESTALE; /* it was removed */
    if (!error && fs_has_lost_bytes(fs, fh))
        error = -EIO;
    if (error)
        return error;
    *handle = fs_handle_get(fs, fh, id);
    if (!*handle)
        return -ENOMEM;
    return start_gathering(fs, *handle, node->entry);
}

void fs_entry_read(fuse_req_t req, uint64_t id, uint64_t fh, size_t size, uint64_t offset)
{
    struct fs *fs = fs_of(req);
    const struct core_file *file = core_find_file(fs->core, fh);
    const struct fs_handle *handle = fs_handle_find(fs, fh);
    struct node node;
    if (!file || (file->session && !core_find_session(fs->core, file->session)) ||
        node_find(fs->core, id, &node)) {
        fs_reply_error(req, -ESTALE);
        return;
    }
    bool is_new = handle && handle->has_gathered;
    const uint8_t *value = is_new ? handle->gathered.bytes : node.entry->value;
    size_t bytes = is_new ? handle->gathered.used : node.entry->value_bytes;
    if (offset >= bytes)
        size = 0;
    else if (size > bytes - offset)
        size = bytes - (size_t)offset;
    fuse_reply_buf(req, size ? (const char *)value + offset : NULL, size);
}

void fs_entry_write(fuse_req_t req, uint64_t id, const char *from, size_t size, uint64_t offset,
                    const struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *handle;
    struct node node;
    int error = find_for_writing(fs, id, info->fh, &node, &handle);
    if (!error && (info->flags & O_APPEND))
        offset = handle->gathered.used;
    if (!error && (offset > LAYOUT_MAX_VALUE_BYTES || size > LAYOUT_MAX_VALUE_BYTES - offset))
        error = -EFBIG;
    if (!error)
        error = fs_gather(fs, handle, (size_t)offset + size, LAYOUT_MAX_VALUE_BYTES);
    if (!error)
        error = fs_note_gathered(fs, handle, FS_GATHERED_WRITE, offset, from, size);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    fs_gather_write(handle, (size_t)offset, from, size);
    handle->dirty = true;
    fuse_reply_write(req, size);
}

int fs_entry_put(struct fs *fs, uint64_t fh)
{
    struct fs_handle *handle = fs_handle_find(fs, fh);
    struct service_actor by = {.file = fh};
    struct node node;
    int error = 0;
    if (!handle || !handle->dirty)
        return fs_take_loss(fs, fh);
    if (node_find(fs->core, handle->node, &node))
        error = -ESTALE;
    if (!error)
        error = put_value(fs, &by, node.entry,
                          handle->gathered.bytes ? handle->gathered.bytes : (uint8_t *)"",
                          handle->gathered.used);
    if (!error)
        handle->dirty = false;
    if (!error)
        fs_note_gathered(fs, handle, FS_GATHERED_PUT, 0, NULL,
                         0); /* else the next worker stores it again */
    return error;
}

int fs_entry_resize(struct fs *fs, uint64_t id, const struct service_actor *by, uint64_t size)
{
    struct fs_handle *handle;
    struct node node;
    int error;
    if (size > LAYOUT_MAX_VALUE_BYTES)
        return -EFBIG;
    if (by->file) {
        error = find_for_writing(fs, id, by->file, &node, &handle);
        if (!error)
            error = resize_gathered(fs, handle, (size_t)size);
        return error ? error : fs_entry_put(fs, by->file); /* its size is visible at once */
    }
    if (node_find(fs->core, id, &node))
        return -ESTALE;
    uint8_t *value = calloc(1, size ? (size_t)size : 1);
    if (!value)
        return -ENOMEM;
    size_t kept = size < node.entry->value_bytes ? (size_t)size : node.entry->value_bytes;
    if (kept)
        memcpy(value, node.entry->value, kept);
    error = put_value(fs, by, node.entry, value, (size_t)size);
    free(value);
    return error;
}

int fs_entry_truncate_opened(struct fs *fs, uint64_t id, uint64_t fh)
{
    struct fs_handle *handle = fs_handle_get(fs, fh, id);
    if (!handle)
        return -ENOMEM;
    int error = resize_gathered(fs, handle, 0);
    handle->has_gathered = !error;
    return error;
}
