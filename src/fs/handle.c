/* SPDX-License-Identifier: Apache-2.0 */
/* handle - the state of an open file in the front end: made when first needed, dropped at
 * RELEASE */
#include "fs/fs_internal.h"

#include <stdlib.h>

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
    const struct core_file *file = core_find_file(fs->core, fh);
    if (file) {
        handle->uid = file->uid;
        handle->store = file->store;
    }
    if (idvec_insert(&fs->files, handle)) {
        free(handle);
        return NULL;
    }
    return handle;
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
    fs_shown_drop(fs, handle);
    unlink_poll(handle);
    fs_handle_unkeep(handle);
    fs_gather_free(fs, handle, &handle->gathered);
    service_give(fs->service, SERVICE_BOUND_NOTES, handle->uid, handle->noted_bytes);
    service_give(fs->service, SERVICE_BOUND_TEXTS, handle->uid, handle->made_bytes);
    made_file_free(handle->made);
    free(handle);
}

void fs_handle_drop(struct fs *fs, uint64_t fh)
{
    struct fs_handle *handle = idvec_remove(&fs->files, fh);
    if (handle)
        fs_handle_free(fs, handle);
}

void fs_handle_set_poll(struct fs *fs, struct fs_handle *handle, struct fuse_pollhandle *poll)
{
    unlink_poll(handle);
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
    idvec_free(&fs->viewed);
}
