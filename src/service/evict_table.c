/* SPDX-License-Identifier: Apache-2.0 */
#include "service/evict_table.h"

#include "base/array.h"
#include "service/move.h"
#include "service/moves.h"

#include <stdlib.h>

size_t evict_table_find_pool(const struct service *s, uint64_t pool)
{
    const struct idvec *pools = &s->core->pools.items;
    size_t at = 0;
    ARRAY_SEARCH(at, pools->count - 1, ((const struct core_pool *)pools->items[at])->id < pool);
    return at;
}

bool evict_table_find_place(const struct evict_table *table, const struct core_store *store,
                            enum core_place *place)
{
    uint64_t bytes = layout_total_bytes(store->fixed);
    *place = CORE_PLACE_NONE;
    if (service_is_scratch(store))
        return true;
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++) {
        *place = (enum core_place)tier;
        if (store->places.spares[tier] || (store->suspect == 0 && bytes <= table->room_bytes[tier]))
            return true;
    }
    return false;
}

static bool is_waited_for(const struct service *s, const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(s->core, store->lock.waiters[i].id);
        if (waiter && core_waiter_counts(waiter))
            return true;
    }
    return false;
}

static bool is_written(const struct service *s, const struct core_store *store)
{
    return store->lock.session_count > 0 && core_get_writer(s->core, store->id);
}

bool evict_table_is_leaving(const struct core_store *store)
{
    const struct core_places *places = &store->places;
    return places->place == CORE_PLACE_DEVICE && places->move.id != 0 && !places->move.spare &&
           !core_is_held(store);
}

static void add_row(const struct service *s, struct evict_table *table,
                    const struct core_store *store)
{
    const struct core_places *places = &store->places;
    uint64_t bytes = layout_total_bytes(store->fixed);
    size_t index = evict_table_find_pool(s, store->use.pool);
    struct evict_pool *pool = &table->pools[index];
    if (places->move.id != 0 && places->move.to == CORE_PLACE_DEVICE) {
        pool->used_bytes += bytes;
        pool->resident += store->use.used_bytes == 0;
    }
    if (places->place != CORE_PLACE_DEVICE)
        return;
    if (evict_table_is_leaving(store)) {
        table->leaving_bytes += bytes;
        pool->used_bytes -= bytes;
        pool->resident--;
    }
    bool has_spare = places->spares[CORE_PLACE_HOST] || places->spares[CORE_PLACE_DISK] ||
                     service_is_scratch(store);
    table->rows[table->count++] = (struct evict_row){
        .store = store->id,
        .pool = index,
        .class = pool->class,
        .bytes = bytes,
        .pinned = store->use.pinned,
        .stuck = (!has_spare && store->suspect > 0) || core_is_fenced(s->core, store->name),
        .held = core_is_held(store) || is_written(s, store),
        .waited_for = is_waited_for(s, store),
        .moving = places->move.id != 0,
        .has_spare = has_spare,
        .last_used_ms = store->use.last_used_ms,
        .promoted_ms = places->promoted_ms,
    };
}

/* Marks stores that could not leave a moment ago, and stores with a copy that fits nowhere. */
static void find_stuck(const struct service *s, struct evict_table *table)
{
    uint64_t most_bytes = 0;
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++) {
        if (table->room_bytes[tier] > most_bytes)
            most_bytes = table->room_bytes[tier];
    }
    for (size_t i = 0; i < table->count; i++) {
        struct evict_row *row = &table->rows[i];
        row->stuck |= (!row->has_spare && row->bytes > most_bytes) ||
                      service_is_backed_off(s, BACKOFF_LEAVE, row->store);
    }
}

static void add_pools(const struct service *s, struct evict_table *table)
{
    const struct idvec *pools = &s->core->pools.items;
    for (size_t i = 0; i < pools->count; i++) {
        const struct core_pool *pool = pools->items[i];
        table->pools[i] = (struct evict_pool){.class = pool->class,
                                              .min_bytes = pool->min_bytes,
                                              .max_bytes = pool->max_bytes,
                                              .slots = pool->slots,
                                              .used_bytes = pool->used_bytes,
                                              .resident = pool->resident};
    }
}

bool evict_table_fill(const struct service *s, struct evict_table *table,
                      const struct core_store *wanted)
{
    const struct idvec *stores = &s->core->stores;
    int64_t room_bytes[CORE_TIER_COUNT] = {0};
    *table = (struct evict_table){.rows = malloc(stores->count * sizeof *table->rows)};
    if (!table->rows)
        return false;
    add_pools(s, table);
    for (size_t i = 0; i < stores->count; i++) {
        const struct core_store *store = stores->items[i];
        for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++)
            room_bytes[tier] += (int64_t)service_count_spare(s, store, (enum core_place)tier);
        bool comes = store == wanted && store->places.place != CORE_PLACE_DEVICE;
        if (store->lock.committed && layout_count_allocations(store->fixed) > 0 && !comes)
            add_row(s, table, store);
    }
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++) {
        room_bytes[tier] += service_get_free_beside(s, (enum core_place)tier);
        table->room_bytes[tier] = room_bytes[tier] > 0 ? (uint64_t)room_bytes[tier] : 0;
    }
    find_stuck(s, table);
    return true;
}

void evict_table_free(struct evict_table *table)
{
    free(table->rows);
}

static void take_room(struct evict_table *table, enum core_place tier, uint64_t bytes)
{
    table->room_bytes[tier] -= number_smaller(bytes, table->room_bytes[tier]);
}

void evict_table_count_room(const struct service *s, struct evict_table *table,
                            const struct core_store *store, enum core_place to)
{
    for (unsigned i = CORE_PLACE_HOST; i < CORE_TIER_COUNT; i++) {
        enum core_place tier = (enum core_place)i;
        take_room(table, tier, service_count_spare(s, store, tier));
        if (tier == to && !store->places.spares[tier])
            take_room(table, tier, service_count_cost(s, store, tier));
    }
}

void evict_table_count_gone(struct evict_table *table, const struct evict_row *row)
{
    table->pools[row->pool].used_bytes -= row->bytes;
    table->pools[row->pool].resident--;
}
