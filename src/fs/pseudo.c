/* SPDX-License-Identifier: Apache-2.0 */
/* pseudo - files whose text is made when it is read: fixed from then on, and made anew at offset
 * 0 */
#include "fs/fs_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct core_session *find_held(const struct fs *fs, uint64_t fh)
{
    const struct core_file *file = core_find_file(fs->core, fh);
    return file && file->session ? core_find_session(fs->core, file->session) : NULL;
}

/* Renders the lock that this open file holds, as "RW 7". */
static int render_held(const struct fs *fs, uint64_t fh, struct fs_text *text)
{
    const struct core_session *session = find_held(fs, fh);
    char line[40];
    if (!session)
        return -ESTALE;
    int size = snprintf(line, sizeof line, "%s %llu\n", lock_mode_name(session->mode),
                        (unsigned long long)session->id);
    return fs_text_copy(line, (size_t)size, text);
}

static bool shows_held(enum node_kind kind)
{
    return kind == NODE_LOCK || kind == NODE_AUTO || kind == NODE_DATA;
}

/* Returns the text that all files of the node share; NULL: none. */
static struct blob *find_shared(struct fs *fs, const struct node *node)
{
    if (node->kind == NODE_PIECES)
        return service_get_pieces(fs->service, node->store);
    return node->kind == NODE_LAYOUT ? service_get_shown_layout(node->store) : NULL;
}

static int refresh(struct fs *fs, struct fs_handle *handle)
{
    struct node node;
    struct fs_text text = {.uid = handle->uid};
    if (node_find(fs->core, handle->node, &node))
        return -ESTALE; /* the store was removed */
    struct blob *shared = find_shared(fs, &node);
    if (!shared && node.kind == NODE_PIECES && service_count_pieces_bytes(node.store) > 0)
        return -ESTALE;         /* the contents are no longer the summed ones */
    if (handle->shown.is_paged) /* pages of another text must not stand beside the cached ones */
        fs_size_opened(fs, handle->node, 0, 0);
    if (shared)
        return fs_shown_share(fs, handle, shared);
    int error = shows_held(node.kind) ? render_held(fs, handle->id, &text)
                                      : fs_text_render(fs, &node, handle->uid, &text);
    if (error)
        return error;
    if (node.kind == NODE_STATE || node.kind == NODE_RESIDENCY) {
        handle->version = fs_shown_version(&node);
        handle->has_version = true;
    }
    return fs_shown_set(fs, handle, (uint8_t *)text.data, text.size);
}

static bool is_to_be_made(const struct fs *fs, const struct fs_handle *handle, uint64_t offset,
                          enum fs_reading reading)
{
    const struct fs_shown *shown = &handle->shown;
    if (shown->is_told && fs_is_told_text_true(fs, handle))
        return false;
    if (shown->is_paged && reading == FS_READ_PAGES)
        return false;
    return offset == 0 || !shown->is_fixed || (!shown->bytes && offset < shown->size);
}

/* Makes the text. If its reading began under the last worker and the new text differs, the read
 * fails, instead of joining parts of two texts. */
static int make_text(struct fs *fs, struct fs_handle *handle, uint64_t offset)
{
    const struct fs_shown before = handle->shown;
    int error = refresh(fs, handle);
    if (error || offset == 0 || !before.is_lost ||
        fs_shown_is_same(fs, handle, before.size, before.print))
        return error;
    fs_shown_drop(fs, handle);
    handle->shown = (struct fs_shown){
        .size = before.size, .is_fixed = true, .is_lost = true, .print = before.print};
    return -EIO;
}

static void reply_text(fuse_req_t req, struct fs_handle *handle, size_t size, uint64_t offset,
                       enum fs_reading reading)
{
    struct fs *fs = fs_of(req);
    struct fs_shown *shown = &handle->shown;
    int error = is_to_be_made(fs, handle, offset, reading) ? make_text(fs, handle, offset) : 0;
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    shown->is_told = false;
    shown->is_paged |= reading == FS_READ_PAGES;
    if (offset >= shown->size)
        size = 0;
    else if (size > shown->size - offset)
        size = shown->size - (size_t)offset;
    if (size)
        fs_shown_keep(fs, handle, (size_t)offset + size);
    fuse_reply_buf(req, size ? (const char *)shown->bytes + offset : NULL, size);
    if (size == 0 && offset > 0 && !shown->is_paged)
        fs_shown_finish(fs, handle);
}

/* Returns true if the text is the same for all users: `sessions` shows some names only to some
 * readers, but all open files share the pages. */
static bool is_for_all(struct fs *fs, const struct fs_handle *handle)
{
    struct fs_text own = {.uid = handle->uid}, common = {.uid = handle->uid};
    struct node node;
    bool same = false;
    if (node_get_kind(handle->node) != NODE_SESSIONS)
        return true;
    if (node_find(fs->core, handle->node, &node) == 0 &&
        fs_text_render(fs, &node, handle->uid, &own) == 0 &&
        fs_text_render(fs, &node, FS_NOBODY, &common) == 0)
        same = own.size == common.size && memcmp(own.data, common.data, own.size) == 0;
    free(own.data);
    free(common.data);
    return same;
}

/* See size.h. -EINVAL: this open file has no pages. */
static int check_pages(struct fs *fs, const struct fs_handle *handle, uint64_t offset)
{
    if (handle->shown.is_paged && handle->shown.bytes &&
        fs_is_newest_open(fs, handle->node, handle->id))
        return 0;
    bool begins = offset == 0 && !shows_held(node_get_kind(handle->node)) &&
                  fs_is_newest_open(fs, handle->node, handle->id) && is_for_all(fs, handle);
    return begins ? 0 : -EINVAL;
}

static void reply_prepared(struct fs_request *request, const struct service_answer *answer)
{
    struct fs_handle *handle = fs_handle_get(request->fs, request->file, request->node);
    int error = handle ? 0 : -ENOMEM;
    (void)answer;
    if (!error && request->reading == FS_READ_PAGES)
        error = check_pages(request->fs, handle,
                            request->offset); /* other clients may have opened it since */
    if (error)
        fs_reply_error(request->req, error);
    else
        reply_text(request->req, handle, request->bytes, request->offset, request->reading);
}

/* Measures the device before the reply, for texts with the memory that other processes use; for
 * `pieces` sums the bytes, which an INTERRUPT ends. */
static void prepare_and_reply(fuse_req_t req, const struct fs_handle *handle, size_t size,
                              uint64_t offset, enum fs_reading reading)
{
    struct fs_request *request = fs_request_new(req, reply_prepared, 0);
    if (!request)
        return;
    request->node = handle->node;
    request->file = handle->id;
    request->bytes = size;
    request->offset = offset;
    request->reading = reading;
    if (node_get_kind(handle->node) != NODE_PIECES)
        fs_request_submitted(request, service_measure(request->fs->service, &request->service));
    else if (fs_request_may_wait(request))
        fs_request_submitted(request,
                             service_sum(request->fs->service, handle->id, &request->service));
}

void fs_pseudo_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *handle = fs_handle_get(fs, fh, node);
    enum node_kind kind = node_get_kind(node);
    int error = handle ? 0 : -ENOMEM;
    if (!error && shows_held(kind) && !find_held(fs, fh))
        error = -ESTALE;
    if (!error && reading == FS_READ_PAGES)
        error = check_pages(fs, handle, offset);
    if (error)
        fs_reply_error(req, error);
    else if ((node_get_traits(kind)->is_measured || kind == NODE_PIECES) &&
             is_to_be_made(fs, handle, offset, reading))
        prepare_and_reply(req, handle, size, offset, reading);
    else
        reply_text(req, handle, size, offset, reading);
}
