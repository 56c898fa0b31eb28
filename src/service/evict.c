/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - stores that nobody uses leave the device so that somebody else fits
 *
 * Who goes is core/evict.h's choice, made anew whenever a record has changed something: nobody
 * waits for a victim that was chosen before. What is on its way from the device, or being freed,
 * counts as free already, so nobody goes twice for the same room.
 */
#include "service/evict_table.h"

#include <errno.h>
#include <string.h>

/* What came stays so long at least where somebody takes several stores, which come one after the
 * other: so many times what this one took, in these bounds. */
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

/* Else the first ones of a group would leave for its last ones, and two groups take from each other
 * for ever. Nobody else waits for that: who goes for them is the order of their uses alone. */
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

/* When the first store that may not leave yet may. */
static void note_stays(struct service *s, const struct evict_table *table,
                       const struct evict_wish *wish)
{
    uint64_t first_ms = UINT64_MAX;
    for (size_t i = 0; i < table->count; i++) {
        uint64_t at_ms = table->rows[i].promoted_ms + wish->min_stay_ms;
        if (table->rows[i].promoted_ms > 0 && at_ms > wish->now_ms && at_ms < first_ms)
            first_ms = at_ms;
    }
    if (first_ms < UINT64_MAX)
        service_back_off(s, BACKOFF_STAY, wish->store, first_ms - wish->now_ms);
}

/* False: it cannot go after all. */
static bool let_one_go(struct service *s, struct evict_table *table, struct evict_row *row,
                       struct evict_wish *wish)
{
    const struct core_store *store = core_find_store(s->core, row->store);
    uint64_t room_bytes[CORE_TIER_COUNT];
    enum core_place to;
    row->moving = true;
    if (!store || !evict_table_find_place(table, store, &to))
        return false;
    memcpy(room_bytes, table->room_bytes, sizeof room_bytes);
    evict_table_count_room(s, table, store, to);
    if (service_evict(s, row->store, to, wish->store) != 0) {
        memcpy(table->room_bytes, room_bytes, sizeof room_bytes);
        return false;
    }
    wish->free_bytes += row->bytes;
    evict_table_count_gone(table, row);
    return true;
}

/* Whoever cannot go after all is chosen no more, and the choice is made again: without them, for
 * who went would not be chosen otherwise. */
static bool let_go(struct service *s, struct evict_table *table, struct evict_wish *wish)
{
    bool any = table->leaving_bytes > 0 || s->numbers.freeing_bytes > 0;
    long chosen;
    while ((chosen = evict_choose(table->rows, table->count, table->pools,
                                  s->core->pools.items.count, wish)) > 0) {
        bool goes = true;
        for (long i = 0; i < chosen && goes; i++) {
            goes = let_one_go(s, table, &table->rows[i], wish);
            any |= goes;
        }
        if (goes)
            return any;
    }
    return any && chosen == 0;
}

bool service_count_try(struct service *s, struct service_tries *tries)
{
    uint64_t now_ms = service_now(s);
    if (now_ms - tries->since_ms >= SERVICE_TRIES_MS) {
        tries->since_ms = now_ms;
        tries->count = 0;
    }
    return tries->count++ < SERVICE_TRIES_MAX;
}

static bool may_try(struct service *s)
{
    if (service_is_backed_off(s, BACKOFF_EVICT, 0))
        return false;
    if (service_count_try(s, &s->evict_tries))
        return true;
    uint64_t since_ms = service_now(s) - s->evict_tries.since_ms;
    service_back_off(s, BACKOFF_EVICT, 0, SERVICE_TRIES_MS - since_ms);
    return false;
}

/* Of what other pools are to have, and have not. */
static uint64_t count_unfilled(const struct service *s, const struct evict_table *table,
                               size_t pool)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->core->pools.items.count; i++) {
        const struct evict_pool *other = &table->pools[i];
        if (i != pool && other->used_bytes < other->min_bytes)
            bytes += other->min_bytes - other->used_bytes;
    }
    return bytes;
}

/* has_none: of what is free by the account, others have taken all. */
static bool evict(struct service *s, const struct core_store *store, uint64_t bytes, bool has_none)
{
    struct evict_table table;
    if (!evict_table_fill(s, &table, store)) {
        service_back_off(s, BACKOFF_EVICT, 0, SERVICE_PROMOTE_RETRY_MS);
        return false;
    }
    struct evict_wish wish = {
        .store = store->id,
        .pool = evict_table_find_pool(s, store->use.pool),
        .bytes = bytes,
        .is_resident = store->use.used_bytes > 0,
        .now_ms = service_now(s),
        .min_stay_ms = get_min_stay_ms(s, store),
    };
    wish.free_bytes = table.leaving_bytes;
    wish.free_bytes += has_none ? count_unfilled(s, &table, wish.pool)
                                : vmm_get_free(s->vmm) + s->numbers.freeing_bytes;
    bool comes = let_go(s, &table, &wish);
    if (!comes)
        note_stays(s, &table, &wish);
    evict_table_free(&table);
    return comes;
}

bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes)
{
    if (!s->options.evicts || s->ending)
        return false;
    if (service_is_vain(s, store->id, bytes) || !may_try(s))
        return false;
    uint64_t id = store->id;
    bool comes = evict(s, store, bytes, false);
    if (!comes)
        service_note_vain(s, id, bytes);
    return comes;
}

/* ---- a device that others fill --------------------------------------------------------------- */

void service_evict_for_lack(struct service *s)
{
    uint64_t bytes = s->lack_bytes;
    const struct core_store *store = core_find_store(s->core, s->lack_store);
    if (bytes == 0)
        return;
    s->lack_bytes = 0;
    if (store && s->options.evicts && !s->ending)
        evict(s, store, bytes, true);
}

/* ---- who waits for memory -------------------------------------------------------------------- */

/* The first who came after that one and waits for memory alone, with its lock free. */
static const struct core_waiter *find_short_writer(const struct service *s, uint64_t after)
{
    size_t left = s->core->reserving;
    for (size_t i = 0; left > 0 && i < s->core->waiters.count; i++) {
        const struct core_waiter *waiter = s->core->waiters.items[i];
        if (waiter->reserve_bytes == 0)
            continue;
        left--;
        const struct core_store *store = core_find_store(s->core, waiter->store);
        if (waiter->id > after && core_waiter_counts(waiter) &&
            lock_is_free_for(&store->lock, waiter->id))
            return waiter;
    }
    return NULL;
}

bool service_holds_off(const struct service *s, uint64_t waiter)
{
    const struct core_waiter *found = core_find_waiter(s->core, waiter);
    return found && core_is_patient(s->core, found, service_now(s));
}

uint64_t service_writer_turn(const struct service *s)
{
    const struct core_waiter *waiter = find_short_writer(s, 0);
    while (waiter && !core_is_patient(s->core, waiter, service_now(s)))
        waiter = find_short_writer(s, waiter->id);
    return waiter ? waiter->id : UINT64_MAX;
}

static bool evict_for_writer(struct service *s, const struct core_waiter *waiter)
{
    const struct core_store *store = core_find_store(s->core, waiter->store);
    uint64_t replaced_bytes = store->fixed && store->places.place == CORE_PLACE_DEVICE
                                  ? layout_total_bytes(store->fixed)
                                  : 0;
    return waiter->reserve_bytes > replaced_bytes &&
           service_evict_for(s, store, waiter->reserve_bytes - replaced_bytes);
}

/* For one at a time, as they came: who comes later gets no room before, unless none is to be had
 * for who waits, and that one holds nobody off any more. */
void service_evict_for_writers(struct service *s)
{
    uint64_t after = 0;
    while (s->options.evicts) {
        const struct core_waiter *waiter = find_short_writer(s, after);
        if (!waiter || waiter->id > s->short_turn)
            return;
        after = waiter->id;
        bool patient = core_is_patient(s->core, waiter, service_now(s));
        if (evict_for_writer(s, waiter) || patient)
            return;
    }
}

void service_evict_for_moves(struct service *s)
{
    const struct core_store *store;
    uint64_t move;
    while ((store = service_get_lacking(s, &move))) {
        bool comes = service_evict_for(s, store, layout_total_bytes(store->fixed));
        service_settle_lacking(s, move, comes);
    }
}
