/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/shown.h"

#include "fs/fs_internal.h"
#include "service/discard.h"

#include <errno.h>
#include <stdlib.h>

struct viewer {  /* one user of one layout */
    uint64_t id; /* uid; first for idvec */
    uint64_t files;
};

struct viewed {  /* a layout that files show */
    uint64_t id; /* its address; first for idvec */
    struct idvec viewers;
};

static struct viewed *find_or_make(struct fs *fs, const struct blob *layout)
{
    struct viewed *viewed = idvec_find(&fs->viewed, (uintptr_t)layout);
    if (viewed)
        return viewed;
    viewed = calloc(1, sizeof *viewed);
    if (!viewed)
        return NULL;
    viewed->id = (uintptr_t)layout;
    if (idvec_insert(&fs->viewed, viewed) == 0)
        return viewed;
    free(viewed);
    return NULL;
}

static void forget_if_unseen(struct fs *fs, struct viewed *viewed)
{
    if (viewed->viewers.count > 0)
        return;
    idvec_remove(&fs->viewed, viewed->id);
    idvec_free(&viewed->viewers);
    free(viewed);
}

/* Counts the layout for its user at the first file that shows it; more files cost nothing. */
static int add_viewer(struct fs *fs, const struct fs_handle *handle, const struct blob *layout)
{
    struct viewed *viewed = find_or_make(fs, layout);
    struct viewer *viewer = viewed ? idvec_find(&viewed->viewers, handle->uid) : NULL;
    int error = viewed ? 0 : -ENOMEM;
    if (viewer) {
        viewer->files++;
        return 0;
    }
    if (!error)
        error = service_take(fs->service, SERVICE_BOUND_LAYOUTS, handle->store, handle->uid,
                             layout->size);
    if (error)
        goto out;
    viewer = malloc(sizeof *viewer);
    error = viewer ? 0 : -ENOMEM;
    if (!error) {
        *viewer = (struct viewer){.id = handle->uid, .files = 1};
        error = idvec_insert(&viewed->viewers, viewer);
    }
    if (error) {
        free(viewer);
        service_give(fs->service, SERVICE_BOUND_LAYOUTS, handle->uid, layout->size);
    }
out:
    if (viewed)
        forget_if_unseen(fs, viewed);
    return error;
}

static void remove_viewer(struct fs *fs, const struct fs_handle *handle, const struct blob *layout)
{
    struct viewed *viewed = idvec_find(&fs->viewed, (uintptr_t)layout);
    struct viewer *viewer = idvec_find(&viewed->viewers, handle->uid);
    if (--viewer->files > 0)
        return;
    service_give(fs->service, SERVICE_BOUND_LAYOUTS, handle->uid, layout->size);
    free(idvec_remove(&viewed->viewers, handle->uid));
    forget_if_unseen(fs, viewed);
}

/* Uncounts the text's note for the next worker. */
static void uncount_note(struct fs *fs, struct fs_handle *handle)
{
    if (!handle->shown.is_noted)
        return;
    service_give(fs->service, SERVICE_BOUND_NOTES, handle->uid, handle->noted_bytes);
    handle->noted_bytes = 0;
    handle->shown.is_noted = false;
}

void fs_shown_finish(struct fs *fs, struct fs_handle *handle)
{
    struct fs_shown *shown = &handle->shown;
    uncount_note(fs, handle);
    if (shown->shared) {
        remove_viewer(fs, handle, shown->shared);
        service_discard_blob(fs->service, shown->shared);
    } else if (shown->bytes) {
        service_give(fs->service, SERVICE_BOUND_TEXTS, handle->uid, shown->size);
        free(shown->bytes);
    }
    shown->shared = NULL;
    shown->bytes = NULL;
}

void fs_shown_drop(struct fs *fs, struct fs_handle *handle)
{
    fs_shown_finish(fs, handle);
    handle->shown = (struct fs_shown){0};
}

int fs_shown_set(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes)
{
    fs_shown_drop(fs, handle);
    int error = service_take(fs->service, SERVICE_BOUND_TEXTS, handle->store, handle->uid, bytes);
    if (error) {
        free(text);
        return error;
    }
    handle->shown = (struct fs_shown){.bytes = text, .size = bytes, .is_fixed = true};
    return 0;
}

int fs_shown_share(struct fs *fs, struct fs_handle *handle, struct blob *text)
{
    fs_shown_drop(fs, handle);
    int error = add_viewer(fs, handle, text);
    if (!error)
        handle->shown = (struct fs_shown){
            .bytes = text->bytes, .shared = blob_ref(text), .size = text->size, .is_fixed = true};
    return error;
}
