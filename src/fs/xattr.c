/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xattr - user.gmsfs.* on stores, allocations and entries
 *
 * Every other name is unknown, not unsupported: one ENOSYS would turn extended attributes off for
 * the whole mount.
 */
#include "fs/fs_internal.h"

#include "service/pools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

static int print_number(uint64_t number, char value[256])
{
    return snprintf(value, 256, "%llu", (unsigned long long)number);
}

static int get_rank(const struct fs *fs, const struct node *node, char value[256])
{
    size_t rank = 0;
    layout_find_slot(core_get_layout(fs->core, node->store), node->allocation->slot, &rank);
    return print_number(rank, value);
}

static int get_slot(const struct fs *fs, const struct node *node, char value[256])
{
    (void)fs;
    return print_number(node->allocation->slot, value);
}

static int get_tag(const struct fs *fs, const struct node *node, char value[256])
{
    (void)fs;
    return snprintf(value, 256, "%s", node->allocation->tag);
}

static int get_aligned(const struct fs *fs, const struct node *node, char value[256])
{
    (void)fs;
    return print_number(node->allocation->aligned_bytes, value);
}

static int get_bound(const struct fs *fs, const struct node *node, char value[256])
{
    const struct layout_allocation *allocation =
        layout_find_slot(core_get_layout(fs->core, node->store), node->entry->slot, NULL);
    if (node->entry->slot == LAYOUT_UNBOUND || !allocation)
        return -ENODATA;
    return snprintf(value, 256, "%s", allocation->name);
}

static int get_offset(const struct fs *fs, const struct node *node, char value[256])
{
    (void)fs;
    return print_number(node->entry->offset, value);
}

static int set_tag(struct fs *fs, const struct service_actor *by, const struct node *node,
                   const char *value)
{
    return service_set_tag(fs->service, by, node->allocation->serial, value);
}

/* Binds the entry to an allocation by name; "" or "-", which no allocation is called, unbinds
 * it. */
static int set_bound(struct fs *fs, const struct service_actor *by, const struct node *node,
                     const char *value)
{
    const struct layout *layout = core_get_layout(fs->core, node->store);
    const struct layout_allocation *allocation = layout_find_name(layout, value);
    if (allocation)
        return service_entry_bind(fs->service, by, node->entry->serial, allocation->slot,
                                  node->entry->offset);
    if (value[0] && strcmp(value, "-") != 0)
        return -EINVAL;
    return service_entry_bind(fs->service, by, node->entry->serial, LAYOUT_UNBOUND, 0);
}

static int set_offset(struct fs *fs, const struct service_actor *by, const struct node *node,
                      const char *value)
{
    char *end;
    errno = 0;
    unsigned long long offset = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || errno || *end)
        return -EINVAL;
    return service_entry_bind(fs->service, by, node->entry->serial, node->entry->slot, offset);
}

/* Absent for most stores. */
static int get_pool(const struct fs *fs, const struct node *node, char value[256])
{
    const struct core_pool *pool = core_find_pool(fs->core, node->store);
    return pool->id == CORE_DEFAULT_POOL ? -ENODATA : snprintf(value, 256, "%s", pool->name);
}

static int get_pin(const struct fs *fs, const struct node *node, char value[256])
{
    (void)fs;
    return node->store->use.pinned ? print_number(1, value) : -ENODATA;
}

static int get_last_used(const struct fs *fs, const struct node *node, char value[256])
{
    uint64_t last_used_ms = fs_get_last_used_ms(node->store);
    (void)fs;
    return last_used_ms ? print_number(last_used_ms, value) : -ENODATA;
}

static int set_pool(struct fs *fs, const struct service_actor *by, const struct node *node,
                    const char *value)
{
    return service_set_store_pool(fs->service, node->store->id, value, by->caller);
}

static int set_pin(struct fs *fs, const struct service_actor *by, const struct node *node,
                   const char *value)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return -EINVAL;
    return service_set_store_pin(fs->service, node->store->id, value[0] == '1', by->caller);
}

#define ATTRIBUTE_NAME_BYTES 32

struct attribute {
    char name[ATTRIBUTE_NAME_BYTES];
    enum node_kind kind;
    int (*get)(const struct fs *fs, const struct node *node, char value[256]);
    /* NULL: read only */
    int (*set)(struct fs *fs, const struct service_actor *by, const struct node *node,
               const char *value);
    const char *removed; /* removing sets this; NULL: cannot be removed */
};

static const struct attribute ATTRIBUTES[] = {
    {"user.gmsfs.rank", NODE_ALLOCATION, get_rank, NULL, NULL},
    {"user.gmsfs.slot", NODE_ALLOCATION, get_slot, NULL, NULL},
    {"user.gmsfs.tag", NODE_ALLOCATION, get_tag, set_tag, ""},
    {"user.gmsfs.aligned_size", NODE_ALLOCATION, get_aligned, NULL, NULL},
    {"user.gmsfs.allocation", NODE_ENTRY, get_bound, set_bound, ""},
    {"user.gmsfs.offset", NODE_ENTRY, get_offset, set_offset, "0"},
    {"user.gmsfs.pool", NODE_STORE, get_pool, set_pool, "default"},
    {"user.gmsfs.pin", NODE_STORE, get_pin, set_pin, "0"},
    {"user.gmsfs.last_used", NODE_STORE, get_last_used, NULL, NULL},
};

#define ATTRIBUTE_COUNT (sizeof ATTRIBUTES / sizeof ATTRIBUTES[0])

static const struct attribute *find_attribute(const struct node *node, const char *name)
{
    for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
        if (ATTRIBUTES[i].kind == node->kind && strcmp(ATTRIBUTES[i].name, name) == 0)
            return &ATTRIBUTES[i];
    }
    return NULL;
}

/* As getxattr(2): size 0 asks for the length. */
static void reply_value(fuse_req_t req, const char *value, size_t bytes, size_t size)
{
    if (size == 0)
        fuse_reply_xattr(req, bytes);
    else if (bytes > size)
        fs_reply_error(req, -ERANGE);
    else
        fuse_reply_buf(req, value, bytes);
}

void fs_op_getxattr(fuse_req_t req, fuse_ino_t id, const char *name, size_t size)
{
    struct fs *fs = fs_of(req);
    struct node node;
    char value[256];
    int error = node_find(fs->core, id, &node) ? fs_gone(req, NULL) : 0;
    if (!error)
        error = fs_check_right(req, &node, SERVICE_READ);
    const struct attribute *attribute = error ? NULL : find_attribute(&node, name);
    if (!error)
        error = attribute ? attribute->get(fs, &node, value) : -ENODATA;
    if (error < 0)
        fs_reply_error(req, error);
    else
        reply_value(req, value, (size_t)error, size);
}

void fs_op_listxattr(fuse_req_t req, fuse_ino_t id, size_t size)
{
    struct fs *fs = fs_of(req);
    struct node node;
    char list[ATTRIBUTE_COUNT * ATTRIBUTE_NAME_BYTES], value[256];
    size_t used = 0;
    if (node_find(fs->core, id, &node)) {
        fs_reply_error(req, fs_gone(req, NULL));
        return;
    }
    for (size_t i = 0; i < ATTRIBUTE_COUNT; i++) {
        if (ATTRIBUTES[i].kind != node.kind || ATTRIBUTES[i].get(fs, &node, value) < 0)
            continue;
        size_t bytes = strlen(ATTRIBUTES[i].name) + 1;
        memcpy(list + used, ATTRIBUTES[i].name, bytes);
        used += bytes;
    }
    reply_value(req, list, used, size);
}

static int set_value(fuse_req_t req, const struct node *node, const struct attribute *attribute,
                     const char *value)
{
    struct service_caller caller;
    struct service_actor by;
    if (!attribute->set || node->contents)
        return -EPERM;
    int error = fs_get_actor(req, node->store->id, &caller, &by);
    return error ? error : attribute->set(fs_of(req), &by, node, value);
}

void fs_op_setxattr(fuse_req_t req, fuse_ino_t id, const char *name, const char *value, size_t size,
                    int flags)
{
    struct fs *fs = fs_of(req);
    struct node node;
    char text[256], old[256];
    int error = node_find(fs->core, id, &node) ? fs_gone(req, NULL) : 0;
    const struct attribute *attribute = error ? NULL : find_attribute(&node, name);
    if (!error && !attribute)
        error = -EOPNOTSUPP;
    else if (!error && (size >= sizeof text || memchr(value, '\0', size)))
        error = -EINVAL;
    else if (!error && (flags & XATTR_CREATE) && attribute->get(fs, &node, old) >= 0)
        error = -EEXIST;
    else if (!error && (flags & XATTR_REPLACE) && attribute->get(fs, &node, old) < 0)
        error = -ENODATA;
    if (!error) {
        memcpy(text, value, size);
        text[size] = '\0';
        error = set_value(req, &node, attribute, text);
    }
    fs_reply_error(req, error);
}

void fs_op_removexattr(fuse_req_t req, fuse_ino_t id, const char *name)
{
    struct node node;
    int error = node_find(fs_of(req)->core, id, &node) ? fs_gone(req, NULL) : 0;
    const struct attribute *attribute = error ? NULL : find_attribute(&node, name);
    if (!error && !attribute)
        error = -ENODATA;
    else if (!error && !attribute->removed)
        error = -EPERM;
    else if (!error)
        error = set_value(req, &node, attribute, attribute->removed);
    fs_reply_error(req, error);
}
