/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_table - the data for a choice of victims
 *
 * For evict_plan.c. Filled in one pass over the stores, for there may be thousands, and each choice
 * waits for it; victims are then counted out of it, without another look. It is valid until a
 * record other than those of its victims is applied.
 */
#ifndef GMSFS_SERVICE_EVICT_TABLE_H
#define GMSFS_SERVICE_EVICT_TABLE_H

#include "service/service_internal.h"

struct evict_table {
    struct evict_pool pools[EVICT_MAX_POOLS];
    struct evict_row *rows; /* in order of id, until evict_choose sorts them */
    size_t count;
    uint64_t leaving_bytes;
    uint64_t room_bytes[CORE_TIER_COUNT]; /* beside the device */
};

/* Fills the table for a choice that makes room for this store; its own bytes do not count as
 * coming. False: no memory */
bool evict_table_fill(const struct service *s, struct evict_table *table,
                      const struct core_store *wanted);
void evict_table_free(struct evict_table *table);
/* Returns true if the store is leaving the device, and no session can keep it there.
 * `leaving_bytes` counts these stores. */
bool evict_table_is_leaving(const struct core_store *store);
/* Returns the index of a pool that exists. */
size_t evict_table_find_pool(const struct service *s, uint64_t pool);
/* Finds the place that the store can go to: the best one below the device that has room; scratch is
 * given up. False: none */
bool evict_table_find_place(const struct evict_table *table, const struct core_store *store,
                            enum core_place *place);
/* Takes the store's bytes out of the room of the place that it goes to, and its spares out of the
 * droppable bytes. */
void evict_table_count_room(const struct service *s, struct evict_table *table,
                            const struct core_store *store, enum core_place to);
/* Takes a victim's bytes out of the bytes that its pool has of the device. */
void evict_table_count_gone(struct evict_table *table, const struct evict_row *row);

/* evict_plan.c: the victims of one wish, one after the other */
struct evict_plan {
    struct evict_table table;
    struct evict_wish wish;
    long chosen, at; /* how many rows are victims, or negative: why there are none; the next row */
    bool any_leaves; /* true if some room is on its way */
    uint64_t room_before_bytes[CORE_TIER_COUNT]; /* room_bytes before the last victim */
};

/* has_none: other programs have taken all that is free by the account. False: no memory */
bool evict_plan_begin(const struct service *s, struct evict_plan *plan,
                      const struct core_store *store, uint64_t bytes, bool has_none);
/* Finds the next victim, and its place to go to. Before the next call the caller tells whether it
 * leaves (evict_plan_leaves) or cannot (evict_plan_stays). False: there is none */
bool evict_plan_next(const struct service *s, struct evict_plan *plan, uint64_t *victim,
                     enum core_place *to);
void evict_plan_leaves(struct evict_plan *plan);
void evict_plan_stays(const struct service *s, struct evict_plan *plan);
/* After the last victim: returns true if all the room is on its way. */
bool evict_plan_comes(const struct evict_plan *plan);
/* Returns the time until the first protected store (it came a moment ago) may leave; 0 if there is
 * none. */
uint64_t evict_plan_stay_ms(const struct evict_plan *plan);

#endif
