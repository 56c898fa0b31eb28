/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict_plan - which stores leave the device so that another store fits: one after the other
 *
 * core/evict.h makes the choice. Bytes that are leaving the device or being freed count as free
 * already, so no two stores leave for the same room. A victim that cannot leave is not chosen
 * again, and the choice is made anew: it may not have the earlier victims in it.
 */
#include "service/evict_table.h"
#include "service/parked.h"

#include <string.h>

/* The least stay of a promoted store while the room is for a client that takes several stores, one
 * after the other: this many times the last promotion's time, within these bounds. */
#define GROUP_STAYS       16u
#define GROUP_STAY_MIN_MS 100u
#define GROUP_STAY_MAX_MS 5000u

static bool is_for_group(const struct service *s, const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct parked *parked = idvec_find(&s->parked, store->lock.waiters[i].id);
        if (parked && parked->grouped)
            return true;
    }
    return false;
}

/* Without a least stay the first stores of a group would leave for its last ones, and two groups
 * would evict each other for ever. For other clients the order of uses alone decides. */
static uint64_t get_min_stay_ms(const struct service *s, const struct core_store *store)
{
    uint64_t least_ms = 0;
    if (is_for_group(s, store)) {
        least_ms = store->places.promote_ms * GROUP_STAYS;
        least_ms = least_ms > GROUP_STAY_MIN_MS ? least_ms : GROUP_STAY_MIN_MS;
        least_ms = least_ms < GROUP_STAY_MAX_MS ? least_ms : GROUP_STAY_MAX_MS;
    }
    return s->options.min_stay_ms > least_ms ? s->options.min_stay_ms : least_ms;
}

/* Returns the guaranteed bytes that other pools do not use yet. */
static uint64_t count_unfilled(const struct service *s, const struct evict_plan *plan)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->core->pools.items.count; i++) {
        const struct evict_pool *other = &plan->table.pools[i];
        if (i != plan->wish.pool && other->used_bytes < other->min_bytes)
            bytes += other->min_bytes - other->used_bytes;
    }
    return bytes;
}

static void choose(const struct service *s, struct evict_plan *plan)
{
    plan->at = 0;
    plan->chosen = evict_choose(plan->table.rows, plan->table.count, plan->table.pools,
                                s->core->pools.items.count, &plan->wish);
}

bool evict_plan_begin(const struct service *s, struct evict_plan *plan,
                      const struct core_store *store, uint64_t bytes, bool has_none)
{
    if (!evict_table_fill(s, &plan->table, store))
        return false;
    plan->wish = (struct evict_wish){
        .store = store->id,
        .pool = evict_table_find_pool(s, store->use.pool),
        .bytes = bytes,
        .is_resident = store->use.used_bytes > 0,
        .now_ms = service_now(s),
        .min_stay_ms = get_min_stay_ms(s, store),
    };
    plan->wish.free_bytes =
        plan->table.leaving_bytes +
        (has_none ? count_unfilled(s, plan) : vmm_get_free(s->vmm) + s->numbers.freeing_bytes);
    plan->any_leaves = plan->table.leaving_bytes > 0 || s->numbers.freeing_bytes > 0;
    choose(s, plan);
    return true;
}

bool evict_plan_next(const struct service *s, struct evict_plan *plan, uint64_t *victim,
                     enum core_place *to)
{
    while (plan->at < plan->chosen) {
        struct evict_row *row = &plan->table.rows[plan->at++];
        const struct core_store *store = core_find_store(s->core, row->store);
        row->moving = true;
        if (store && evict_table_find_place(&plan->table, store, to)) {
            memcpy(plan->room_before_bytes, plan->table.room_bytes, sizeof plan->room_before_bytes);
            evict_table_count_room(s, &plan->table, store, *to);
            *victim = row->store;
            return true;
        }
        choose(s, plan);
    }
    return false;
}

void evict_plan_leaves(struct evict_plan *plan)
{
    const struct evict_row *row = &plan->table.rows[plan->at - 1];
    plan->wish.free_bytes += row->bytes;
    plan->any_leaves = true;
    evict_table_count_gone(&plan->table, row);
}

void evict_plan_stays(const struct service *s, struct evict_plan *plan)
{
    memcpy(plan->table.room_bytes, plan->room_before_bytes, sizeof plan->room_before_bytes);
    choose(s, plan);
}

bool evict_plan_comes(const struct evict_plan *plan)
{
    return plan->any_leaves && plan->chosen >= 0;
}

uint64_t evict_plan_stay_ms(const struct evict_plan *plan)
{
    const struct evict_wish *wish = &plan->wish;
    uint64_t first_ms = UINT64_MAX;
    for (size_t i = 0; i < plan->table.count; i++) {
        uint64_t at_ms = plan->table.rows[i].promoted_ms + wish->min_stay_ms;
        if (plan->table.rows[i].promoted_ms > 0 && at_ms > wish->now_ms && at_ms < first_ms)
            first_ms = at_ms;
    }
    return first_ms < UINT64_MAX ? first_ms - wish->now_ms : 0;
}
