/* SPDX-License-Identifier: Apache-2.0 */
/* core_places - the copies of a committed layout: its place and its spares */
#include "core/core_internal.h"

static const char *const place_names[CORE_PLACE_COUNT] = {
    [CORE_PLACE_DEVICE] = "device",
    [CORE_PLACE_HOST] = "host",
    [CORE_PLACE_DISK] = "disk",
    [CORE_PLACE_NONE] = "none",
};

const char *core_place_name(enum core_place place)
{
    return (unsigned)place < CORE_PLACE_COUNT ? place_names[place] : "unknown";
}

bool core_has_copy(const struct core_store *store, enum core_place tier)
{
    if (!store->lock.committed || (unsigned)tier >= CORE_TIER_COUNT)
        return false;
    return store->places.place == tier || store->places.spares[tier] != NULL;
}

enum core_place core_get_tier(const struct core *core, uint64_t memory)
{
    const struct core_memory *held = core_memory(core, memory);

    return held ? held->tier : CORE_PLACE_NONE;
}

bool core_is_held(const struct core_store *store)
{
    return store->use.holds > 0;
}

/* True if its spare on disk can heal the suspect store once it was read. */
static bool can_heal(const struct core_store *store)
{
    return store->suspect > 0 && store->lock.committed && store->lock.session_count == 0 &&
           store->places.place == CORE_PLACE_DEVICE && core_get_fallback(store) == CORE_PLACE_DISK;
}

bool core_is_healing(const struct core_store *store)
{
    return store->places.move.id != 0 && store->places.move.to == CORE_PLACE_DISK &&
           can_heal(store);
}

bool core_wants_heal(const struct core *core, const struct core_store *store)
{
    return !core->lost && can_heal(store) && store->places.move.id == 0 &&
           !core_is_fenced(core, store->name);
}

bool core_lacks_place(const struct core_store *store, enum lock_mode mode, enum core_kind kind,
                      uint32_t flags)
{
    enum core_place place = store->places.place;

    if ((place == CORE_PLACE_DEVICE && !can_heal(store)) || place == CORE_PLACE_NONE)
        return false;
    if (mode == LOCK_MODE_RO)
        return kind != CORE_KIND_ALLOCATION && !(flags & CORE_OPEN_ANY);
    return mode == LOCK_MODE_RW && place != CORE_PLACE_DEVICE &&
           !(flags & (CORE_OPEN_REPLACE | CORE_OPEN_FRESH)) && !layout_is_immutable(store->fixed);
}

/* Returns the first waiter that needs the store on the device, or sound; 0 if none. A waiter for a
 * release in progress (GRACE) needs nothing else. */
static uint64_t get_turn(const struct core *core, const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_waiter(core, store->lock.waiters[i].id);
        enum lock_mode mode = lock_get_wish_mode(&store->lock, waiter->wish);

        if (core_waiter_counts(waiter) && !(waiter->flags & CORE_OPEN_GRACE) &&
            core_lacks_place(store, mode, waiter->kind, waiter->flags))
            return waiter->id;
    }
    return 0;
}

uint64_t core_get_place_turn(const struct core *core, const struct core_store *store)
{
    return store->places.place == CORE_PLACE_DEVICE ? 0 : get_turn(core, store);
}

uint64_t core_get_heal_turn(const struct core *core, const struct core_store *store)
{
    return can_heal(store) ? get_turn(core, store) : 0;
}

bool core_is_awaited(const struct core *core, const struct core_store *store)
{
    return core_get_place_turn(core, store) != 0;
}

bool core_wants_promotion(const struct core *core, const struct core_store *store)
{
    return store->places.place != CORE_PLACE_DEVICE && store->places.move.id == 0 &&
           !store->lock.closed && !core_get_writer(core, store->id) && core_is_awaited(core, store);
}

enum core_place core_get_spare_below(const struct core_store *store, enum core_place tier)
{
    do
        tier++;
    while (tier < CORE_PLACE_NONE && !store->places.spares[tier]);
    return tier;
}

enum core_place core_get_fallback(const struct core_store *store)
{
    return core_get_spare_below(store, CORE_PLACE_DEVICE);
}

void core_set_place(struct core *core, struct core_store *store, enum core_place place)
{
    struct core_places *places = &store->places;

    core->displaced -= places->place != CORE_PLACE_DEVICE;
    core->displaced += place != CORE_PLACE_DEVICE;
    places->place = place;
    places->version++;
    if (store->lock.committed)
        lock_set_bare(&store->lock, place == CORE_PLACE_NONE);
}

struct layout *core_make_copy(const struct layout *layout, const uint64_t *memories)
{
    struct layout *copy = layout_clone(layout);

    if (copy)
        layout_replace_memories(copy, memories);
    return copy;
}

void core_drop_spare(struct core *core, struct core_store *store, enum core_place tier)
{
    struct layout *spare = store->places.spares[tier];

    if (!spare)
        return;
    core_touch(core, store);
    store->places.spares[tier] = NULL;
    store->places.version++;
    core_memory_unref_layout(core, spare, false);
    core_discard_layout(core, spare);
}

void core_drop_spares(struct core *core, struct core_store *store)
{
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        core_drop_spare(core, store, (enum core_place)tier);
}

void core_end_move(struct core *core, struct core_store *store)
{
    struct core_move *move = &store->places.move;

    if (move->id == 0)
        return;
    core_touch(core, store);
    core_push_effect(
        core, (struct effect){.type = EFFECT_MOVE_OVER, .store = store->id, .move = move->id});
    core_count_coming(core, store, -1);
    *move = (struct core_move){0};
    store->places.version++;
}

void core_count_move(struct core_store *store, uint64_t wall_ms)
{
    store->places.moves++;
    store->places.moved_ms = wall_ms;
}

void core_switch_place(struct core *core, struct core_store *store, enum core_place tier, bool keep,
                       uint64_t wall_ms)
{
    struct core_places *places = &store->places;
    struct layout *before = store->fixed;

    core_touch(core, store);
    core_mark_committed(core, before, 0);
    store->fixed = places->spares[tier];
    places->spares[tier] = NULL;
    if (keep)
        places->spares[places->place] = before;
    core_set_place(core, store, tier);
    core_mark_committed(core, store->fixed, store->id);
    core_count_move(store, wall_ms);
    /* The memory that they could write is no longer the store's. */
    if (!store->working)
        core_forget_writers(core, store);
    if (keep)
        return;
    core_memory_unref_layout(core, before, false);
    core_discard_layout(core, before);
}
