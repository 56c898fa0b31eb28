/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - which tensor goes where in how many allocations
 *
 * Pure: no I/O, no clock; knows nothing of tensors but their place in a model and their size. Used
 * by `gmsfs load`. The same items give the same placement on any machine, which the layout's hash
 * rests on; their order in the array decides only between empty items at one place of a file.
 */
#ifndef GMSFS_MODEL_PACK_H
#define GMSFS_MODEL_PACK_H

#include <stddef.h>
#include <stdint.h>

#define PACK_ALIGNMENT_BYTES     512u
#define PACK_LEAST_CHUNK_BYTES   (64ull << 20) /* unless another is asked for */
#define PACK_MOST_CHUNK_BYTES    (2ull << 30)
#define PACK_CHUNKS              64u /* where the model is large enough for so many */
#define PACK_CHUNKS_BEFORE_LARGE 16u /* chunks, before the items that are larger than one */

struct pack_item {
    uint32_t file;
    uint64_t file_offset_bytes;
    uint64_t size_bytes;
};

struct pack_place {
    uint32_t allocation;
    uint64_t offset_bytes; /* a multiple of PACK_ALIGNMENT_BYTES, below the allocation's size */
};

struct pack_plan {
    struct pack_place *places; /* of item i at [i] */
    size_t place_count;
    uint64_t *allocation_bytes; /* the size of each allocation: where its last item ends */
    uint32_t allocation_count;
    uint64_t total_bytes; /* of all allocations */
};

/*
 * Places the items in the order of (file, offset in file) one behind the other, as many as fit into
 * chunk_bytes. An item larger than a chunk has an allocation of its own, and the chunk begun before
 * goes on behind it. Those are numbered behind the first PACK_CHUNKS_BEFORE_LARGE chunks, and
 * before all others: one thread at a time makes the pages of an allocation in host memory, and
 * meanwhile others fill chunks. An item of size 0 counts as one byte, so that its offset too lies
 * in memory. -EINVAL: chunk_bytes is 0; -EOVERFLOW: sizes beyond 2^63 or 2^32 allocations; -ENOMEM.
 * The plan is empty then. pack_free() it after success.
 */
int pack_plan(const struct pack_item *items, size_t count, uint64_t chunk_bytes,
              struct pack_plan *plan);

/* The chunk for a model of this size: a power of two, with which threads find enough allocations to
 * work on side by side in host memory. It depends on nothing else. */
uint64_t pack_choose_chunk(uint64_t model_bytes);

void pack_free(struct pack_plan *plan);

#endif
