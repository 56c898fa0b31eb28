/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll - POLLPRI on `state` and `residency`, POLLIN on `events`
 *
 * Each open file keeps its newest poll handle; a notification makes the kernel ask again, so one
 * may come too often but never too rarely.
 */
#include "fs/fs_internal.h"

#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>

uint64_t fs_shown_version(const struct node *node)
{
    return node->kind == NODE_STATE ? node->store->version : node->store->places.version;
}

static unsigned get_ready(struct fs *fs, uint64_t id, const struct fs_handle *handle)
{
    struct node node;
    switch (node_get_kind(id)) {
    case NODE_EVENTS:
        return fs_events_are_readable(fs, handle) ? POLLIN | POLLRDNORM : 0;
    case NODE_STATE:
    case NODE_RESIDENCY:
        if (node_find(fs->core, id, &node)) /* removed: a read returns the error */
            return POLLIN | POLLRDNORM | POLLPRI | POLLERR | POLLHUP;
        if (handle && handle->has_version && handle->version == fs_shown_version(&node))
            return POLLIN | POLLRDNORM;
        return POLLIN | POLLRDNORM | POLLPRI;
    default:
        return POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM;
    }
}

/* Keeps the kernel's number of the poll, so that the next worker can wake it. libfuse hides the
 * number, so it is read from the request. */
static void keep_poll(struct fs *fs, struct fs_handle *handle)
{
    const uint8_t *request = fs->buffer.mem;
    struct fuse_poll_in poll;
    struct fs_kept_handle *kept = fs_handle_keep(fs, handle);
    memcpy(&poll, request + sizeof(struct fuse_in_header), sizeof poll);
    if (kept)
        atomic_store(&kept->poll, poll.kh);
}

void fs_op_poll(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *info,
                struct fuse_pollhandle *poll)
{
    struct fs *fs = fs_of(req);
    enum node_kind kind = node_get_kind(id);
    struct fs_handle *handle = fs_handle_find(fs, info->fh);
    if (poll && (kind == NODE_STATE || kind == NODE_RESIDENCY || kind == NODE_EVENTS)) {
        handle = fs_handle_get(fs, info->fh, id);
        if (!handle) {
            fuse_pollhandle_destroy(poll);
            fs_reply_error(req, -ENOMEM);
            return;
        }
        fs_handle_set_poll(fs, handle, poll);
        keep_poll(fs, handle);
    } else if (poll) {
        fuse_pollhandle_destroy(poll);
    }
    fuse_reply_poll(req, get_ready(fs, id, handle));
}

static void notify(struct fs *fs, uint64_t node)
{
    for (struct fs_handle *handle = fs->polls; handle; handle = handle->poll_next) {
        if (handle->node == node)
            fuse_lowlevel_notify_poll(handle->poll);
    }
}

static void on_state(void *context, uint64_t store)
{
    struct fs *fs = context;
    notify(fs, node_make_id(NODE_STATE, store));
    if (!core_find_store(fs->core, store)) /* removed */
        notify(fs, node_make_id(NODE_RESIDENCY, store));
}

static void on_place(void *context, uint64_t store)
{
    notify(context, node_make_id(NODE_RESIDENCY, store));
}

static void on_event(void *context)
{
    notify(context, node_make_id(NODE_EVENTS, 0));
}

void fs_observe(struct fs *fs)
{
    fs->observer = (struct service_observer){
        .context = fs, .on_state = on_state, .on_event = on_event, .on_place = on_place};
    service_observe(fs->service, &fs->observer);
}
