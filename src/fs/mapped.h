/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped - the ways in which open files of immutable layouts are read and mapped
 *
 * The kernel lets a file be open in one way at a time: from its own cache, or from a registered
 * file of memory (passthrough). A direct open, which cannot be mapped, may begin beside opens from
 * the cache, but not beside passthrough. So the first opener decides, and the others follow as long
 * as the file is open. The ledger keeps the way of each open file for the next worker. For src/fs.
 */
#ifndef GMSFS_FS_MAPPED_H
#define GMSFS_FS_MAPPED_H

#include "base/idvec.h"

#include <stdbool.h>
#include <stdint.h>

struct fs;
struct fs_handle;
struct fs_kept_position;
struct fuse_file_info;

enum fs_way {
    FS_WAY_DIRECT,      /* read(2) comes to the daemon; mmap(2) shared is ENODEV */
    FS_WAY_CACHED,      /* the kernel's page cache serves both, from bytes that the daemon read */
    FS_WAY_PASSED,      /* the kernel serves both from the memory itself */
    FS_WAY_PASSED_MAPS, /* the same for mmap(2); read(2) comes to the daemon, because the memory is
                           longer than the file */
};

/* A node that is open, other than directly. */
struct fs_mapped {
    uint64_t node; /* first for idvec */
    enum fs_way way;
    uint32_t backing;
    uint64_t memory;
    uint32_t opens;
};

#define FS_CACHED 1024u

struct fs_mappings {
    struct idvec nodes;         /* struct fs_mapped */
    uint64_t cached[FS_CACHED]; /* nodes with no pages in the cache from before they were immutable;
                                   by their number */
};

/* The part of an allocation that a file shows. */
enum fs_part {
    FS_PART_NONE,
    FS_PART_SOME,
    FS_PART_WHOLE
};

/* Returns why processes that map files of immutable layouts do not share the memory of stores;
 * NULL: they do. */
const char *fs_mapped_get_obstacle(const struct fs *fs);
/* Returns true if the allocation's memory has to be registered (service_map) before a reader opens
 * all of it. */
bool fs_mapped_is_unknown(const struct fs *fs, uint64_t serial);
/* Chooses the way of this new open file, which reads this part of the allocation, sets it in
 * `info`, and notes it. *backing: the registered file; 0: none. -EBUSY: the node is still open with
 * memory that the store has no more; -ENOMEM */
int fs_mapped_open(struct fs *fs, uint64_t node, uint64_t file, uint64_t serial, enum fs_part part,
                   struct fuse_file_info *info, uint32_t *backing);
/* Called before the handle is dropped. */
void fs_mapped_close(struct fs *fs, uint64_t file);
/* Restores the way of an open file of the last worker. */
void fs_mapped_restore(struct fs *fs, struct fs_handle *handle,
                       const struct fs_kept_position *from);
void fs_mapped_free(struct fs *fs);

#endif
