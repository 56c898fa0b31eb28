/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/node.h"

#include "meta/name.h"
#include "meta/pieces.h"
#include "service/rights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIND_BITS       8
#define BY_ID_BIT       0x80u /* of the kind: the node lies in by-id/ */
#define DEPTH_BITS      6
#define RANK_BITS       20
#define BLOCK_BYTES     512u
#define TRANSFER_BYTES  (1u << 20) /* FUSE's largest write, the best transfer size for cp and dd */
#define MODE_OF_TOP     0755u
#define MODE_OF_SOCKET  0666u
#define MODE_OF_REGIONS 0711u /* other users may not list the owners of regions */
#define MODE_OF_OWNER   0700u
#define MODE_OF_REGION  0400u
#define MODE_OF_FILE    0444u
#define MODE_OF_BY_ID   0555u

_Static_assert(FILE_ENTRY_MAX_DEPTH < 1u << DEPTH_BITS, "a depth fits into an id");

static const struct node_traits TRAITS[NODE_KIND_COUNT] = {
    [NODE_ROOT] = {NULL, NODE_NONE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_DEVICE] = {"device", NODE_ROOT, S_IFREG, CORE_KIND_PSEUDO, true},
    [NODE_EVENTS] = {"events", NODE_ROOT, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_METRICS] = {"metrics", NODE_ROOT, S_IFREG, CORE_KIND_PSEUDO, true},
    [NODE_FDS] = {".fds", NODE_ROOT, S_IFSOCK, CORE_KIND_NONE, false},
    [NODE_STORE] = {NULL, NODE_NONE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_STATE] = {"state", NODE_STORE, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_RESIDENCY] = {"residency", NODE_STORE, S_IFREG, CORE_KIND_RESIDENCY, false},
    [NODE_LAYOUT_HASH] = {"layout_hash", NODE_STORE, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_LAYOUT] = {"layout", NODE_STORE, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_INFO] = {"info", NODE_STORE, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_SESSIONS] = {"sessions", NODE_STORE, S_IFREG, CORE_KIND_PSEUDO, false},
    [NODE_LOCK] = {"lock", NODE_STORE, S_IFREG, CORE_KIND_LOCK, false},
    [NODE_AUTO] = {"auto", NODE_STORE, S_IFREG, CORE_KIND_AUTO, false},
    [NODE_CTL] = {"ctl", NODE_STORE, S_IFREG, CORE_KIND_CTL, false},
    [NODE_DATA] = {"data", NODE_STORE, S_IFREG, CORE_KIND_DATA, false},
    [NODE_COMMIT] = {"commit", NODE_STORE, S_IFREG, CORE_KIND_COMMIT, false},
    [NODE_SEAL] = {"seal", NODE_STORE, S_IFREG, CORE_KIND_SEAL, false},
    [NODE_ABORT] = {"abort", NODE_STORE, S_IFREG, CORE_KIND_ABORT, false},
    [NODE_ALLOCATIONS] = {"allocations", NODE_STORE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_METADATA] = {"metadata", NODE_STORE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_ALLOCATION] = {NULL, NODE_NONE, S_IFREG, CORE_KIND_ALLOCATION, false},
    [NODE_ENTRY] = {NULL, NODE_NONE, S_IFREG, CORE_KIND_ENTRY, false},
    [NODE_REGIONS] = {"regions", NODE_ROOT, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_REGION_OWNER] = {NULL, NODE_NONE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_POOLS] = {"pools", NODE_ROOT, S_IFREG, CORE_KIND_POOLS, false},
    [NODE_REGION] = {NULL, NODE_NONE, S_IFREG, CORE_KIND_REGION, false},
    [NODE_FILES] = {"files", NODE_STORE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_FILES_DIRECTORY] = {NULL, NODE_NONE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_FILE] = {NULL, NODE_NONE, S_IFREG, CORE_KIND_ALLOCATION, false},
    [NODE_PIECES] = {"pieces", NODE_STORE, S_IFREG, CORE_KIND_ALLOCATION, false},
    [NODE_BY_ID] = {"by-id", NODE_STORE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_CONTENTS] = {NULL, NODE_NONE, S_IFDIR, CORE_KIND_NONE, false},
    [NODE_MADE] = {MADE_FILE_NAME, NODE_FILES, S_IFREG, CORE_KIND_ALLOCATION, false},
    [NODE_MADE_GGUF] = {MADE_GGUF_NAME, NODE_FILES, S_IFREG, CORE_KIND_ALLOCATION, false},
};

_Static_assert(NODE_KIND_COUNT <= BY_ID_BIT, "the bit is no kind's");
_Static_assert(LAYOUT_MAX_ENTRIES <= 1u << RANK_BITS, "a rank fits into an id");
_Static_assert(CORE_MAX_CONTENTS <= UINT64_C(1) << (64 - KIND_BITS - RANK_BITS - DEPTH_BITS),
               "a number of contents fits into an id");

const struct node_traits *node_get_traits(enum node_kind kind)
{
    return &TRAITS[kind < NODE_KIND_COUNT ? kind : NODE_NONE];
}

uint64_t node_make_id(enum node_kind kind, uint64_t serial)
{
    return serial << KIND_BITS | (uint64_t)kind;
}

enum node_kind node_get_kind(uint64_t id)
{
    uint64_t kind = id & (BY_ID_BIT - 1);
    return kind < NODE_KIND_COUNT ? (enum node_kind)kind : NODE_NONE;
}

uint64_t node_get_id(const struct node *node)
{
    if (node->contents)
        return node_make_id(node->kind, (node->contents << RANK_BITS | node->rank) << DEPTH_BITS |
                                            node->depth) |
               BY_ID_BIT;
    if (node->allocation)
        return node_make_id(node->kind, node->allocation->serial);
    if (node->kind == NODE_FILES_DIRECTORY)
        return node_make_id(node->kind, node->entry->serial << DEPTH_BITS | node->depth);
    if (node->entry)
        return node_make_id(node->kind, node->entry->serial);
    if (node->region)
        return node_make_id(node->kind, node->region->id);
    if (node->kind == NODE_REGION_OWNER)
        return node_make_id(node->kind, node->owner);
    return node_make_id(node->kind, node->store ? node->store->id : 0);
}

/* An owner's directory exists while the owner has a region. */
static bool has_regions(const struct core *core, uint64_t uid)
{
    const struct region *first = regions_from_owner(&core->regions, uid);
    return first && first->uid == uid;
}

static int find_region(const struct core *core, uint64_t serial, struct node *node)
{
    if (node->kind == NODE_REGION_OWNER) {
        node->owner = (uint32_t)serial;
        return has_regions(core, serial) ? 0 : -ENOENT;
    }
    node->region = core_find_region(core, serial);
    if (!node->region)
        return -ENOENT;
    node->owner = node->region->uid;
    return 0;
}

enum node_kind node_find_made(const struct core *core, const struct core_store *store)
{
    bool is_there = store->made.size_bytes > 0 && core_get_layout(core, store) == store->fixed;
    return !is_there ? NODE_NONE : store->made.is_gguf ? NODE_MADE_GGUF : NODE_MADE;
}

bool node_has_files(const struct core *core, const struct core_store *store)
{
    const struct layout *layout = core_get_layout(core, store);

    /* Entries that are no files make the search long: a commit did it for its layout. */
    if (layout == store->fixed)
        return store->made.size_bytes > 0 || store->made.has_files;
    return file_tree_first(layout, NULL, 0) != NULL;
}

bool node_has_fixed(const struct core *core, const struct core_store *store, enum node_kind kind)
{
    if (kind == NODE_FILES)
        return node_has_files(core, store);
    return !node_is_made(kind) || node_find_made(core, store) == kind;
}

int node_get_file(const struct core *core, const struct node *node, struct file_tree_file *file)
{
    bool is_file = file_tree_read(core_get_layout(core, node->store), node->entry, file);
    return is_file ? 0 : -ENOENT;
}

/* Checks that the entry is a file whose path leads through a directory of this depth. */
static int check_depth(const struct core *core, const struct node *node)
{
    struct file_tree_file file;
    size_t bytes;
    const char *path = file_tree_path(node->entry, &bytes);
    return node_get_file(core, node, &file) == 0 && file_tree_cut(path, bytes, node->depth) > 0
               ? 0
               : -ENOENT;
}

/* Finds a file, or a directory below `files` by an entry in it. */
static int find_file(const struct core *core, uint64_t serial, struct node *node)
{
    struct file_tree_file file;
    if (node->kind == NODE_FILES_DIRECTORY) {
        node->depth = (unsigned)(serial & ((1u << DEPTH_BITS) - 1));
        serial >>= DEPTH_BITS;
    }
    node->entry = core_find_entry(core, serial, &node->store);
    if (!node->entry)
        return -ENOENT;
    if (node->kind == NODE_FILE)
        return node_get_file(core, node, &file);
    return check_depth(core, node);
}

/* The files and directories of a store that by-id/ID/ has. */
static bool is_by_id(enum node_kind kind)
{
    return kind == NODE_PIECES || kind == NODE_LAYOUT || kind == NODE_ALLOCATIONS ||
           kind == NODE_FILES;
}

bool node_has_name(const struct node *directory, enum node_kind kind)
{
    if (directory->kind == NODE_CONTENTS)
        return is_by_id(kind);
    return TRAITS[kind].parent == directory->kind && kind != NODE_BY_ID;
}

static int find_by_id(const struct core *core, uint64_t serial, struct node *node)
{
    struct file_tree_file file;
    node->depth = (unsigned)(serial & ((1u << DEPTH_BITS) - 1));
    node->rank = (size_t)(serial >> DEPTH_BITS & ((1u << RANK_BITS) - 1));
    node->contents = serial >> (DEPTH_BITS + RANK_BITS);
    node->store = core_find_contents(core, node->contents);
    if (!node->store)
        return -ENOENT;
    const struct layout *layout = core_get_layout(core, node->store);
    switch (node->kind) {
    case NODE_ALLOCATION:
        if (node->rank >= layout_count_allocations(layout))
            return -ENOENT;
        node->allocation = layout_at_rank(layout, node->rank);
        return 0;
    case NODE_FILE:
    case NODE_FILES_DIRECTORY:
        node->entry = layout_entry_at(layout, node->rank);
        if (!node->entry)
            return -ENOENT;
        return node->kind == NODE_FILE ? node_get_file(core, node, &file) : check_depth(core, node);
    default:
        if (node->kind != NODE_CONTENTS && !is_by_id(node->kind) && !node_is_made(node->kind))
            return -ENOENT;
        return node_has_fixed(core, node->store, node->kind) ? 0 : -ENOENT;
    }
}

int node_find(const struct core *core, uint64_t id, struct node *node)
{
    uint64_t serial = id >> KIND_BITS;
    *node = (struct node){.kind = node_get_kind(id)};
    if (id & BY_ID_BIT)
        return find_by_id(core, serial, node);
    if (node->kind == NODE_NONE)
        return -ENOENT;
    if (node->kind == NODE_ROOT || TRAITS[node->kind].parent == NODE_ROOT)
        return serial == 0 ? 0 : -ENOENT;
    if (node->kind == NODE_ALLOCATION) {
        node->allocation = core_find_allocation(core, serial, &node->store);
        return node->allocation ? 0 : -ENOENT;
    }
    if (node->kind == NODE_ENTRY) {
        node->entry = core_find_entry(core, serial, &node->store);
        return node->entry ? 0 : -ENOENT;
    }
    if (node->kind == NODE_REGION_OWNER || node->kind == NODE_REGION)
        return find_region(core, serial, node);
    if (node->kind == NODE_FILES_DIRECTORY || node->kind == NODE_FILE)
        return find_file(core, serial, node);
    node->store = core_find_store(core, serial);
    if (!node->store || node->kind == NODE_CONTENTS)
        return -ENOENT;
    return node_has_fixed(core, node->store, node->kind) ? 0 : -ENOENT;
}

static enum node_kind find_fixed(enum node_kind parent, const char *name)
{
    for (unsigned kind = 1; kind < NODE_KIND_COUNT; kind++) {
        const struct node_traits *traits = &TRAITS[kind];
        if (traits->parent == parent && traits->name && traits->name[0] == name[0] &&
            strcmp(traits->name, name) == 0)
            return (enum node_kind)kind;
    }
    return NODE_NONE;
}

static int lookup_top(const struct core *core, const struct node_top *top, const char *name,
                      struct node *node)
{
    enum node_kind kind = find_fixed(NODE_ROOT, name);
    if (kind == NODE_FDS && !top->has_socket)
        return -ENOENT;
    *node = (struct node){.kind = kind};
    if (kind != NODE_NONE)
        return 0;
    node->kind = NODE_STORE;
    node->store = core_find_store_name(core, name);
    return node->store ? 0 : -ENOENT;
}

static int lookup_entry(const struct core *core, const struct core_store *store, const char *name,
                        struct node *node)
{
    char key[NAME_MAX_BYTES + 1];
    int size = name_decode_key(name, key);
    if (size < 0)
        return size;
    *node = (struct node){.kind = NODE_ENTRY, .store = store};
    node->entry = layout_find_entry(core_get_layout(core, store), key, (size_t)size);
    if (node->entry)
        core_hint_serial(core, node->entry->serial, store->id);
    return node->entry ? 0 : -ENOENT;
}

/* Parses a uid in decimal, without leading zeros. */
static int lookup_owner(const struct core *core, const char *name, struct node *node)
{
    uint64_t uid = 0;
    size_t digits = strspn(name, "0123456789");
    *node = (struct node){.kind = NODE_REGION_OWNER};
    if (digits == 0 || digits > 10 || name[digits] || (name[0] == '0' && digits > 1))
        return -ENOENT;
    for (size_t i = 0; i < digits; i++)
        uid = uid * 10 + (uint64_t)(name[i] - '0');
    node->owner = (uint32_t)uid;
    return uid <= UINT32_MAX && has_regions(core, uid) ? 0 : -ENOENT;
}

static int lookup_region(const struct core *core, uint32_t owner, const char *name,
                         struct node *node)
{
    char key[NAME_MAX_BYTES + 1];
    int size = name_decode_key(name, key);
    if (size < 0)
        return size;
    *node = (struct node){.kind = NODE_REGION, .owner = owner};
    node->region = regions_find_name(&core->regions, owner, key, (size_t)size);
    return node->region ? 0 : -ENOENT;
}

const char *node_get_path(const struct node *node, size_t *bytes)
{
    *bytes = 0;
    if (node->kind == NODE_FILES)
        return "";
    const char *path = file_tree_path(node->entry, bytes);
    *bytes = file_tree_cut(path, *bytes, node->depth);
    return path;
}

struct node node_make_child(const struct node *directory, const struct file_tree_child *child)
{
    return (struct node){
        .kind = child->is_directory ? NODE_FILES_DIRECTORY : NODE_FILE,
        .store = directory->store,
        .entry = child->entry,
        .depth = child->is_directory ? directory->depth + 1 : 0,
        .contents = directory->contents,
        .rank = directory->contents ? layout_entry_rank(directory->store->fixed, child->entry) : 0,
    };
}

struct node node_get_parent(const struct core *core, const struct node *directory)
{
    struct node parent = *directory;
    size_t bytes;
    if (directory->kind == NODE_FILES)
        return (struct node){.kind = directory->contents ? NODE_CONTENTS : NODE_STORE,
                             .store = directory->store,
                             .contents = directory->contents};
    parent.depth--;
    parent.kind = parent.depth > 0 ? NODE_FILES_DIRECTORY : NODE_FILES;
    const char *path = node_get_path(&parent, &bytes);
    parent.entry = parent.depth > 0
                       ? file_tree_first(core_get_layout(core, directory->store), path, bytes)
                       : NULL;
    parent.rank = parent.entry && parent.contents
                      ? layout_entry_rank(directory->store->fixed, parent.entry)
                      : 0;
    return parent;
}

static int lookup_fixed(const struct core *core, const struct node *directory, const char *name,
                        struct node *node)
{
    *node = (struct node){.kind = find_fixed(directory->kind, name),
                          .store = directory->store,
                          .contents = directory->contents};
    return node->kind != NODE_NONE && node_has_fixed(core, node->store, node->kind) ? 0 : -ENOENT;
}

static int lookup_file(const struct core *core, const struct node *directory, const char *name,
                       struct node *node)
{
    const struct layout *layout = core_get_layout(core, directory->store);
    struct file_tree_child child;
    size_t bytes;
    const char *path = node_get_path(directory, &bytes);
    if (lookup_fixed(core, directory, name, node) == 0)
        return 0;
    if (!file_tree_find(layout, path, bytes, name, &child))
        return -ENOENT;
    *node = node_make_child(directory, &child);
    core_hint_serial(core, child.entry->serial, directory->store->id);
    return 0;
}

static int lookup_id(const struct core_store *store, const char *name, struct node *node)
{
    uint8_t id[sizeof store->contents_id];
    *node = (struct node){.kind = NODE_CONTENTS, .store = store, .contents = store->contents};
    return store->contents && core_is_settled(store) && pieces_parse_id(name, id) == 0 &&
                   memcmp(id, store->contents_id, sizeof id) == 0
               ? 0
               : -ENOENT;
}

static int lookup_in_contents(const struct core *core, const struct node *directory,
                              const char *name, struct node *node)
{
    struct node store = {
        .kind = NODE_STORE, .store = directory->store, .contents = directory->contents};
    int error = lookup_fixed(core, &store, name, node);
    return error || is_by_id(node->kind) ? error : -ENOENT;
}

/* Finds an allocation by its rank in decimal, without leading zeros. */
static int lookup_rank(const struct node *directory, const char *name, struct node *node)
{
    const struct layout *layout = directory->store->fixed;
    char spelled[24];
    *node = *directory;
    node->kind = NODE_ALLOCATION;
    node->rank = strtoul(name, NULL, 10);
    snprintf(spelled, sizeof spelled, "%zu", node->rank);
    if (strcmp(spelled, name) != 0 || node->rank >= layout_count_allocations(layout))
        return -ENOENT;
    node->allocation = layout_at_rank(layout, node->rank);
    return 0;
}

int node_lookup(const struct core *core, const struct node_top *top, uint64_t parent,
                const char *name, struct node *node)
{
    struct node directory;
    int error = node_find(core, parent, &directory);
    if (error)
        return error;
    if (strlen(name) > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    switch (directory.kind) {
    case NODE_ROOT:
        return lookup_top(core, top, name, node);
    case NODE_STORE:
        return lookup_fixed(core, &directory, name, node);
    case NODE_BY_ID:
        return lookup_id(directory.store, name, node);
    case NODE_CONTENTS:
        return lookup_in_contents(core, &directory, name, node);
    case NODE_ALLOCATIONS:
        if (directory.contents)
            return lookup_rank(&directory, name, node);
        *node = (struct node){.kind = NODE_ALLOCATION, .store = directory.store};
        node->allocation = layout_find_name(core_get_layout(core, directory.store), name);
        if (node->allocation)
            core_hint_serial(core, node->allocation->serial, directory.store->id);
        return node->allocation ? 0 : -ENOENT;
    case NODE_METADATA:
        return lookup_entry(core, directory.store, name, node);
    case NODE_FILES:
    case NODE_FILES_DIRECTORY:
        return lookup_file(core, &directory, name, node);
    case NODE_REGIONS:
        return lookup_owner(core, name, node);
    case NODE_REGION_OWNER:
        return lookup_region(core, directory.owner, name, node);
    default:
        return -ENOTDIR;
    }
}

static mode_t get_mode(const struct node *node)
{
    const struct node_traits *traits = &TRAITS[node->kind];
    if (node->kind == NODE_FDS)
        return S_IFSOCK | MODE_OF_SOCKET;
    if (node->kind == NODE_REGIONS)
        return S_IFDIR | MODE_OF_REGIONS;
    if (node->kind == NODE_REGION_OWNER)
        return S_IFDIR | MODE_OF_OWNER;
    if (node->kind == NODE_REGION)
        return S_IFREG | MODE_OF_REGION;
    mode_t base = node->store ? node->store->mode & 0777u : MODE_OF_TOP;
    if (node->contents || node->kind == NODE_BY_ID)
        base &= MODE_OF_BY_ID;
    if (traits->type == S_IFDIR)
        return S_IFDIR | base;
    mode_t mask = 0;
    if (node->kind == NODE_FILE || node->kind == NODE_PIECES || node_is_made(node->kind))
        return S_IFREG | (base & MODE_OF_FILE);
    if (service_get_directions(traits->file) & SERVICE_READ)
        mask |= 0444u;
    if (service_get_directions(traits->file) & SERVICE_WRITE)
        mask |= 0222u;
    return S_IFREG | (base & mask);
}

static nlink_t count_owners(const struct core *core)
{
    const struct region *next = regions_from_owner(&core->regions, 0);
    nlink_t count = 2;
    for (; next; count++)
        next = regions_from_owner(&core->regions, (uint64_t)next->uid + 1);
    return count;
}

static nlink_t count_links(const struct core *core, const struct node *node)
{
    switch (node->kind) {
    case NODE_ROOT:
        return (nlink_t)(3 + core->stores.count); /* and `regions` */
    case NODE_STORE:
        /* itself, its name, and `..` of its directories */
        return node_has_files(core, node->store) ? 5 : 4;
    case NODE_CONTENTS:
        return node_has_files(core, node->store) ? 4 : 3;
    case NODE_BY_ID:
    case NODE_ALLOCATIONS:
    case NODE_METADATA:
    case NODE_REGION_OWNER:
        return 2;
    case NODE_REGIONS:
        return count_owners(core);
    default:
        return 1; /* of a directory below `files`: the number of those in it is unknown */
    }
}

static uint32_t get_owner(const struct node_top *top, const struct node *node)
{
    if (node->kind == NODE_REGION || node->kind == NODE_REGION_OWNER)
        return node->owner;
    return node->store ? node->store->uid : top->uid;
}

static void set_time(struct timespec *time, int64_t ns)
{
    const int64_t each = 1000000000;
    int64_t part = (ns % each + each) % each; /* also before 1970 */
    if (ns == LAYOUT_NO_TIME)
        return;
    time->tv_sec = (time_t)((ns - part) / each);
    time->tv_nsec = (long)part;
}

static void set_size(struct stat *stat, uint64_t bytes)
{
    stat->st_size = (off_t)bytes;
    stat->st_blocks = (blkcnt_t)((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES);
}

static void stat_file(const struct core *core, const struct node *node, struct stat *stat)
{
    struct file_tree_file file;
    if (node_get_file(core, node, &file) != 0)
        return;
    set_size(stat, file.size_bytes);
    if (file.mtime_ns != FILE_ENTRY_NO_TIME)
        set_time(&stat->st_mtim, file.mtime_ns);
}

/* Sets the times that a writer has set. A sealed store does not show them, because its bytes go on
 * changing. */
static void set_kept_times(const struct core *core, const struct node *node, struct stat *stat)
{
    struct layout_times times;
    if (node->allocation)
        times = node->allocation->times;
    else if (node->kind == NODE_ALLOCATIONS)
        times = layout_get_times(core_get_layout(core, node->store));
    else
        return;
    if (node->store->lock.sealed)
        return;
    set_time(&stat->st_atim, times.access_ns);
    set_time(&stat->st_mtim, times.change_ns);
}

void node_stat(const struct core *core, const struct node_top *top, const struct node *node,
               struct stat *stat)
{
    *stat = (struct stat){
        .st_ino = node_get_id(node),
        .st_mode = get_mode(node),
        .st_nlink = count_links(core, node),
        .st_uid = get_owner(top, node),
        .st_gid = node->store ? node->store->gid : top->gid,
        .st_blksize = TRANSFER_BYTES,
    };
    uint64_t time_ms = top->started_ms;
    if (node->store)
        time_ms = node->store->changed_ms;
    else if (node->region)
        time_ms = node->region->registered_ms;
    set_time(&stat->st_mtim, (int64_t)time_ms * 1000000);
    stat->st_atim = stat->st_ctim = stat->st_mtim;
    set_kept_times(core, node, stat);
    if (node->kind == NODE_FILE) {
        stat_file(core, node, stat);
    } else if (node_is_made(node->kind)) {
        set_size(stat, node->store->made.size_bytes);
    } else if (node->allocation) {
        stat->st_size = (off_t)node->allocation->size_bytes;
        stat->st_blocks = (blkcnt_t)(node->allocation->aligned_bytes / BLOCK_BYTES);
    } else if (node->kind == NODE_ENTRY) {
        set_size(stat, node->entry->value_bytes);
    }
}
