/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index_chunk - some entries of an index in order, counted by the indexes that have them
 *
 * For the index's own files alone. The chunks of an index by serial have a reference to each of
 * their entries, those of an index by key have none.
 */
#ifndef GMSFS_META_INDEX_CHUNK_H
#define GMSFS_META_INDEX_CHUNK_H

#include "index.h"

#include <stdatomic.h>

struct index_chunk {
    atomic_size_t refs; /* indexes that have it; while they are several, it never changes */
    size_t room;
    struct index_chunk *next; /* while it is in no index */
    struct layout_entry *entries[];
};

/* How much room a chunk of so many entries is given: some more. */
size_t index_chunk_room(size_t count);
struct index_chunk *index_chunk_new(size_t room); /* NULL: no memory */
/* Nobody else has it, nor can come to it; what others did with it has happened before. */
bool index_chunk_is_own(const struct index_chunk *chunk);
/* Makes it so, with at least this room if it was shared. Nobody sees that a shared chunk is another
 * one of the same entries. -ENOMEM */
int index_chunk_own(const struct layout_index *index, struct index_chunk_ref *ref, size_t room);
/* It leaves the index with its entries; or alone, for they are in another chunk of the index now.
 */
void index_chunk_release(const struct layout_index *index, const struct index_chunk_ref *ref);
void index_chunk_retire(const struct layout_index *index, const struct index_chunk_ref *ref);

#endif
