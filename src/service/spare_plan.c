/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spare_plan - drops spares of a tier that is short: core/evict.h chooses them, and spares.c tells
 * which may go
 *
 * Their memory is free when the jobs that free it, or that check the remaining copy first, have
 * ended: until then the move that gets the memory waits (move_wait.c).
 */
#include "service/moves.h"
#include "service/plan.h"

#include <stdlib.h>

static size_t gather(const struct service *s, enum core_place tier, struct evict_spare *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        if (service_may_drop_copy(s, store, tier))
            rows[count++] = (struct evict_spare){
                .store = store->id,
                .bytes = service_count_cost(s, store, tier),
                .is_place = store->places.place == tier,
                .pinned = store->use.pinned,
                .doubled = core_get_spare_below(store, tier) != CORE_PLACE_NONE,
                .last_used_ms = core_is_held(store) ? UINT64_MAX : store->use.last_used_ms};
    }
    return count;
}

void plan_take_spares(const struct service *s, struct plan *plan, enum core_place tier)
{
    int64_t free_bytes = service_get_free_beside(s, tier);
    free(plan->spares);
    plan->spares = free_bytes < 0 ? calloc(s->core->stores.count, sizeof *plan->spares) : NULL;
    size_t count = plan->spares ? gather(s, tier, plan->spares) : 0;
    plan->spare_count = evict_choose_spares(plan->spares, count, (uint64_t)-free_bytes);
    plan->spare_at = 0;
    plan->tier = tier;
}

bool plan_spare(const struct service *s, struct plan *plan, struct deed *deed)
{
    while (plan->spare_at < plan->spare_count) {
        const struct core_store *store =
            core_find_store(s->core, plan->spares[plan->spare_at++].store);
        if (!store || !service_may_drop_copy(s, store, plan->tier))
            continue;
        bool is_spare = store->places.place == CORE_PLACE_DEVICE;
        *deed =
            (struct deed){.type = is_spare ? DEED_DROP_SPARE : DEED_MOVE_DOWN,
                          .store = store->id,
                          .place = is_spare ? plan->tier : core_get_spare_below(store, plan->tier)};
        return true;
    }
    return false;
}
