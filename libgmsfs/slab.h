/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slab - which pieces of which slabs are in use: few large allocations carved into many sizes
 *
 * Pure bookkeeping of addresses: it never maps, allocates on a device, talks to the mount or locks.
 * mapping.c uses it under the handle's `op`; tests/unit use it alone. Pieces go to the first gap
 * that they fit into, slabs in the order in which they were added, gaps by address: so where they
 * lie depends on the sequence of calls only. Pointers into it hold until the next add or remove.
 */
#ifndef GMSFS_LIB_SLAB_H
#define GMSFS_LIB_SLAB_H

#include <stddef.h>
#include <stdint.h>

#define GFS_SLAB_ALIGNMENT_BYTES ((uint64_t)512) /* of a piece's offset */

struct gfs_span {
    uint64_t offset, size_bytes;
};

struct gfs_slab {
    uintptr_t va;
    uint64_t size_bytes; /* a multiple of the alignment */
    char *tag;
    int closed;                     /* no more pieces are taken from it */
    struct gfs_span *pieces, *gaps; /* by offset; a piece has the size that was asked for */
    size_t piece_count, piece_room;
    size_t gap_count, gap_room;
};

struct gfs_slabs {
    struct gfs_slab *slabs; /* by age */
    size_t count, room;
};

void gfs_slabs_free(struct gfs_slabs *slabs);

/* An empty slab. -ENOMEM. */
int gfs_slabs_add(struct gfs_slabs *slabs, uintptr_t va, uint64_t size_bytes, const char *tag);
void gfs_slabs_remove(struct gfs_slabs *slabs, struct gfs_slab *slab);
/* The slab that contains `address`, or NULL. */
struct gfs_slab *gfs_slabs_find(const struct gfs_slabs *slabs, uintptr_t address);

/* A piece of a slab with this tag, which is not closed. -ENOENT: there is no room; -ENOMEM. */
int gfs_slabs_take(struct gfs_slabs *slabs, const char *tag, uint64_t size_bytes, uintptr_t *va);
/* The piece that begins at `va` becomes a gap, one with those beside it. -ENOENT. */
int gfs_slab_give_back(struct gfs_slab *slab, uintptr_t va);

#endif
