/* SPDX-License-Identifier: Apache-2.0 */
/*
 * give_way - copies that their tier can do without go when it is short: which is core/evict.h's
 * choice, and which may is spares.c's
 *
 * Their memory is free when the jobs are through that give it back, or that look at what is left
 * first: until then who gets it waits (move_wait.c).
 */
#include "service/service_internal.h"

#include <stdlib.h>

static size_t gather(const struct service *s, enum core_place tier, struct evict_spare *rows)
{
    size_t count = 0;
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        if (service_may_give_way(s, store, tier))
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

/* Perhaps no more: then who waits for it goes on waiting, or is refused. */
static void give_way(struct service *s, uint64_t id, enum core_place tier)
{
    const struct core_store *store = core_find_store(s->core, id);
    struct record down = {.type = RECORD_MOVE_BEGIN, .store = id};
    if (!store || !service_may_give_way(s, store, tier))
        return;
    if (store->places.place == CORE_PLACE_DEVICE) {
        service_drop_copy(s, id, tier, 0);
        return;
    }
    down.kind = core_get_spare_below(store, tier);
    if (service_move_store(s, &down))
        service_back_off(s, BACKOFF_LEAVE, id, SERVICE_LEAVE_RETRY_MS);
}

void service_drop_spares(struct service *s, enum core_place tier)
{
    int64_t free_bytes = service_get_free_beside(s, tier);
    if (free_bytes >= 0)
        return;
    struct evict_spare *rows = calloc(s->core->stores.count, sizeof *rows);
    size_t count = rows ? gather(s, tier, rows) : 0;
    size_t chosen = evict_choose_spares(rows, count, (uint64_t)-free_bytes);
    for (size_t i = 0; i < chosen; i++)
        give_way(s, rows[i].store, tier);
    free(rows);
}
