/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_table - all that a choice of who leaves the device is made from
 *
 * For evict_plan.c. Filled in one pass over the stores, for there may be thousands, and each choice
 * waits for it; what goes is then counted, and nothing is looked at again. Holds for as long as
 * nothing is applied but that.
 */
#ifndef GMSFS_SERVICE_EVICT_TABLE_H
#define GMSFS_SERVICE_EVICT_TABLE_H

#include "service/service_internal.h"

struct evict_table {
    struct evict_pool pools[EVICT_MAX_POOLS];
    struct evict_row *rows; /* in the order of their ids, until they are chosen from */
    size_t count;
    uint64_t leaving_bytes;
    uint64_t room_bytes[CORE_TIER_COUNT]; /* beside the device */
};

/* So that this store fits, whose bytes do not count as coming. False: no memory */
bool evict_table_fill(const struct service *s, struct evict_table *table,
                      const struct core_store *wanted);
void evict_table_free(struct evict_table *table);
/* It is on its way from the device, and nobody can keep it: `leaving_bytes` are of those. */
bool evict_table_is_leaving(const struct core_store *store);
/* Of a pool that there is. */
size_t evict_table_find_pool(const struct service *s, uint64_t pool);
/* Where it can go to: the best place below that has room; scratch is given up. False: nowhere. */
bool evict_table_find_place(const struct evict_table *table, const struct core_store *store,
                            enum core_place *place);
/* Before it goes: it takes room there, and gives none by spares any more. */
void evict_table_count_room(const struct service *s, struct evict_table *table,
                            const struct core_store *store, enum core_place to);
/* It goes: what its pool has of the device. */
void evict_table_count_gone(struct evict_table *table, const struct evict_row *row);

/* evict_plan.c: the victims of one wish, one after the other */
struct evict_plan {
    struct evict_table table;
    struct evict_wish wish;
    long chosen, at; /* how many rows are victims, or why there are none; the next one */
    bool any_leaves; /* some room is on its way */
    uint64_t room_before_bytes[CORE_TIER_COUNT]; /* beside the device, without the last victim */
};

/* has_none: others have taken all that is free by the account. False: no memory */
bool evict_plan_begin(const struct service *s, struct evict_plan *plan,
                      const struct core_store *store, uint64_t bytes, bool has_none);
/* The next victim, and where it goes. Before it is asked again the caller says whether that one
 * leaves (evict_plan_leaves) or cannot (evict_plan_stays). False: there is none. */
bool evict_plan_next(const struct service *s, struct evict_plan *plan, uint64_t *victim,
                     enum core_place *to);
void evict_plan_leaves(struct evict_plan *plan);
void evict_plan_stays(const struct service *s, struct evict_plan *plan);
/* When there is no next one: is all the room on its way? */
bool evict_plan_comes(const struct evict_plan *plan);
/* So long until the first store may leave that came too short a time ago; 0: there is none. */
uint64_t evict_plan_stay_ms(const struct evict_plan *plan);

#endif
