/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_internal - what a layout is made of
 *
 * For the files of src/meta alone. Allocations are owned by one layout; entries are shared between
 * clones and freed with the last reference. Each of the two is kept in two orders, both vectors of
 * a pair having the same length and capacity.
 */
#ifndef GMSFS_META_LAYOUT_INTERNAL_H
#define GMSFS_META_LAYOUT_INTERNAL_H

#include "layout.h"

/* Serials stand beside the pointers so that a search stays within the vector. */
struct layout_entry_ref {
    uint64_t serial;
    struct layout_entry *entry;
};

struct layout {
    struct layout_allocation **by_slot; /* slots and serials both rise: this is also by serial */
    struct layout_allocation **by_name;
    size_t allocation_count;
    size_t allocation_capacity;

    struct layout_entry **by_key;
    struct layout_entry_ref *by_serial;
    size_t entry_count;
    size_t entry_capacity;

    uint64_t next_slot;
    uint64_t changes; /* layout_count_changes */
    uint64_t total_bytes;
    uint64_t entry_bytes;
};

/* As layout_find_slot, for changing it; rank may be NULL. */
struct layout_allocation *layout_slot(const struct layout *layout, uint64_t slot, size_t *rank);

int layout_compare_keys(const void *a, size_t a_bytes, const void *b, size_t b_bytes);
/* Where entries that are put together are made, one behind the other. A block is freed with the
 * last of them: so it is small, for one that stays must not keep much of what was replaced beside
 * it. */
struct layout_entry_maker {
    struct layout_entry_block *block; /* the last; NULL: none yet */
    size_t used_bytes, room_bytes;    /* of it */
    size_t left_bytes;                /* what all that are still to be made take */
};

/* What an entry takes in a block. */
size_t layout_entry_cost(const struct layout_put *put);
/* A copy of `put` under this serial with one reference, or NULL. */
struct layout_entry *layout_entry_new(struct layout_entry_maker *maker,
                                      const struct layout_put *put, uint64_t serial);
void layout_entry_release(struct layout_entry *entry);
/* Index of the first reference at or above this serial. */
size_t layout_serial_lower_bound(const struct layout *layout, uint64_t serial);
int layout_reserve_entries(struct layout *layout, size_t count);
int layout_clone_entries(struct layout *copy, const struct layout *layout);
size_t layout_remove_bound(struct layout *layout, uint64_t slot);
void layout_clear_entries(struct layout *layout);

#endif
