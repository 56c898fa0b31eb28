/* SPDX-License-Identifier: Apache-2.0 */
/* attr - attributes, and the sizes that can be set */
#include "fs/fs_internal.h"

#include "meta/name.h"
#include "service/stores.h"

#include <errno.h>
#include <time.h>

/* ---- texts that are costly to make: their size is only known from the text ------------------- */

/* Answers by the text as it is now, which is kept for the read that follows. */
static void reply_rendered_attr(fuse_req_t req, const struct node *node)
{
    struct fs *fs = fs_of(req);
    uint64_t id = node_get_id(node);
    const struct fuse_ctx *context = fuse_req_ctx(req);
    struct fs_handle *handle = fs_find_unread(fs, id, (uint32_t)context->pid, context->uid);
    struct fs_text text = {.uid = context->uid};
    struct stat stat;
    int error = 0;

    fs_stat(fs, node, &stat);
    if (handle && fs_is_told_text_true(fs, handle)) {
        stat.st_size = (off_t)handle->shown.size;
    } else {
        error = fs_text_render(fs, node, context->uid, &text);
        stat.st_size = error ? 0 : (off_t)text.size;
        if (!error && handle)
            fs_keep_told_text(fs, handle, (uint8_t *)text.data, text.size);
        else if (!error)
            fs_keep_measured(fs, &(struct fs_measured){.node = id,
                                                       .uid = context->uid,
                                                       .tid = (uint32_t)context->pid,
                                                       .text = (uint8_t *)text.data,
                                                       .bytes = text.size});
    }
    if (error)
        fs_reply_error(req, error);
    else
        fuse_reply_attr(req, &stat, 0);
}

static void reply_measured(struct fs_request *request, const struct service_answer *answer)
{
    struct node node;

    (void)answer;
    if (node_find(request->fs->core, request->node, &node))
        fs_reply_error(request->req, fs_gone(request->req, NULL));
    else
        reply_rendered_attr(request->req, &node);
}

/* Answers a GETATTR of a text, now or once the device was measured. */
static void reply_attr_of_text(fuse_req_t req, const struct node *node)
{
    if (!node_get_traits(node->kind)->is_measured) {
        reply_rendered_attr(req, node);
        return;
    }
    struct fs_request *request = fs_request_new(req, reply_measured, 0);
    if (!request)
        return;
    request->node = node_get_id(node);
    fs_request_submitted(request, service_measure(request->fs->service, &request->service));
}

#define SET_OWNERSHIP (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)

/* `info`: NULL if the request came by a path and not by an open file. */
static void reply_attr(fuse_req_t req, uint64_t id, const struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct node node;
    struct stat stat;
    if (node_find(fs->core, id, &node)) {
        fs_reply_error(req, fs_gone(req, info));
        return;
    }
    if (fs_is_costly_text(node.kind)) {
        reply_attr_of_text(req, &node);
        return;
    }
    fs_stat(fs, &node, &stat);
    fuse_reply_attr(req, &stat, 0);
}

void fs_op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    reply_attr(req, node, info);
}

/* Returns true for a temporary file without bytes: a tool narrows its mode before it writes to it,
 * as mkstemp(3) does, and sets the final mode afterwards. */
static bool is_temporary_and_bare(const struct node *node)
{
    return node->allocation && node->allocation->memory == LAYOUT_NO_MEMORY &&
           name_is_temporary(node->allocation->name);
}

/* Owner and mode are the store's; setting the present values succeeds, as `cp -p` may do. */
static int check_ownership(const struct fs *fs, const struct node *node, const struct stat *attr,
                           int which)
{
    struct stat has;
    node_stat(fs->core, &fs->top, node, &has);
    bool same =
        (!(which & FUSE_SET_ATTR_MODE) || (attr->st_mode & 07777u) == (has.st_mode & 07777u) ||
         is_temporary_and_bare(node)) &&
        (!(which & FUSE_SET_ATTR_UID) || attr->st_uid == has.st_uid) &&
        (!(which & FUSE_SET_ATTR_GID) || attr->st_gid == has.st_gid);
    return same ? 0 : -EPERM;
}

static int set_ownership(fuse_req_t req, const struct node *node, const struct stat *attr,
                         int which)
{
    struct fs *fs = fs_of(req);
    struct service_caller caller;
    struct service_store_attr set = {
        .uid = attr->st_uid, .gid = attr->st_gid, .mode = attr->st_mode & 0777u};
    if (node->kind != NODE_STORE)
        return check_ownership(fs, node, attr, which);
    if (which & FUSE_SET_ATTR_MODE)
        set.which |= CORE_ATTR_MODE;
    if (which & FUSE_SET_ATTR_UID)
        set.which |= CORE_ATTR_UID;
    if (which & FUSE_SET_ATTR_GID)
        set.which |= CORE_ATTR_GID;
    fs_get_caller(req, 0, &caller);
    return service_store_set_attr(fs->service, node->store->id, &set, &caller);
}

static bool sets_other_than_now(int which)
{
    return ((which & FUSE_SET_ATTR_ATIME) && !(which & FUSE_SET_ATTR_ATIME_NOW)) ||
           ((which & FUSE_SET_ATTR_MTIME) && !(which & FUSE_SET_ATTR_MTIME_NOW));
}

/* Says that the store was changed now, as touch(1) does. A store has no other time that can be
 * set. */
static int touch_store(fuse_req_t req, const struct node *node, int which)
{
    struct service_caller caller;
    if (sets_other_than_now(which))
        return -EPERM;
    fs_get_caller(req, 0, &caller);
    return service_store_touch(fs_of(req)->service, node->store->id, &caller);
}

#define S_TO_NS INT64_C(1000000000)

/* -EOVERFLOW: more than 292 years from 1970. */
static int get_ns(const struct timespec *time, bool is_now, int64_t *ns)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (is_now)
        time = &now;
    if (time->tv_sec >= INT64_MAX / S_TO_NS || time->tv_sec <= INT64_MIN / S_TO_NS)
        return -EOVERFLOW;
    *ns = (int64_t)time->tv_sec * S_TO_NS + time->tv_nsec;
    return 0;
}

/* A time that the caller does not set stays unchanged. */
static int get_times(const struct stat *attr, int which, struct layout_times *times)
{
    int error = 0;
    *times = (struct layout_times){LAYOUT_NO_TIME, LAYOUT_NO_TIME};
    if (which & FUSE_SET_ATTR_ATIME)
        error = get_ns(&attr->st_atim, which & FUSE_SET_ATTR_ATIME_NOW, &times->access_ns);
    if (!error && (which & FUSE_SET_ATTR_MTIME))
        error = get_ns(&attr->st_mtim, which & FUSE_SET_ATTR_MTIME_NOW, &times->change_ns);
    return error;
}

/* Allocations and their directory keep the times that a writer sets; all other nodes show their
 * store's time, which can only be touched. */
static int set_times(fuse_req_t req, const struct node *node, const struct stat *attr, int which)
{
    struct service_times set = {.kind = CORE_KIND_ALLOCATION};
    struct service_caller caller;
    struct service_actor by;
    int error = 0;
    switch (node->kind) {
    case NODE_STORE:
        return touch_store(req, node, which);
    case NODE_ALLOCATION:
        set.serial = node->allocation->serial;
        break;
    case NODE_ALLOCATIONS:
        break;
    case NODE_METADATA:
    case NODE_ENTRY:
        set.kind = CORE_KIND_ENTRY;
        error = sets_other_than_now(which) ? -EPERM : 0;
        break;
    default:
        return -EPERM;
    }
    if (!error)
        error = get_times(attr, which, &set.times);
    if (!error)
        error = fs_get_actor(req, node->store->id, &caller, &by);
    return error ? error : service_set_times(fs_of(req)->service, &by, &set);
}

static int get_actor(fuse_req_t req, const struct node *node, const struct fuse_file_info *info,
                     struct service_caller *caller, struct service_actor *by)
{
    *by = (struct service_actor){.file = info ? info->fh : 0};
    return info ? 0 : fs_get_actor(req, node->store->id, caller, by);
}

static void reply_resized(struct fs_request *request, const struct service_answer *answer)
{
    (void)answer;
    reply_attr(request->req, request->node, NULL);
}

static void resize_allocation(fuse_req_t req, const struct node *node,
                              const struct service_actor *by, uint64_t size, fs_reply reply)
{
    struct fs *fs = fs_of(req);
    struct fs_request *request = fs_request_new(req, reply, 0);
    if (!request)
        return;
    request->node = node_get_id(node);
    fs_request_submitted(request, service_resize(fs->service, by, node->allocation->serial, size,
                                                 &request->service));
}

static void set_size(fuse_req_t req, const struct node *node, uint64_t size,
                     const struct fuse_file_info *info)
{
    uint64_t id = node_get_id(node);
    struct service_caller caller;
    struct service_actor by;
    if (node->kind != NODE_ALLOCATION && node->kind != NODE_ENTRY) {
        fs_reply_error(req, -EPERM);
        return;
    }
    int error = get_actor(req, node, info, &caller, &by);
    if (!error && node->kind == NODE_ALLOCATION) {
        resize_allocation(req, node, &by, size, reply_resized);
        return;
    }
    if (!error)
        error = fs_entry_resize(fs_of(req), id, &by, size);
    if (error)
        fs_reply_error(req, error);
    else
        reply_attr(req, id, info);
}

void fs_op_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int which,
                   struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct node node;
    int error = node_find(fs->core, id, &node) ? fs_gone(req, info) : 0;
    if (!error && (which & SET_OWNERSHIP))
        error = set_ownership(req, &node, attr, which);
    else if (!error && node.contents)
        error = -EPERM;
    else if (!error && (which & FUSE_SET_ATTR_SIZE)) {
        set_size(req, &node, (uint64_t)attr->st_size, info);
        return;
    } else if (!error)
        error = set_times(req, &node, attr, which);
    if (error)
        fs_reply_error(req, error);
    else
        reply_attr(req, id, info);
}

void fs_op_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t offset, off_t length,
                     struct fuse_file_info *info)
{
    struct service_actor by = {.file = info->fh};
    struct node node;
    uint64_t end = (uint64_t)offset + (uint64_t)length;
    int error = node_find(fs_of(req)->core, id, &node) ? fs_gone(req, info) : 0;
    if (!error && (mode != 0 || node.kind != NODE_ALLOCATION))
        error = -EOPNOTSUPP;
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    if (node.allocation->memory != LAYOUT_NO_MEMORY && !node.allocation->spool &&
        end < node.allocation->size_bytes)
        end = node.allocation->size_bytes; /* the memory has this size already */
    resize_allocation(req, &node, &by, end, fs_reply_done);
}
