/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_internal - the members of a layout
 *
 * For the files of src/meta alone. One layout owns its allocations; clones share entries, and the
 * chunks of the two indexes of the entries (index.h).
 */
#ifndef GMSFS_META_LAYOUT_INTERNAL_H
#define GMSFS_META_LAYOUT_INTERNAL_H

#include "index.h"
#include "layout.h"

#include <assert.h>
#include <stdatomic.h>

struct layout {
    atomic_size_t holders; /* layout_ref */

    /* slots and serials both rise, so it is also sorted by serial */
    struct layout_allocation **by_slot;
    struct layout_allocation **by_name;
    size_t allocation_count;
    size_t allocation_capacity;
    /* allocations with a wire id; NULL if there never was one */
    struct layout_allocation **by_wire_id;
    size_t wire_id_count;
    size_t wire_id_capacity;

    struct layout_index by_key;
    struct layout_index by_serial; /* holds the references to the entries */
    size_t entry_count;

    bool is_immutable;         /* layout_set_immutable */
    struct layout_times times; /* of the directory */
    uint64_t next_slot;
    uint64_t changes; /* layout_count_changes */
    uint64_t total_bytes;
    uint64_t entry_bytes;
    uint64_t text_bytes; /* layout_text_bytes */
    size_t timed_count;  /* number of allocations with times */
};

/* As layout_find_slot, but mutable; rank may be NULL. */
struct layout_allocation *layout_slot(const struct layout *layout, uint64_t slot, size_t *rank);
/* Returns the index in by_name of the first name not below this one. */
size_t layout_name_lower_bound(const struct layout *layout, const char *name);
/* Appends an allocation with higher slot and serial than all others, and a new name and wire id;
 * wire_id may be NULL. -ENOMEM */
int layout_append_allocation(struct layout *layout, const struct layout_allocation *from,
                             const char *name, const char *tag, const char *wire_id);
int layout_check_tag(const char *tag);   /* -EINVAL */
int layout_check_name(const char *name); /* -EINVAL -ENAMETOOLONG */

/* wire_id.c: all of these do nothing without a wire id. */
/* Checks that an allocation with this wire id may be added. -EINVAL -EEXIST */
int layout_check_new_wire_id(const struct layout *layout, const char *wire_id);
/* Makes room for one more. -ENOMEM */
int layout_reserve_wire_id(struct layout *layout, const char *wire_id);
void layout_insert_wire_id(struct layout *layout, struct layout_allocation *allocation);
void layout_forget_wire_id(struct layout *layout, const struct layout_allocation *allocation);
/* Replaces the allocation with the same wire id in the index. */
void layout_replace_wire_id(struct layout *layout, struct layout_allocation *allocation);
/* Copies the index into a layout with copies of the same allocations. -ENOMEM */
int layout_clone_wire_ids(struct layout *copy, const struct layout *layout);

/* Asserts that the caller is the only holder, so that it may change the layout. */
static inline void layout_assert_unshared(const struct layout *layout)
{
    assert(atomic_load_explicit(&layout->holders, memory_order_acquire) == 1);
}

int layout_compare_keys(const void *a, size_t a_bytes, const void *b, size_t b_bytes);
/* Makes entries that are put together in blocks, one after the other. A block is freed with its
 * last entry; it is small, so that one remaining entry keeps little memory of replaced ones. */
struct layout_entry_maker {
    struct layout_entry_block *block; /* the last block; NULL if none yet */
    size_t used_bytes, room_bytes;    /* of it */
    size_t left_bytes;                /* bytes of all entries still to be made */
};

/* Returns the bytes of an entry in a block. */
static inline size_t layout_entry_cost(const struct layout_put *put)
{
    const size_t mask = _Alignof(struct layout_entry) - 1;

    return (sizeof(struct layout_entry) + put->key_bytes + put->value_bytes + mask) & ~mask;
}
/* Returns a copy of `put` with this serial and one reference; NULL if out of memory. */
struct layout_entry *layout_entry_new(struct layout_entry_maker *maker,
                                      const struct layout_put *put, uint64_t serial);
/* Add, or drop, one reference to each entry. */
void layout_entries_ref(struct layout_entry *const *entries, size_t count);
void layout_entries_release(struct layout_entry *const *entries, size_t count);

/* Applies the same edits to both indexes and updates the layout's counts, except bound_entries of
 * the new entries. May free old entries. -ENOMEM */
int layout_edit_entries(struct layout *layout, const struct index_edit *by_key,
                        const struct index_edit *by_serial, size_t count, bool only_inserts);
/* Sorts the edits by serial and finds their places in that index. Returns the index of a new entry
 * with a serial in use, or `count`. */
size_t layout_place_by_serial(const struct layout *layout, struct index_edit *edits, size_t count);
/* Removes all entries bound to the allocation. -ENOMEM */
int layout_remove_bound(struct layout *layout, const struct layout_allocation *allocation);

#endif
