/* SPDX-License-Identifier: Apache-2.0 */
/* attr - attributes, and the sizes that can be set */
#include "fs/fs_internal.h"

#include <errno.h>

#define SET_OWNERSHIP (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID)

void fs_op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    fs_reply_attr(req, node, info);
}

/* Owner and mode are the store's; who asks for what they are already, as `cp -p` may, has it. */
static int check_ownership(const struct fs *fs, const struct node *node, const struct stat *attr,
                           int which)
{
    struct stat has;
    node_stat(fs->core, &fs->top, node, &has);
    bool same =
        (!(which & FUSE_SET_ATTR_MODE) || (attr->st_mode & 07777u) == (has.st_mode & 07777u)) &&
        (!(which & FUSE_SET_ATTR_UID) || attr->st_uid == has.st_uid) &&
        (!(which & FUSE_SET_ATTR_GID) || attr->st_gid == has.st_gid);
    return same ? 0 : -EPERM;
}

/* The kernel has checked that the caller may (default_permissions). */
static int set_ownership(struct fs *fs, const struct node *node, const struct stat *attr, int which)
{
    uint32_t set = 0;
    if (node->kind != NODE_STORE)
        return check_ownership(fs, node, attr, which);
    if (which & FUSE_SET_ATTR_MODE)
        set |= CORE_ATTR_MODE;
    if (which & FUSE_SET_ATTR_UID)
        set |= CORE_ATTR_UID;
    if (which & FUSE_SET_ATTR_GID)
        set |= CORE_ATTR_GID;
    return service_store_set_attr(fs->service, node->store->id, set, attr->st_uid, attr->st_gid,
                                  attr->st_mode & 0777u);
}

/* Times are the store's; a writer's touch succeeds and changes nothing. */
static int set_times(fuse_req_t req, const struct node *node)
{
    uint64_t session;
    switch (node->kind) {
    case NODE_STORE:
    case NODE_ALLOCATIONS:
    case NODE_METADATA:
    case NODE_ALLOCATION:
    case NODE_ENTRY:
        return fs_find_writer(req, node->store->id, &session);
    default:
        return -EPERM;
    }
}

static int find_session(fuse_req_t req, const struct node *node, const struct fuse_file_info *info,
                        uint64_t *session)
{
    if (info)
        return service_file_writer(fs_of(req)->service, info->fh, session);
    return fs_find_writer(req, node->store->id, session);
}

static void reply_resized(struct fs_request *request, int error,
                          const struct service_answer *answer)
{
    (void)answer;
    if (error)
        fs_reply_error(request->req, error);
    else
        fs_reply_attr(request->req, request->node, NULL);
}

static void resize_allocation(fuse_req_t req, const struct node *node, uint64_t session,
                              uint64_t size, fs_reply reply)
{
    struct fs *fs = fs_of(req);
    const struct layout_allocation *allocation = node->allocation;
    struct fs_request *request = fs_request_new(req, reply, 0);
    if (!request)
        return;
    request->node = node_get_id(node);
    if (allocation->memory != LAYOUT_NO_MEMORY && !allocation->spool &&
        allocation->size_bytes == size)
        fs_request_finish(request, 0, NULL); /* it has that size */
    else
        fs_request_submitted(request, service_resize(fs->service, session, allocation->serial, size,
                                                     &request->service));
}

static void set_size(fuse_req_t req, const struct node *node, uint64_t size,
                     const struct fuse_file_info *info)
{
    uint64_t session, id = node_get_id(node);
    int error;
    if (node->kind != NODE_ALLOCATION && node->kind != NODE_ENTRY) {
        fs_reply_error(req, -EPERM);
        return;
    }
    error = find_session(req, node, info, &session);
    if (!error && node->kind == NODE_ALLOCATION) {
        resize_allocation(req, node, session, size, reply_resized);
        return;
    }
    if (!error)
        error = fs_entry_resize(fs_of(req), id, info ? info->fh : 0, session, size);
    if (error)
        fs_reply_error(req, error);
    else
        fs_reply_attr(req, id, info);
}

void fs_op_setattr(fuse_req_t req, fuse_ino_t id, struct stat *attr, int which,
                   struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct node node;
    int error = node_find(fs->core, id, &node) ? fs_gone(req, info) : 0;
    if (!error && (which & SET_OWNERSHIP))
        error = set_ownership(fs, &node, attr, which);
    else if (!error && (which & FUSE_SET_ATTR_SIZE)) {
        set_size(req, &node, (uint64_t)attr->st_size, info);
        return;
    } else if (!error)
        error = set_times(req, &node);
    if (error)
        fs_reply_error(req, error);
    else
        fs_reply_attr(req, id, info);
}

void fs_op_fallocate(fuse_req_t req, fuse_ino_t id, int mode, off_t offset, off_t length,
                     struct fuse_file_info *info)
{
    struct node node;
    uint64_t session, end = (uint64_t)offset + (uint64_t)length;
    int error = node_find(fs_of(req)->core, id, &node) ? fs_gone(req, info) : 0;
    if (!error && (mode != 0 || node.kind != NODE_ALLOCATION))
        error = -EOPNOTSUPP;
    if (!error)
        error = service_file_writer(fs_of(req)->service, info->fh, &session);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    if (node.allocation->memory != LAYOUT_NO_MEMORY && !node.allocation->spool &&
        end < node.allocation->size_bytes)
        end = node.allocation->size_bytes; /* that much is there already */
    resize_allocation(req, &node, session, end, fs_reply_done);
}
