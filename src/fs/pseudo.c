/* SPDX-License-Identifier: Apache-2.0 */
/* pseudo - files whose text is made when they are read: fixed then, and anew at offset 0 */
#include "fs/fs_internal.h"
#include "fs/residency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int copy_text(const void *from, size_t size, struct fs_text *text)
{
    text->data = malloc(size ? size : 1);
    if (!text->data)
        return -ENOMEM;
    if (size)
        memcpy(text->data, from, size);
    text->size = size;
    return 0;
}

static int render_state(const struct core_store *store, struct fs_text *text)
{
    char line[32];
    int size = snprintf(line, sizeof line, "%s\n", lock_state_name(lock_get_state(&store->lock)));
    return copy_text(line, (size_t)size, text);
}

static int render_residency(const struct fs *fs, const struct core_store *store,
                            struct fs_text *text)
{
    char lines[RESIDENCY_TEXT_BYTES];
    struct service_moving moving;
    bool moves = service_get_moving(fs->service, store, &moving);
    return copy_text(lines, residency_format(store, moves ? &moving : NULL, lines), text);
}

static int render_hash(const struct fs *fs, const struct core_store *store, struct fs_text *text)
{
    char line[34];
    if (!service_get_shown_layout(fs->service, store))
        return copy_text("", 0, text);
    fs_text_hex(store->hash, line);
    line[32] = '\n';
    return copy_text(line, 33, text);
}

static const struct core_session *find_held(const struct fs *fs, uint64_t fh)
{
    const struct core_file *file = core_find_file(fs->core, fh);
    return file && file->session ? core_find_session(fs->core, file->session) : NULL;
}

/* "RW 7": what this open file holds. */
static int render_held(const struct fs *fs, uint64_t fh, struct fs_text *text)
{
    const struct core_session *session = find_held(fs, fh);
    char line[40];
    if (!session)
        return -ESTALE;
    int size = snprintf(line, sizeof line, "%s %llu\n", lock_mode_name(session->mode),
                        (unsigned long long)session->id);
    return copy_text(line, (size_t)size, text);
}

static int render(struct fs *fs, const struct node *node, const struct fs_handle *handle,
                  struct fs_text *text)
{
    switch (node->kind) {
    case NODE_DEVICE:
        return fs_text_device(fs, text);
    case NODE_METRICS:
        return fs_text_metrics(fs, text);
    case NODE_POOLS:
        return fs_text_pools(fs, text);
    case NODE_STATE:
        return render_state(node->store, text);
    case NODE_RESIDENCY:
        return render_residency(fs, node->store, text);
    case NODE_LAYOUT_HASH:
        return render_hash(fs, node->store, text);
    case NODE_LAYOUT:
        return copy_text("", 0, text); /* what is committed is shared instead */
    case NODE_INFO:
        return fs_text_info(fs, node->store, text);
    case NODE_SESSIONS:
        return fs_text_sessions(fs, node->store, handle->uid, text);
    case NODE_REGION:
        return fs_text_region(fs, node->region, text);
    case NODE_LOCK:
    case NODE_AUTO:
    case NODE_DATA:
        return render_held(fs, handle->id, text);
    default:
        return -EINVAL;
    }
}

static int refresh(struct fs *fs, struct fs_handle *handle)
{
    struct node node;
    struct fs_text text;
    if (node_find(fs->core, handle->node, &node))
        return -ESTALE; /* the store was removed */
    struct blob *layout =
        node.kind == NODE_LAYOUT ? service_get_shown_layout(fs->service, node.store) : NULL;
    if (layout)
        return fs_shown_share(fs, handle, layout);
    int error = render(fs, &node, handle, &text);
    if (error)
        return error;
    if (node.kind == NODE_STATE || node.kind == NODE_RESIDENCY) {
        handle->version = fs_shown_version(&node);
        handle->has_version = true;
    }
    return fs_shown_set(fs, handle, (uint8_t *)text.data, text.size);
}

static bool is_to_be_made(const struct fs_shown *shown, uint64_t offset)
{
    return offset == 0 || !shown->is_fixed || (!shown->bytes && offset < shown->size);
}

/* Where a text is read on of which the last worker has made another one, it is not put together of
 * the two. */
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

static void reply_text(fuse_req_t req, struct fs_handle *handle, size_t size, uint64_t offset)
{
    struct fs *fs = fs_of(req);
    const struct fs_shown *shown = &handle->shown;
    int error = is_to_be_made(shown, offset) ? make_text(fs, handle, offset) : 0;
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    if (offset >= shown->size)
        size = 0;
    else if (size > shown->size - offset)
        size = shown->size - (size_t)offset;
    if (size)
        fs_shown_keep(fs, handle, (size_t)offset + size);
    fuse_reply_buf(req, size ? (const char *)shown->bytes + offset : NULL, size);
    if (size == 0 && offset > 0)
        fs_shown_finish(fs, handle);
}

static void reply_measured(struct fs_request *request, int error,
                           const struct service_answer *answer)
{
    struct fs_handle *handle = fs_handle_get(request->fs, request->file, request->node);
    (void)answer;
    if (!error && !handle)
        error = -ENOMEM;
    if (error)
        fs_reply_error(request->req, error);
    else
        reply_text(request->req, handle, request->bytes, request->offset);
}

/* What says how much of the device others hold asks the device first. */
static void measure_and_reply(fuse_req_t req, const struct fs_handle *handle, size_t size,
                              uint64_t offset)
{
    struct fs_request *request = fs_request_new(req, reply_measured, 0);
    if (!request)
        return;
    request->node = handle->node;
    request->file = handle->id;
    request->bytes = size;
    request->offset = offset;
    fs_request_submitted(request, service_measure(request->fs->service, &request->service));
}

void fs_pseudo_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *handle = fs_handle_get(fs, fh, node);
    enum node_kind kind = node_get_kind(node);
    int error = handle ? 0 : -ENOMEM;
    if (!error && (kind == NODE_LOCK || kind == NODE_AUTO || kind == NODE_DATA) &&
        !find_held(fs, fh))
        error = -ESTALE;
    if (error)
        fs_reply_error(req, error);
    else if (node_get_traits(kind)->is_measured && is_to_be_made(&handle->shown, offset))
        measure_and_reply(req, handle, size, offset);
    else
        reply_text(req, handle, size, offset);
}
