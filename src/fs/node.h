/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node - FUSE node numbers and their attributes
 *
 * A node id is (serial << 8) | kind: the serial is the id of a store, an allocation, an entry or a
 * region, or the uid of an owner of regions. A file in files/ has its entry's serial; a directory
 * there (serial << 6) | depth, with the serial of its first entry and the number of names in its
 * path. A node in by-id/ has the number of its contents id instead (core_store.contents), its
 * rank among the allocations or entries, and its depth: such an id means the same bytes for ever,
 * and nothing once the store has others. Nothing is remembered about nodes, so lookups need no
 * count and FORGET nothing to do; an id whose object is gone is simply not found. Pure: only reads
 * the core. Called by the files of src/fs.
 */
#ifndef GMSFS_FS_NODE_H
#define GMSFS_FS_NODE_H

#include "core/core.h"
#include "meta/file_tree.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* Kernels keep these numbers while a mount lives: a new kind goes to the end (test_fs_frozen). */
enum node_kind {
    NODE_NONE = 0,
    NODE_ROOT = 1, /* with serial 0 FUSE's id of the root */
    NODE_DEVICE,
    NODE_EVENTS,
    NODE_METRICS,
    NODE_FDS,
    NODE_STORE,
    NODE_STATE,
    NODE_RESIDENCY,
    NODE_LAYOUT_HASH,
    NODE_LAYOUT,
    NODE_INFO,
    NODE_SESSIONS,
    NODE_LOCK,
    NODE_AUTO,
    NODE_CTL,
    NODE_DATA,
    NODE_COMMIT,
    NODE_SEAL,
    NODE_ABORT,
    NODE_ALLOCATIONS,
    NODE_METADATA,
    NODE_ALLOCATION,
    NODE_ENTRY,
    NODE_REGIONS,
    NODE_REGION_OWNER, /* its serial is the uid */
    NODE_REGION,
    NODE_POOLS,
    NODE_FILES,           /* there while the store has an entry of a file, or a made one */
    NODE_FILES_DIRECTORY, /* below `files` */
    NODE_FILE,
    NODE_PIECES,
    NODE_BY_ID,     /* `by-id`, which no listing shows */
    NODE_CONTENTS,  /* the directory in it */
    NODE_MADE,      /* the file of a store's tensors (made_file.h); its serial is the store's */
    NODE_MADE_GGUF, /* the same as a GGUF file */
    NODE_KIND_COUNT,
};

struct node_traits {
    const char *name;      /* fixed name in its directory; NULL: named by the object */
    enum node_kind parent; /* of a fixed name */
    mode_t type;           /* S_IF* */
    enum core_kind file;   /* kind of its open files in the service, which knows their directions */
    bool is_measured;      /* its text has numbers of the device, which is measured first */
};

struct node {
    enum node_kind kind;
    const struct core_store *store; /* NULL at the top, and for regions */
    const struct layout_allocation *allocation;
    const struct layout_entry *entry; /* of a directory below `files`: its first one */
    unsigned depth;                   /* of a directory below `files`: names in its path */
    uint64_t contents;                /* in by-id/: number of the contents id; else 0 */
    size_t rank;                      /* in by-id/: of the allocation or entry */
    const struct region *region;
    uint32_t owner; /* of a region, or of its directory */
};

/* Attributes of the top of the tree. */
struct node_top {
    uint32_t uid, gid;
    uint64_t started_ms; /* wall clock */
    bool has_socket;     /* `.fds` is bound */
};

const struct node_traits *node_get_traits(enum node_kind kind);
uint64_t node_make_id(enum node_kind kind, uint64_t serial);
uint64_t node_get_id(const struct node *node);
enum node_kind node_get_kind(uint64_t id); /* NODE_NONE if the kind is unknown */

/* 0, -ENOENT */
int node_find(const struct core *core, uint64_t id, struct node *node);
/* 0, -ENOENT, -ENOTDIR, -ENAMETOOLONG, -EINVAL (not a spelling of a key) */
int node_lookup(const struct core *core, const struct node_top *top, uint64_t parent,
                const char *name, struct node *node);
/* Returns true if a listing of the directory shows the fixed name of this kind, if it is there. */
bool node_has_name(const struct node *directory, enum node_kind kind);
/* Returns true if the store, as it is now, has this fixed name. */
bool node_has_fixed(const struct core *core, const struct core_store *store, enum node_kind kind);
/* Returns true if the store shows `files`. */
bool node_has_files(const struct core *core, const struct core_store *store);
static inline bool node_is_made(enum node_kind kind)
{
    return kind == NODE_MADE || kind == NODE_MADE_GGUF;
}
/* Returns the kind of the file of its tensors that the store shows; NODE_NONE: a writer changes its
 * layout, or it has no such file. */
enum node_kind node_find_made(const struct core *core, const struct core_store *store);
/* Finds which bytes of which allocation a NODE_FILE is. -ENOENT: its entry is no file any more. */
int node_get_file(const struct core *core, const struct node *node, struct file_tree_file *file);
/* Returns the path of `files`, or of a directory below it; of `files` it has 0 bytes. */
const char *node_get_path(const struct node *node, size_t *bytes);
/* Makes the node of a name in such a directory, or with depth 0 the node of `files`. */
struct node node_make_child(const struct node *directory, const struct file_tree_child *child);
/* Returns the node of the directory above such a directory, or above `files`. */
struct node node_get_parent(const struct core *core, const struct node *directory);
void node_stat(const struct core *core, const struct node_top *top, const struct node *node,
               struct stat *stat);

#endif
