/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readdir - listing directories that change meanwhile
 *
 * An offset is the place to continue, not a count of earlier names: a store's id, an allocation's
 * slot, an entry's serial, a region's id. So a client that removes the listed names misses none and
 * sees none twice, however small its buffer is. Entries come in the order of their creation. Names
 * in `files` come in the order of their keys, behind the entry with the offset's serial; a listing
 * ends where that entry was removed.
 */
#include "fs/fs_internal.h"

#include "base/array.h"
#include "meta/name.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Offsets: 1 and 2 stand after `.` and `..`, then fixed names by their kind, then all others. */
#define OFFSET_DOT    1u
#define OFFSET_DOTDOT 2u
/* As kernels know it (test_fs_frozen.c): kinds of directories without other names may be above. */
#define OFFSET_DYNAMIC (OFFSET_DOTDOT + NODE_FILES)

/* Bound of one answer: other requests wait while it is made. */
#define LISTING_BYTES (32u << 10)

struct listing {
    fuse_req_t req;
    struct fs *fs;
    char *out;
    size_t used, room;
};

/* Adds a name. `offset` is the place after it. False: the buffer is full. */
static bool add(struct listing *list, const char *name, uint64_t id, mode_t type, uint64_t offset)
{
    struct stat stat = {.st_ino = id, .st_mode = type};
    size_t size = fuse_add_direntry(list->req, list->out + list->used, list->room - list->used,
                                    name, &stat, (off_t)offset);
    if (size > list->room - list->used)
        return false;
    list->used += size;
    return true;
}

static bool list_dots(struct listing *list, const struct node *node, uint64_t offset)
{
    uint64_t up = node_make_id(NODE_ROOT, 0);
    if (node->kind == NODE_REGION_OWNER)
        up = node_make_id(NODE_REGIONS, 0);
    if (node->kind == NODE_ALLOCATIONS || node->kind == NODE_METADATA || node->kind == NODE_BY_ID)
        up = node_make_id(NODE_STORE, node->store->id);
    if (node->kind == NODE_CONTENTS)
        up = node_make_id(NODE_BY_ID, node->store->id);
    if (node->kind == NODE_ALLOCATIONS && node->contents) {
        struct node parent = *node;
        parent.kind = NODE_CONTENTS;
        up = node_get_id(&parent);
    }
    if (node->kind == NODE_FILES || node->kind == NODE_FILES_DIRECTORY) {
        struct node parent = node_get_parent(list->fs->core, node);
        up = node_get_id(&parent);
    }
    if (offset < OFFSET_DOT && !add(list, ".", node_get_id(node), S_IFDIR, OFFSET_DOT))
        return false;
    return offset >= OFFSET_DOTDOT || add(list, "..", up, S_IFDIR, OFFSET_DOTDOT);
}

static bool list_fixed(struct listing *list, const struct node *node, uint64_t offset)
{
    for (unsigned kind = 1; kind < NODE_KIND_COUNT; kind++) {
        const struct node_traits *traits = node_get_traits((enum node_kind)kind);
        struct node found = {
            .kind = (enum node_kind)kind, .store = node->store, .contents = node->contents};
        if (!traits->name || !node_has_name(node, (enum node_kind)kind) ||
            OFFSET_DOTDOT + kind <= offset)
            continue;
        if (kind == NODE_FDS && !list->fs->top.has_socket)
            continue;
        if (node->store && !node_has_fixed(list->fs->core, node->store, found.kind))
            continue;
        if (!add(list, traits->name, node_get_id(&found), traits->type, OFFSET_DOTDOT + kind))
            return false;
    }
    return true;
}

static void list_stores(struct listing *list, uint64_t offset)
{
    uint64_t id = offset > OFFSET_DYNAMIC ? offset - OFFSET_DYNAMIC : 0;
    const struct core_store *store;
    for (; (store = idvec_find_after(&list->fs->core->stores, id)); id = store->id) {
        if (!add(list, store->name, node_make_id(NODE_STORE, store->id), S_IFDIR,
                 OFFSET_DYNAMIC + store->id))
            return;
    }
}

static void list_allocations(struct listing *list, const struct node *node, uint64_t offset)
{
    const struct layout *layout = core_get_layout(list->fs->core, node->store);
    size_t count = layout_count_allocations(layout), rank = 0;
    ARRAY_SEARCH(rank, count, OFFSET_DYNAMIC + 1 + layout_at_rank(layout, rank)->slot <= offset);
    for (; rank < count; rank++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, rank);
        struct node found = {.kind = NODE_ALLOCATION,
                             .allocation = allocation,
                             .contents = node->contents,
                             .rank = rank};
        char spelled[24];
        snprintf(spelled, sizeof spelled, "%zu", rank);
        if (!add(list, node->contents ? spelled : allocation->name, node_get_id(&found), S_IFREG,
                 OFFSET_DYNAMIC + 1 + allocation->slot))
            return;
    }
}

static void list_entries(struct listing *list, const struct node *node, uint64_t offset)
{
    const struct layout *layout = core_get_layout(list->fs->core, node->store);
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    layout_cursor_seek_serial(&cursor, layout,
                              offset > OFFSET_DYNAMIC ? offset - OFFSET_DYNAMIC + 1 : 0);
    while ((entry = layout_cursor_next(&cursor))) {
        char name[NAME_MAX_BYTES + 1];
        if (name_encode_key(entry->key, entry->key_bytes, name) < 0)
            continue;
        if (!add(list, name, node_make_id(NODE_ENTRY, entry->serial), S_IFREG,
                 OFFSET_DYNAMIC + entry->serial))
            return;
    }
}

/* Files and directories in `files`, or below it. */
static void list_files(struct listing *list, const struct node *node, uint64_t offset)
{
    const struct layout *layout = core_get_layout(list->fs->core, node->store);
    const struct layout_entry *after = NULL;
    struct file_tree_walk walk;
    struct file_tree_child child;
    size_t bytes;
    const char *path = node_get_path(node, &bytes);
    if (offset >= OFFSET_DYNAMIC) {
        after = layout_find_entry_serial(layout, offset - OFFSET_DYNAMIC);
        if (!after)
            return;
    }
    file_tree_begin(&walk, layout, path, bytes, after);
    while (file_tree_next(&walk, &child)) {
        struct node found = node_make_child(node, &child);
        char name[NAME_MAX_BYTES + 1] = "";
        memcpy(name, child.name, child.name_bytes);
        if (!add(list, name, node_get_id(&found), node_get_traits(found.kind)->type,
                 OFFSET_DYNAMIC + child.entry->serial))
            return;
    }
}

/* By uid, the table's order. */
static void list_owners(struct listing *list, uint64_t offset)
{
    const struct regions *regions = &list->fs->core->regions;
    uint64_t uid = offset > OFFSET_DYNAMIC ? offset - OFFSET_DYNAMIC : 0;
    const struct region *next;
    while ((next = regions_from_owner(regions, uid))) {
        char name[16];
        snprintf(name, sizeof name, "%u", next->uid);
        uid = (uint64_t)next->uid + 1;
        if (!add(list, name, node_make_id(NODE_REGION_OWNER, next->uid), S_IFDIR,
                 OFFSET_DYNAMIC + uid))
            return;
    }
}

static void list_regions(struct listing *list, const struct node *node, uint64_t offset)
{
    const struct idvec *items = &list->fs->core->regions.items;
    for (size_t i = 0; i < items->count; i++) {
        const struct region *region = items->items[i];
        char name[NAME_MAX_BYTES + 1];
        if (region->uid != node->owner || OFFSET_DYNAMIC + region->id <= offset ||
            name_encode_key(region->name, region->name_bytes, name) < 0)
            continue;
        if (!add(list, name, node_make_id(NODE_REGION, region->id), S_IFREG,
                 OFFSET_DYNAMIC + region->id))
            return;
    }
}

static int new_dir(struct fs *fs, uint64_t id, const struct node *node, uint32_t uid,
                   struct fs_handle **out)
{
    const struct core_store *store = node->store;
    uint64_t of = store ? store->id : 0;
    int error = service_take(fs->service, SERVICE_BOUND_DIRECTORIES, of, uid, 1);
    if (error)
        return error;
    struct fs_handle *dir = calloc(1, sizeof *dir);
    error = dir ? 0 : -ENOMEM;
    if (!error) {
        *dir = (struct fs_handle){.id = id, .node = node_get_id(node), .store = of, .uid = uid};
        error = idvec_insert(&fs->dirs, dir);
    }
    if (error) {
        free(dir);
        service_give(fs->service, SERVICE_BOUND_DIRECTORIES, uid, 1);
        return error;
    }
    *out = dir;
    return 0;
}

static void drop_dir(struct fs *fs, uint64_t id)
{
    struct fs_handle *dir = idvec_remove(&fs->dirs, id);
    if (!dir)
        return;
    service_give(fs->service, SERVICE_BOUND_DIRECTORIES, dir->uid, 1);
    fs_handle_free(fs, dir);
}

void fs_op_opendir(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *dir = NULL;
    struct node node;
    int error = node_find(fs->core, id, &node);
    if (!error)
        error = fs_check_right(req, &node, SERVICE_READ);
    if (!error)
        error = new_dir(fs, fs->next_dir++, &node, fuse_req_ctx(req)->uid, &dir);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    info->fh = dir->id;
    if (fuse_reply_open(req, info) == -ENOENT)
        drop_dir(fs, dir->id);
}

void fs_op_readdir(fuse_req_t req, fuse_ino_t id, size_t size, off_t from,
                   struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct fs_handle *dir = idvec_find(&fs->dirs, info->fh);
    size_t room = size < LISTING_BYTES ? size : LISTING_BYTES;
    struct listing list = {.req = req, .fs = fs, .out = malloc(room), .room = room};
    uint64_t offset = (uint64_t)from;
    struct node node;
    int error = list.out ? node_find(fs->core, id, &node) : -ENOMEM;
    if (!error && !dir) /* another worker opened it */
        error = new_dir(fs, info->fh, &node, fuse_req_ctx(req)->uid, &dir);
    if (error == -ENOENT) /* removed: the directory is empty */
        goto out;
    if (error || !list_dots(&list, &node, offset) || !list_fixed(&list, &node, offset))
        goto out;
    if (node.kind == NODE_ROOT)
        list_stores(&list, offset);
    else if (node.kind == NODE_ALLOCATIONS)
        list_allocations(&list, &node, offset);
    else if (node.kind == NODE_METADATA)
        list_entries(&list, &node, offset);
    else if (node.kind == NODE_FILES || node.kind == NODE_FILES_DIRECTORY)
        list_files(&list, &node, offset);
    else if (node.kind == NODE_REGIONS)
        list_owners(&list, offset);
    else if (node.kind == NODE_REGION_OWNER)
        list_regions(&list, &node, offset);
out:
    if (error && error != -ENOENT)
        fs_reply_error(req, error);
    else
        fuse_reply_buf(req, list.out, list.used);
    free(list.out);
}

void fs_op_releasedir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info)
{
    (void)node;
    drop_dir(fs_of(req), info->fh);
    fs_reply_error(req, 0);
}

void fs_op_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *info)
{
    (void)node;
    (void)datasync;
    (void)info;
    fs_reply_error(req, 0);
}
