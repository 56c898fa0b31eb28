/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - stores that nobody uses leave the device so that somebody else fits
 *
 * Who goes is core/evict.h's choice, made anew whenever a record has changed something: nobody
 * waits for a victim that was chosen before. What is on its way from the device, or being freed,
 * counts as free already, so nobody goes twice for the same room.
 */
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So often the choice may be made in a while: it looks at all stores. */
#define TRIES_MAX 64u
#define TRIES_MS  100u

/* GMSFS_GRAPH_TAG of libgmsfs. */
#define GRAPH_TAG "gmsfs.graph"

struct table {
    struct evict_pool pools[EVICT_MAX_POOLS];
    struct evict_row *rows;
    size_t count;
    uint64_t leaving_bytes;
    uint64_t room_bytes[CORE_TIER_COUNT]; /* beside the device */
};

/* Of a pool that there is: they are in the order of their ids. */
static size_t find_index(const struct service *s, uint64_t pool)
{
    const struct idvec *pools = &s->core->pools.items;
    size_t low = 0, high = pools->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (((const struct core_pool *)pools->items[middle])->id <= pool)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Chunks of a graph pool, which says so by their tag. What is in them is scratch, so they are never
 * copied. */
static bool is_scratch(const struct core_store *store)
{
    size_t count = layout_count_allocations(store->fixed);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(layout_at_rank(store->fixed, i)->tag, GRAPH_TAG) != 0)
            return false;
    }
    return count > 0;
}

static void look_for_room(const struct service *s, struct table *table)
{
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++)
        table->room_bytes[tier] = service_get_room_beside(s, (enum core_place)tier);
}

/* Where it can go to: the best place below that has room; scratch is given up. False: nowhere. */
static bool find_place(const struct table *table, const struct core_store *store,
                       enum core_place *place)
{
    uint64_t bytes = layout_total_bytes(store->fixed);
    *place = CORE_PLACE_NONE;
    if (is_scratch(store))
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

static void add_row(struct service *s, struct table *table, const struct core_store *store)
{
    const struct core_pool *pool = core_find_pool(s->core, store);
    size_t index = find_index(s, pool->id);
    const struct core_places *places = &store->places;
    uint64_t bytes = layout_total_bytes(store->fixed);
    enum core_place place;
    if (places->move.id != 0 && places->move.to == CORE_PLACE_DEVICE) {
        table->pools[index].used_bytes += bytes;
        table->pools[index].resident += store->use.used_bytes == 0;
    }
    if (places->place != CORE_PLACE_DEVICE)
        return;
    if (places->move.id != 0 && !places->move.spare && !core_is_held(store)) {
        table->leaving_bytes += bytes;
        table->pools[index].used_bytes -= bytes;
        table->pools[index].resident--;
    }
    table->rows[table->count++] = (struct evict_row){
        .store = store->id,
        .pool = index,
        .class = pool->class,
        .bytes = bytes,
        .pinned = store->use.pinned || !find_place(table, store, &place) ||
                  core_is_fenced(s->core, store->name) || service_is_passed_over(s, store->id),
        .held = core_is_held(store) || core_get_writer(s->core, store->id),
        .waited_for = is_waited_for(s, store),
        .moving = places->move.id != 0,
        .has_spare =
            places->spares[CORE_PLACE_HOST] || places->spares[CORE_PLACE_DISK] || is_scratch(store),
        .last_used_ms = store->use.last_used_ms,
        .promoted_ms = places->promoted_ms,
    };
}

static bool fill(struct service *s, struct table *table)
{
    const struct idvec *stores = &s->core->stores, *pools = &s->core->pools.items;
    *table = (struct table){.rows = calloc(stores->count, sizeof *table->rows)};
    if (!table->rows)
        return false;
    look_for_room(s, table);
    for (size_t i = 0; i < pools->count; i++) {
        const struct core_pool *pool = pools->items[i];
        table->pools[i] = (struct evict_pool){.class = pool->class,
                                              .min_bytes = pool->min_bytes,
                                              .max_bytes = pool->max_bytes,
                                              .slots = pool->slots,
                                              .used_bytes = pool->used_bytes,
                                              .resident = pool->resident};
    }
    for (size_t i = 0; i < stores->count; i++) {
        const struct core_store *store = stores->items[i];
        if (store->lock.committed && layout_count_allocations(store->fixed) > 0)
            add_row(s, table, store);
    }
    return true;
}

/* When somebody who may not go yet may. */
static void note_stays(struct service *s, const struct table *table)
{
    uint64_t now_ms = service_now(s);
    for (size_t i = 0; i < table->count; i++) {
        uint64_t at_ms = table->rows[i].promoted_ms + s->options.min_stay_ms;
        if (table->rows[i].promoted_ms > 0 && at_ms > now_ms &&
            (s->evict_at_ms <= now_ms || at_ms < s->evict_at_ms))
            s->evict_at_ms = at_ms;
    }
}

/* Whoever cannot go after all is chosen no more, and the choice is made again. */
static bool let_go(struct service *s, struct table *table, struct evict_wish *wish)
{
    bool any = table->leaving_bytes > 0 || s->numbers.freeing_bytes > 0;
    long chosen;
    while ((chosen = evict_choose(table->rows, table->count, table->pools,
                                  s->core->pools.items.count, wish)) > 0) {
        struct evict_row *row = &table->rows[0];
        const struct core_store *store = core_find_store(s->core, row->store);
        enum core_place to;
        row->moving = true;
        if (!store || !find_place(table, store, &to) ||
            service_evict(s, row->store, to, wish->store) != 0)
            continue;
        any = true;
        if (core_find_store(s->core, row->store)->places.move.id != 0)
            look_for_room(s, table);
        wish->free_bytes += row->bytes;
        table->pools[row->pool].used_bytes -= row->bytes;
        table->pools[row->pool].resident--;
    }
    return any && chosen == 0;
}

static bool may_try(struct service *s)
{
    uint64_t now_ms = service_now(s);
    if (now_ms - s->evict_tries_ms >= TRIES_MS) {
        s->evict_tries_ms = now_ms;
        s->evict_tries = 0;
    }
    return s->evict_after_ms <= now_ms && s->evict_tries++ < TRIES_MAX;
}

/* Who waits for memory would else look again only when a record is applied. */
uint64_t service_evict_moment(const struct service *s)
{
    uint64_t now_ms = service_now(s), at_ms = UINT64_MAX;
    if (s->core->displaced == 0 && s->core->reserving == 0 && !s->alloc_queue)
        return at_ms;
    if (s->evict_at_ms > now_ms)
        at_ms = s->evict_at_ms;
    if (s->evict_after_ms > now_ms && s->evict_after_ms < at_ms)
        at_ms = s->evict_after_ms;
    uint64_t until_ms = service_passed_over_moment(s);
    if (until_ms > now_ms && until_ms < at_ms)
        at_ms = until_ms;
    uint64_t again_ms = s->evict_tries_ms + TRIES_MS;
    if (s->evict_tries > TRIES_MAX && again_ms > now_ms && again_ms < at_ms)
        at_ms = again_ms;
    return at_ms;
}

bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes)
{
    struct table table;
    if (!s->options.evicts || s->ending)
        return false;
    if (s->evicting)
        return true; /* what is begun just now ends, and then it is tried again */
    if (!may_try(s))
        return false;
    if (!fill(s, &table)) {
        s->evict_after_ms = service_now(s) + SERVICE_PROMOTE_RETRY_MS;
        return false;
    }
    struct evict_wish wish = {
        .store = store->id,
        .pool = find_index(s, store->use.pool),
        .bytes = bytes,
        .is_resident = store->use.used_bytes > 0,
        .free_bytes = vmm_get_free(s->vmm) + s->numbers.freeing_bytes + table.leaving_bytes,
        .now_ms = service_now(s),
        .min_stay_ms = s->options.min_stay_ms,
    };
    s->evicting = true;
    bool comes = let_go(s, &table, &wish);
    s->evicting = false;
    if (!comes)
        note_stays(s, &table);
    free(table.rows);
    return comes;
}

/* The first who waits for memory alone, with its lock free. */
static const struct core_waiter *find_short_writer(const struct service *s)
{
    size_t left = s->core->reserving;
    for (size_t i = 0; left > 0 && i < s->core->waiters.count; i++) {
        const struct core_waiter *waiter = s->core->waiters.items[i];
        if (waiter->reserve_bytes == 0)
            continue;
        left--;
        const struct core_store *store = core_find_store(s->core, waiter->store);
        if (core_waiter_counts(waiter) && lock_is_free_for(&store->lock, waiter->id))
            return waiter;
    }
    return NULL;
}

uint64_t service_writer_turn(const struct service *s)
{
    const struct core_waiter *waiter = find_short_writer(s);
    return waiter ? waiter->id : UINT64_MAX;
}

void service_evict_for_writers(struct service *s)
{
    const struct core_waiter *waiter =
        s->options.evicts && !s->evicting ? find_short_writer(s) : NULL;
    /* One at a time, as they came: who comes later gets no room before. */
    if (!waiter || waiter->id > s->short_turn)
        return;
    const struct core_store *store = core_find_store(s->core, waiter->store);
    uint64_t replaced_bytes = store->fixed && store->places.place == CORE_PLACE_DEVICE
                                  ? layout_total_bytes(store->fixed)
                                  : 0;
    if (waiter->reserve_bytes > replaced_bytes)
        service_evict_for(s, store, waiter->reserve_bytes - replaced_bytes);
}
