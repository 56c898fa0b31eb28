/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - distributes tensors over allocations
 *
 * Pure: no I/O, no clock; knows only the tensors' places in a model and their sizes. Used by `gmsfs
 * load`. The same items give the same placement on any machine, which the layout's hash relies on;
 * their order in the array decides only between empty items at one place of a file.
 */
#ifndef GMSFS_MODEL_PACK_H
#define GMSFS_MODEL_PACK_H

#include <stddef.h>
#include <stdint.h>

#define PACK_ALIGNMENT_BYTES     512u
#define PACK_LEAST_CHUNK_BYTES   (64ull << 20) /* default minimum */
#define PACK_MOST_CHUNK_BYTES    (2ull << 30)
#define PACK_CHUNKS              64u /* number of chunks, if the model is large enough */
#define PACK_CHUNKS_BEFORE_LARGE 16u /* chunks numbered before items larger than a chunk */

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
    uint64_t *allocation_bytes; /* size of each allocation: the end of its last item */
    uint32_t allocation_count;
    uint64_t total_bytes; /* of all allocations */
};

/*
 * Places the items in the order of (file, offset in file) one after the other, as many as fit into
 * chunk_bytes. An item larger than a chunk has an allocation of its own, and the chunk begun before
 * continues after it. Large items are numbered after the first PACK_CHUNKS_BEFORE_LARGE chunks, and
 * before all others: one thread at a time makes the pages of an allocation in host memory, and
 * other threads fill chunks meanwhile. An item of size 0 counts as one byte, so that its offset is
 * inside memory too. -EINVAL: chunk_bytes is 0; -EOVERFLOW: sizes beyond 2^63 or 2^32 allocations;
 * -ENOMEM. On failure the plan is empty; after success call pack_free().
 */
int pack_plan(const struct pack_item *items, size_t count, uint64_t chunk_bytes,
              struct pack_plan *plan);

/* Returns the chunk size for a model of this size: a power of two, so that threads find enough
 * allocations to fill in parallel in host memory. It depends on nothing else. */
uint64_t pack_choose_chunk(uint64_t model_bytes);

void pack_free(struct pack_plan *plan);

#endif
