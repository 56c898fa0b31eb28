/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index - the entries of a layout in one order, in chunks that clones share
 *
 * For the files of src/meta alone. An index is a vector of chunks, and a chunk some hundred
 * pointers in order; indexes that were cloned share their chunks, counted, and a chunk is copied
 * before it is changed while somebody else has it. So cloning costs chunks, and a change no more
 * than the chunks that it touches. The index by serial holds the references to the entries: in this
 * order neighbours were mostly made together and lie in one block, which is counted once for them.
 * The index by key holds none, for it always has the same entries.
 *
 * Changes are made in two steps: layout_index_prepare does all that can fail, and what it leaves
 * behind then nobody can see; layout_index_commit cannot fail. Threads: as layout.h says.
 */
#ifndef GMSFS_META_INDEX_H
#define GMSFS_META_INDEX_H

#include "layout.h"

#define INDEX_CHUNK_ENTRIES 256u /* at most */

struct index_chunk;

struct index_chunk_ref {
    struct index_chunk *chunk;
    struct layout_entry *first; /* of it, so that who looks for a chunk touches no other */
    uint64_t first_serial;
    size_t count; /* of its entries; never 0 */
};

struct layout_index {
    bool by_serial; /* else by key */
    struct index_chunk_ref *chunks;
    size_t chunk_count;
    size_t chunk_capacity;
};

/* An entry, or what it would be put in front of: offset may be the number of the chunk's. */
struct index_place {
    uint32_t chunk;
    uint32_t offset;
};

/* What is looked for: the part that the index orders by. */
struct index_target {
    const void *key;
    size_t key_bytes;
    uint64_t serial;
};

/* `entry` comes, `old` goes, at that place: one of the two may be NULL. */
struct index_edit {
    struct layout_entry *entry;
    struct layout_entry *old;
    struct index_place at;
};

/* Edits in order of their places; those that insert at one place in order of their entries. Either
 * none of them only deletes, or all do. */
struct index_change {
    const struct index_edit *edits;
    size_t count;
    bool only_inserts; /* none of them has an old entry */
    /* What layout_index_prepare makes: new chunks, in the order in which they are needed. */
    struct index_chunk *fresh, **fresh_last;
    size_t growth; /* by so many chunks */
};

/* The entry that is the target, or NULL; *place is that of the first one that is not below it. */
struct layout_entry *layout_index_find(const struct layout_index *index,
                                       const struct index_target *target,
                                       struct index_place *place);
/* The same, from *place on, which is not behind it: cheap where it is near. */
struct layout_entry *layout_index_search(const struct layout_index *index,
                                         const struct index_target *target,
                                         struct index_place *place);

/* As layout_index_search, and no call for what comes behind all entries, as most that is new does.
 */
static inline struct layout_entry *layout_index_find_on(const struct layout_index *index,
                                                        const struct index_target *target,
                                                        struct index_place *place)
{
    if (place->chunk + 1 >= index->chunk_count &&
        (index->chunk_count == 0 || place->offset >= index->chunks[place->chunk].count))
        return NULL;
    return layout_index_search(index, target, place);
}

/* The entry there. NULL: none, the place is behind the last of its chunk. */
struct layout_entry *layout_index_at(const struct layout_index *index, struct index_place place);
struct layout_entry *const *layout_index_entries(const struct layout_index *index, size_t chunk);

/* After 0, commit or cancel follows, with no other change of the index between. -ENOMEM */
int layout_index_prepare(struct layout_index *index, struct index_change *change);
/* The references of edits' entries become the index's, those of the old ones are given back. */
void layout_index_commit(struct layout_index *index, struct index_change *change);
void layout_index_cancel(struct index_change *change);

/* Room in the vector for so many chunks. -ENOMEM */
int layout_index_reserve(struct layout_index *index, size_t count);
/* Into an empty one. -ENOMEM */
int layout_index_clone(struct layout_index *copy, const struct layout_index *index);
/* Everything goes, but for the vector. */
void layout_index_clear(struct layout_index *index);

#endif
