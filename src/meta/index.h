/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index - the entries of a layout in one order, in chunks that clones share
 *
 * For the files of src/meta alone. An index is a vector of chunks, and a chunk some hundred sorted
 * pointers; clones of an index share its chunks by reference counts, and a shared chunk is copied
 * before a change. So a clone costs one count per chunk, and a change copies only the chunks that
 * it touches. The index by serial holds the references to the entries: neighbours in this order
 * were mostly made together and lie in one block, which is counted once for them. The index by key
 * holds none, because it always has the same entries.
 *
 * Changes have two steps: layout_index_prepare does everything that can fail, and a failure leaves
 * no visible change; layout_index_commit cannot fail. Threads: see layout.h.
 */
#ifndef GMSFS_META_INDEX_H
#define GMSFS_META_INDEX_H

#include "layout.h"

#define INDEX_CHUNK_ENTRIES 256u /* at most */

struct index_chunk;

struct index_chunk_ref {
    struct index_chunk *chunk;
    struct layout_entry *first; /* its first entry, so that the search for a chunk reads no chunk */
    uint64_t first_serial;
    size_t count; /* number of its entries; never 0 */
};

struct layout_index {
    bool by_serial; /* else by key */
    struct index_chunk_ref *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
};

/* The place of an entry, or of an insertion in front of it: offset may be the chunk's count. */
struct index_place {
    uint32_t chunk;
    uint32_t offset;
};

/* A search key: the member by which the index is sorted. */
struct index_target {
    const void *key;
    size_t key_bytes;
    uint64_t serial;
};

/* At this place, adds `entry` and removes `old`; one of them may be NULL. */
struct index_edit {
    struct layout_entry *entry;
    struct layout_entry *old;
    struct index_place at;
};

/* Edits sorted by place; insertions at the same place sorted by entry. Either no edit only deletes,
 * or all do. */
struct index_change {
    const struct index_edit *edits;
    size_t count;
    bool only_inserts; /* no edit has an old entry */
    /* Made by layout_index_prepare: new chunks, in the order of their use. */
    struct index_chunk *fresh, **fresh_last;
    size_t growth; /* number of added chunks */
};

/* Returns the target's entry, or NULL; *place is that of the first entry not below the target. */
struct layout_entry *layout_index_find(const struct layout_index *index,
                                       const struct index_target *target,
                                       struct index_place *place);
/* The same, searching from *place on, which must not be behind the target; cheap if it is near. */
struct layout_entry *layout_index_search(const struct layout_index *index,
                                         const struct index_target *target,
                                         struct index_place *place);

/* As layout_index_search, without a call for targets behind all entries, as most new ones are. */
static inline struct layout_entry *layout_index_find_on(const struct layout_index *index,
                                                        const struct index_target *target,
                                                        struct index_place *place)
{
    if (place->chunk + 1 >= index->chunk_count &&
        (index->chunk_count == 0 || place->offset >= index->chunks[place->chunk].count))
        return NULL;
    return layout_index_search(index, target, place);
}

/* Returns the entry at this place; NULL if it is behind the last of its chunk. */
struct layout_entry *layout_index_at(const struct layout_index *index, struct index_place place);
struct layout_entry *const *layout_index_entries(const struct layout_index *index, size_t chunk);

/* Prepares the change; after 0 the caller commits or cancels it before any other change of the
 * index. -ENOMEM */
int layout_index_prepare(struct layout_index *index, struct index_change *change);
/* Applies the change: takes over the references of new entries and drops those of old ones. */
void layout_index_commit(struct layout_index *index, struct index_change *change);
void layout_index_cancel(struct index_change *change);

/* Makes room in the vector for `count` chunks. -ENOMEM */
int layout_index_reserve(struct layout_index *index, size_t count);
/* Clones into an empty index. -ENOMEM */
int layout_index_clone(struct layout_index *copy, const struct layout_index *index);
/* Drops all chunks; keeps the vector. */
void layout_index_clear(struct layout_index *index);

#endif
