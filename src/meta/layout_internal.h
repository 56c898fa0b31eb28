/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_internal - what a layout is made of
 *
 * For the files of src/meta alone. Allocations are owned by one layout; entries are shared between
 * clones, as are the chunks of the two indexes that they are found by (index.h).
 */
#ifndef GMSFS_META_LAYOUT_INTERNAL_H
#define GMSFS_META_LAYOUT_INTERNAL_H

#include "index.h"
#include "layout.h"

#include <assert.h>
#include <stdatomic.h>

struct layout {
    atomic_size_t holders; /* layout_ref */

    struct layout_allocation **by_slot; /* slots and serials both rise: this is also by serial */
    struct layout_allocation **by_name;
    size_t allocation_count;
    size_t allocation_capacity;
    struct layout_allocation **by_wire_id; /* those that have one; NULL: none ever had */
    size_t wire_id_count;
    size_t wire_id_capacity;

    struct layout_index by_key;
    struct layout_index by_serial; /* has the references */
    size_t entry_count;

    struct layout_times times; /* of the directory of the allocations */
    uint64_t next_slot;
    uint64_t changes; /* layout_count_changes */
    uint64_t total_bytes;
    uint64_t entry_bytes;
    uint64_t text_bytes; /* layout_text_bytes */
    size_t timed_count;  /* allocations that have times */
};

/* As layout_find_slot, for changing it; rank may be NULL. */
struct layout_allocation *layout_slot(const struct layout *layout, uint64_t slot, size_t *rank);
/* Index of the first allocation whose name is not below this one. */
size_t layout_name_lower_bound(const struct layout *layout, const char *name);
/* Puts it behind all others, whose slots and serials are lower and whose names and wire ids are
 * others; wire_id may be NULL. -ENOMEM */
int layout_append_allocation(struct layout *layout, const struct layout_allocation *from,
                             const char *name, const char *tag, const char *wire_id);
int layout_check_tag(const char *tag);   /* -EINVAL */
int layout_check_name(const char *name); /* -EINVAL -ENAMETOOLONG */

/* wire_id.c: where an allocation has none, all of these do nothing. */
/* May one be added that has this? -EINVAL -EEXIST */
int layout_check_new_wire_id(const struct layout *layout, const char *wire_id);
/* Room for this one more. -ENOMEM */
int layout_reserve_wire_id(struct layout *layout, const char *wire_id);
void layout_insert_wire_id(struct layout *layout, struct layout_allocation *allocation);
void layout_forget_wire_id(struct layout *layout, const struct layout_allocation *allocation);
/* This one takes the place of the one that has its wire id. */
void layout_replace_wire_id(struct layout *layout, struct layout_allocation *allocation);
/* Into a layout that has copies of the same allocations. -ENOMEM */
int layout_clone_wire_ids(struct layout *copy, const struct layout *layout);

/* Nobody but the caller holds it, or nothing may change it. */
static inline void layout_assert_unshared(const struct layout *layout)
{
    assert(atomic_load_explicit(&layout->holders, memory_order_acquire) == 1);
}

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
static inline size_t layout_entry_cost(const struct layout_put *put)
{
    const size_t mask = _Alignof(struct layout_entry) - 1;

    return (sizeof(struct layout_entry) + put->key_bytes + put->value_bytes + mask) & ~mask;
}
/* A copy of `put` under this serial with one reference, or NULL. */
struct layout_entry *layout_entry_new(struct layout_entry_maker *maker,
                                      const struct layout_put *put, uint64_t serial);
/* One reference more, or less, to each of them. */
void layout_entries_ref(struct layout_entry *const *entries, size_t count);
void layout_entries_release(struct layout_entry *const *entries, size_t count);

/* Edits of the two indexes, which have the same entries; and what the layout counts, but for what
 * its allocations have of the new ones. Old entries may be gone afterwards. -ENOMEM */
int layout_edit_entries(struct layout *layout, const struct index_edit *by_key,
                        const struct index_edit *by_serial, size_t count, bool only_inserts);
/* Orders them by the serials of their entries, and finds their places in that index. Returns the
 * index of one whose new entry has a serial that another one has, or `count`. */
size_t layout_place_by_serial(const struct layout *layout, struct index_edit *edits, size_t count);
/* Takes out all entries that are bound to it. -ENOMEM */
int layout_remove_bound(struct layout *layout, const struct layout_allocation *allocation);
void layout_clear_entries(struct layout *layout);

#endif
