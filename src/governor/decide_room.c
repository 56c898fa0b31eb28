/* SPDX-License-Identifier: Apache-2.0 */
/* decide_room - room left on the device, in pools, on host and disk during the round */
#include "governor/decide_round.h"

/* Reads a negative sum as 0: figures seen a moment apart may not add up, so a pool may seem to lose
 * more than it had. */
static uint64_t not_negative(uint64_t value)
{
    return value > INT64_MAX ? 0 : value;
}

static uint64_t get_unfilled(const struct decide_round *round, size_t pool)
{
    return number_subtract(round->now->pools[pool].min_bytes,
                           not_negative(round->room.pool_used[pool]));
}

void decide_count_room(struct decide_round *round)
{
    const struct governor_snapshot *now = round->now;
    struct decide_room *room = &round->room;

    *room = (struct decide_room){
        .device_free = now->device_free, .host_free = now->host_free, .disk_free = now->disk_free};
    for (size_t i = 0; i < now->pool_count; i++) {
        room->pool_used[i] = now->pools[i].used_bytes;
        room->pool_resident[i] = now->pools[i].resident;
        room->unfilled_bytes = number_add(room->unfilled_bytes, get_unfilled(round, i));
    }
}

/* Changes the use of the store's pool. */
static void change_pool(struct decide_round *round, size_t store, bool comes)
{
    struct decide_room *room = &round->room;
    size_t pool = round->facts[store].pool;
    uint64_t bytes = round->now->stores[store].bytes;

    if (pool == NO_INDEX)
        return;
    room->unfilled_bytes = number_subtract(room->unfilled_bytes, get_unfilled(round, pool));
    room->pool_used[pool] += comes ? bytes : -bytes;
    room->pool_resident[pool] += comes ? 1 : UINT64_MAX;
    room->unfilled_bytes = number_add(room->unfilled_bytes, get_unfilled(round, pool));
}

/* Returns the free bytes of the tier if a copy there would be new; NULL: it costs nothing. */
static uint64_t *tier_to_charge(struct decide_round *round, size_t store, unsigned tier)
{
    if (round->now->stores[store].places & tier || tier == GOVERNOR_NONE)
        return NULL;
    return tier == GOVERNOR_HOST ? &round->room.host_free : &round->room.disk_free;
}

unsigned decide_get_tier(const struct decide_round *round, size_t store)
{
    const struct governor_store *seen = &round->now->stores[store];
    const struct decide_room *room = &round->room;

    if (seen->scratch)
        return GOVERNOR_NONE;
    if (round->now->host_bytes > 0 &&
        (seen->places & GOVERNOR_HOST || room->host_free >= seen->bytes))
        return GOVERNOR_HOST;
    if (round->now->disk_bytes > 0 &&
        (seen->places & GOVERNOR_DISK || room->disk_free >= seen->bytes))
        return GOVERNOR_DISK;
    return 0;
}

void decide_take_out(struct decide_round *round, size_t store, unsigned tier)
{
    uint64_t bytes = round->now->stores[store].bytes;
    uint64_t *tier_free = tier_to_charge(round, store, tier);

    round->room.device_free = number_add(round->room.device_free, bytes);
    if (tier_free)
        *tier_free = number_subtract(*tier_free, bytes);
    change_pool(round, store, false);
}

void decide_put_back(struct decide_round *round, size_t store, unsigned tier)
{
    uint64_t *tier_free = tier_to_charge(round, store, tier);

    if (tier_free)
        *tier_free = number_add(*tier_free, round->now->stores[store].bytes);
    decide_bring_in(round, store);
}

void decide_bring_in(struct decide_round *round, size_t store)
{
    round->room.device_free =
        number_subtract(round->room.device_free, round->now->stores[store].bytes);
    change_pool(round, store, true);
}

void decide_keep_room(struct decide_round *round, size_t store)
{
    round->room.kept_bytes = number_add(round->room.kept_bytes, round->now->stores[store].bytes);
    decide_bring_in(round, store);
}

bool decide_pool_has_room(const struct decide_round *round, size_t store)
{
    size_t index = round->facts[store].pool;

    if (index == NO_INDEX)
        return true;
    const struct governor_pool *pool = &round->now->pools[index];
    if (pool->slots > 0 && not_negative(round->room.pool_resident[index]) >= pool->slots)
        return false;
    return number_add(not_negative(round->room.pool_used[index]),
                      round->now->stores[store].bytes) <= pool->max_bytes;
}

uint64_t decide_get_reserved(const struct decide_round *round, size_t store)
{
    size_t pool = round->facts[store].pool;

    return number_subtract(round->room.unfilled_bytes,
                           pool == NO_INDEX ? 0 : get_unfilled(round, pool));
}

bool decide_device_has_room(const struct decide_round *round, size_t store)
{
    return number_add(round->now->stores[store].bytes, decide_get_reserved(round, store)) <=
           round->room.device_free;
}

uint64_t decide_get_used(const struct decide_round *round)
{
    return number_subtract(round->now->device_bytes,
                           number_add(round->room.device_free, round->room.kept_bytes));
}

uint64_t decide_get_percent(const struct decide_round *round, unsigned percent)
{
    uint64_t bytes = round->now->device_bytes;

    return bytes / 100 * percent + bytes % 100 * percent / 100;
}
