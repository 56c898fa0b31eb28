/* SPDX-License-Identifier: Apache-2.0 */
/* dir - the names of the tree: finding, making, removing and renaming them */
#include "fs/fs_internal.h"

#include "meta/name.h"
#include "service/stores.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

static int find(fuse_req_t req, uint64_t parent, const char *name, struct node *node)
{
    struct fs *fs = fs_of(req);
    int error = node_find(fs->core, parent, node);
    if (!error)
        error = fs_check_right(req, node, SERVICE_SEARCH);
    return error ? error : node_lookup(fs->core, &fs->top, parent, name, node);
}

void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node node;
    int error = find(req, parent, name, &node);
    if (error)
        fs_reply_error(req, error);
    else
        fs_reply_entry(req, &node);
}

/* ---- making ------------------------------------------------------------------------------ */

void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct fs *fs = fs_of(req);
    struct service_caller caller;
    struct node node = {.kind = NODE_STORE};
    uint64_t id;
    int error = node_get_kind(parent) == NODE_ROOT ? 0 : -EPERM;
    if (!error)
        error = fs_get_caller(req, 1, &caller);
    if (!error)
        error = service_store_create(fs->service, name, &caller, mode & 0777u, &id);
    if (!error) {
        node.store = core_find_store(fs->core, id);
        error = node.store ? 0 : -ENOENT;
    }
    if (error)
        fs_reply_error(req, error);
    else
        fs_reply_entry(req, &node);
}

/* bind(2) makes the ticket socket this way; nothing else is made by MKNOD. */
void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device)
{
    struct fs *fs = fs_of(req);
    const struct node_traits *socket = node_get_traits(NODE_FDS);
    struct node node = {.kind = NODE_FDS};
    (void)device;
    if (node_get_kind(parent) != NODE_ROOT || !S_ISSOCK(mode) || strcmp(name, socket->name) != 0 ||
        !service_is_admin(fs->service, fuse_req_ctx(req)->uid)) {
        fs_reply_error(req, -EPERM);
    } else if (fs->top.has_socket) {
        fs_reply_error(req, -EEXIST);
    } else {
        fs->top.has_socket = true;
        fs_reply_entry(req, &node);
    }
}

void fs_op_symlink(fuse_req_t req, const char *to, fuse_ino_t parent, const char *name)
{
    (void)to;
    (void)parent;
    (void)name;
    fs_reply_error(req, -EPERM);
}

void fs_op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char *name)
{
    (void)node;
    (void)parent;
    (void)name;
    fs_reply_error(req, -EPERM);
}

/* ---- removing ---------------------------------------------------------------------------- */

void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct service_caller caller;
    struct node node;
    int error = find(req, parent, name, &node);
    if (!error && node.kind != NODE_STORE)
        error = -EPERM;
    if (!error)
        error = fs_get_caller(req, 1, &caller);
    if (!error)
        error = service_store_remove(fs_of(req)->service, node.store->id, &caller);
    fs_reply_error(req, error);
}

/* A region in use stays, and drains. */
static int remove_region(fuse_req_t req, const struct region *region)
{
    struct service_caller caller;
    struct service_peer peer = {.uid = fuse_req_ctx(req)->uid};
    char name[REGION_MAX_NAME_BYTES];
    uint32_t owner = region->uid;
    size_t bytes = region->name_bytes;
    uint64_t count;
    memcpy(name, region->name, bytes);
    int error = fs_get_caller(req, 1, &caller);
    if (error)
        return error;
    if (caller.process_count > 0)
        peer.process = caller.processes[0];
    return service_region_unregister(fs_of(req)->service, &peer, owner, REGION_ANY, name, bytes,
                                     &count);
}

static int remove_found(fuse_req_t req, const struct node *node)
{
    struct service *service = fs_of(req)->service;
    struct service_caller caller;
    struct service_actor by;
    if (node->kind == NODE_REGION)
        return remove_region(req, node->region);
    if ((node->kind != NODE_ALLOCATION && node->kind != NODE_ENTRY) || node->contents)
        return -EPERM;
    int error = fs_get_actor(req, node->store->id, &caller, &by);
    if (error)
        return error;
    if (node->kind == NODE_ALLOCATION)
        return service_remove(service, &by, node->allocation->serial);
    char key[NAME_MAX_BYTES];
    memcpy(key, node->entry->key, node->entry->key_bytes);
    return service_entry_delete(service, &by, key, node->entry->key_bytes);
}

void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct node node;
    int error = find(req, parent, name, &node);
    if (!error)
        error = remove_found(req, &node);
    fs_reply_error(req, error);
}

/* ---- renaming ---------------------------------------------------------------------------- */

static int rename_store(fuse_req_t req, const struct node *node, const char *name, unsigned flags)
{
    struct service_caller caller;
    int error = fs_get_caller(req, 1, &caller);
    if (error)
        return error;
    return service_store_rename(fs_of(req)->service, node->store->id, name, flags, &caller);
}

static int rename_entry(struct fs *fs, const struct service_actor *by, const struct node *node,
                        const char *name, unsigned flags)
{
    char key[NAME_MAX_BYTES + 1];
    int size = name_decode_key(name, key);
    if (size < 0)
        return size;
    return service_entry_rename(fs->service, by, node->entry->serial, key, (size_t)size, flags);
}

static int rename_found(fuse_req_t req, const struct node *node, uint64_t parent,
                        uint64_t new_parent, const char *name, unsigned flags)
{
    struct fs *fs = fs_of(req);
    struct service_caller caller;
    struct service_actor by;
    if ((node->kind != NODE_STORE && node->kind != NODE_ALLOCATION && node->kind != NODE_ENTRY) ||
        node->contents)
        return -EPERM;
    if (parent != new_parent) /* mv then copies, and reports files that cannot be copied */
        return -EXDEV;
    if (node->kind == NODE_STORE)
        return rename_store(req, node, name, flags);
    if (flags & ~(unsigned)RENAME_NOREPLACE)
        return -EINVAL;
    int error = fs_get_actor(req, node->store->id, &caller, &by);
    if (error)
        return error;
    if (node->kind == NODE_ENTRY)
        return rename_entry(fs, &by, node, name, flags);
    return service_rename(fs->service, &by, node->allocation->serial, name, flags);
}

void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags)
{
    struct node node;
    int error = find(req, parent, name, &node);
    if (!error && strlen(new_name) > NAME_MAX_BYTES)
        error = -ENAMETOOLONG;
    if (!error)
        error = rename_found(req, &node, parent, new_parent, new_name, flags);
    fs_reply_error(req, error);
}

/* ---- the device as df sees it ------------------------------------------------------------ */

static void reply_statfs(struct fs_request *request, const struct service_answer *answer)
{
    struct fs *fs = request->fs;
    struct vmm_info info;
    uint64_t files = 0, room;
    (void)answer;
    service_get_device(fs->service, &info);
    for (size_t i = 0; i < fs->core->stores.count; i++) {
        const struct layout *layout = core_get_layout(fs->core, fs->core->stores.items[i]);
        files += layout_count_allocations(layout) + layout_count_entries(layout);
    }
    room = fs->core->stores.count * ((uint64_t)LAYOUT_MAX_ALLOCATIONS + LAYOUT_MAX_ENTRIES);
    uint64_t used = info.used_bytes + info.aside_bytes;
    /* Memory that other processes use is not free, although it is not the mount's. */
    uint64_t free_bytes = info.total_bytes - used;
    if (info.knows_others && info.free_bytes < free_bytes)
        free_bytes = info.free_bytes;
    struct statvfs stat = {
        .f_bsize = info.granularity_bytes,
        .f_frsize = info.granularity_bytes,
        .f_blocks = info.total_bytes / info.granularity_bytes,
        .f_files = room,
        .f_ffree = room - files,
        .f_favail = room - files,
        .f_namemax = NAME_MAX_BYTES,
    };
    stat.f_bfree = stat.f_bavail = free_bytes / info.granularity_bytes;
    fuse_reply_statfs(request->req, &stat);
}

void fs_op_statfs(fuse_req_t req, fuse_ino_t node)
{
    struct fs_request *request = fs_request_new(req, reply_statfs, 0);
    (void)node;
    if (request)
        fs_request_submitted(request, service_measure(request->fs->service, &request->service));
}
