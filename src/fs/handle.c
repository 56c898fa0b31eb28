/* SPDX-License-Identifier: Apache-2.0 */
/* handle - what an open file needs in the front end: made when first needed, dropped at RELEASE */
#include "fs/fs_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fs_handle *fs_handle_find(struct fs *fs, uint64_t fh)
{
    return idvec_find(&fs->files, fh);
}

struct fs_handle *fs_handle_get(struct fs *fs, uint64_t fh, uint64_t node)
{
    struct fs_handle *handle = idvec_find(&fs->files, fh);
    if (handle)
        return handle;
    handle = calloc(1, sizeof *handle);
    if (!handle)
        return NULL;
    handle->id = fh;
    handle->node = node;
    if (idvec_insert(&fs->files, handle)) {
        free(handle);
        return NULL;
    }
    return handle;
}

static void drop_text(struct fs *fs, struct fs_handle *handle)
{
    if (!handle->has_text)
        return;
    fs->text_bytes -= handle->text_bytes;
    if (handle->shared)
        blob_unref(handle->shared);
    else
        free(handle->text);
    handle->text = NULL;
    handle->shared = NULL;
    handle->text_bytes = 0;
    handle->has_text = false;
}

static void unlink_poll(struct fs_handle *handle)
{
    if (!handle->poll)
        return;
    *handle->poll_link = handle->poll_next;
    if (handle->poll_next)
        handle->poll_next->poll_link = handle->poll_link;
    fuse_pollhandle_destroy(handle->poll);
    handle->poll = NULL;
}

void fs_handle_free(struct fs *fs, struct fs_handle *handle)
{
    drop_text(fs, handle);
    unlink_poll(handle);
    fs_gather_free(fs, handle, &handle->gathered);
    free(handle->last_name);
    free(handle);
}

void fs_handle_drop(struct fs *fs, uint64_t fh)
{
    struct fs_handle *handle = idvec_remove(&fs->files, fh);
    if (handle)
        fs_handle_free(fs, handle);
}

int fs_handle_set_text(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes)
{
    drop_text(fs, handle);
    if (bytes > FS_MAX_TEXT_BYTES - fs->text_bytes) {
        free(text);
        return -ENOMEM;
    }
    handle->text = text;
    handle->text_bytes = bytes;
    handle->text_at = 0;
    handle->has_text = true;
    fs->text_bytes += bytes;
    return 0;
}

int fs_handle_share_text(struct fs *fs, struct fs_handle *handle, struct blob *text)
{
    drop_text(fs, handle);
    if (text->size > FS_MAX_TEXT_BYTES - fs->text_bytes)
        return -ENOMEM;
    handle->shared = blob_ref(text);
    handle->text = text->bytes;
    handle->text_bytes = text->size;
    handle->text_at = 0;
    handle->has_text = true;
    fs->text_bytes += text->size;
    return 0;
}

void fs_handle_set_poll(struct fs *fs, struct fs_handle *handle, struct fuse_pollhandle *poll)
{
    unlink_poll(handle);
    if (!poll)
        return;
    handle->poll = poll;
    handle->poll_next = fs->polls;
    handle->poll_link = &fs->polls;
    if (fs->polls)
        fs->polls->poll_link = &handle->poll_next;
    fs->polls = handle;
}

static void free_all(struct fs *fs, struct idvec *vec)
{
    for (size_t i = 0; i < vec->count; i++)
        fs_handle_free(fs, vec->items[i]);
    idvec_free(vec);
}

void fs_handles_free(struct fs *fs)
{
    free_all(fs, &fs->files);
    free_all(fs, &fs->dirs);
}
