/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_chunk - a sorted part of an index's entries, with a count of the indexes that share it
 *
 * For the index's own files alone. Chunks of an index by serial hold a reference to each of their
 * entries, chunks of an index by key hold none.
 */
#ifndef GMSFS_META_INDEX_CHUNK_H
#define GMSFS_META_INDEX_CHUNK_H

#include "index.h"

#include <stdatomic.h>

struct index_chunk {
    atomic_size_t refs; /* number of indexes with this chunk; it never changes while above 1 */
    size_t room;
    struct index_chunk *next; /* list link while it is in no index */
    struct layout_entry *entries[];
};

/* Returns the capacity to give a chunk of `count` entries: a little more. */
size_t index_chunk_room(size_t count);
struct index_chunk *index_chunk_new(size_t room); /* NULL if out of memory */
/* True if no other index has the chunk or can get it; other threads' accesses are complete. */
bool index_chunk_is_own(const struct index_chunk *chunk);
/* Copies a shared chunk, with at least this room; the index looks the same. -ENOMEM */
int index_chunk_own(const struct layout_index *index, struct index_chunk_ref *ref, size_t room);
/* Drop a chunk with its entries' references; or without them, because another chunk of the index
 * has them now. */
void index_chunk_release(const struct layout_index *index, const struct index_chunk_ref *ref);
void index_chunk_retire(const struct layout_index *index, const struct index_chunk_ref *ref);

#endif
