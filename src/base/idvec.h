/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idvec - objects by increasing id
 *
 * A vector of pointers to structs whose first member is `uint64_t id`, kept in order of id. Ids
 * come from counters that only go up, so an append keeps the order, a lookup is a binary search,
 * and an old id never finds another object. Pure; for every part; owns the array of pointers, not
 * the objects (the caller frees them).
 */
#ifndef GMSFS_BASE_IDVEC_H
#define GMSFS_BASE_IDVEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idvec {
    void **items;
    size_t count, room;
};

void idvec_free(struct idvec *vec);
/* The same, and frees each item with free(3). */
void idvec_free_items(struct idvec *vec);
/* The item's id must be greater than every id in it. 0 or -ENOMEM */
int idvec_append(struct idvec *vec, void *item);
/* Inserts at any place; the id must be new. For tables with the ids of another table. */
int idvec_insert(struct idvec *vec, void *item);
/* The same, within room that the caller has made: cannot fail. */
void idvec_insert_within(struct idvec *vec, void *item);
void *idvec_find(const struct idvec *vec, uint64_t id);
/* The same for many ids in order, which are mostly neighbours: these are found without a search.
 * *at: 0 before the first. */
void *idvec_find_near(const struct idvec *vec, uint64_t id, size_t *at);
/* Returns the first item with a higher id, for walks during which items are added and removed; NULL
 * if none. */
void *idvec_find_after(const struct idvec *vec, uint64_t id);
/* Removes and returns the item; NULL if there is none. */
void *idvec_remove(struct idvec *vec, uint64_t id);
/* Removes every item for which `take` is true, in one pass; `take` owns those items. */
void idvec_remove_if(struct idvec *vec, bool (*take)(void *item, void *context), void *context);

#endif
