/* SPDX-License-Identifier: Apache-2.0 */
/*
 * idvec - objects by increasing id
 *
 * A vector of pointers to structs whose first member is `uint64_t id`, kept in order of id. Ids
 * come from counters that only go up, so an append keeps the order, a lookup is a binary search,
 * and an id that is gone is never mistaken for another object. Pure; anybody may use it; owns the
 * pointers only as an array (the caller frees the objects).
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
/* The same, and each of its items, which are blocks of their own. */
void idvec_free_items(struct idvec *vec);
/* The item's id must be greater than every id in it. 0 or -ENOMEM */
int idvec_append(struct idvec *vec, void *item);
/* Anywhere; the id must not be in it yet. For tables that follow another table's ids. */
int idvec_insert(struct idvec *vec, void *item);
/* The same within its room, which there is: it cannot fail. */
void idvec_insert_within(struct idvec *vec, void *item);
void *idvec_find(const struct idvec *vec, uint64_t id);
/* The first behind this id: so a walk bears that items come and go meanwhile. NULL: none */
void *idvec_find_after(const struct idvec *vec, uint64_t id);
/* Takes the item out and returns it; NULL if there is none. */
void *idvec_remove(struct idvec *vec, uint64_t id);
/* Takes out every item for which `take` is true, in one go through all of them; `take` owns it
 * then. */
void idvec_remove_if(struct idvec *vec, bool (*take)(void *item, void *context), void *context);

#endif
