/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of places: copies are complete and of the committed layout, and only stores that may
 * move do. */
#include "core/core_internal.h"

#include <errno.h>
#include <inttypes.h>

#define WRONG(...) failure_set(failure, -EINVAL, __VA_ARGS__)

/* True if no allocation has memory and all have a size. */
static bool is_bare(const struct layout *layout)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY || allocation->size_bytes == 0)
            return false;
    }
    return layout_count_allocations(layout) > 0;
}

static int check_spares(const struct core_store *store, struct failure *failure)
{
    const struct core_places *places = &store->places;

    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++) {
        if (!places->spares[tier])
            continue;
        if (!store->lock.committed || tier <= (unsigned)places->place)
            return WRONG(
                "store %" PRIu64
                ": it has a spare in its own or a faster tier, or without a committed layout",
                store->id);
        if (layout_count_allocations(places->spares[tier]) !=
            layout_count_allocations(store->fixed))
            return WRONG("store %" PRIu64 ": a spare is incomplete", store->id);
    }
    return 0;
}

/* Only a committed layout without its bytes has allocations with a size and no memory. */
static int check_working(const struct core_store *store, struct failure *failure)
{
    for (size_t i = 0; i < layout_count_allocations(store->working); i++) {
        const struct layout_allocation *allocation = layout_at_rank(store->working, i);

        if (allocation->memory == LAYOUT_NO_MEMORY && allocation->aligned_bytes > 0 &&
            !(store->lock.bare && layout_find_serial(store->fixed, allocation->serial)))
            return WRONG("store %" PRIu64
                         ": its working copy has an allocation with a size and no memory",
                         store->id);
    }
    return 0;
}

static int check_move(const struct core *core, const struct core_store *store,
                      struct failure *failure)
{
    const struct core_places *places = &store->places;
    const struct core_move *move = &places->move;

    if (places->moves == 0 && places->moved_ms != 0)
        return WRONG("store %" PRIu64 ": it never moved and has a time of its last move",
                     store->id);
    if (move->id == 0)
        return move->to == 0 && !move->spare && move->since_ms == 0 && move->evictor == 0
                   ? 0
                   : WRONG("store %" PRIu64 ": it has members of a move that is over", store->id);
    if (move->id >= core->next_id || !store->lock.committed || move->to == places->place ||
        places->place == CORE_PLACE_NONE ||
        (places->spares[move->to] && (move->spare || move->to < places->place)) ||
        (move->spare && move->to < places->place))
        return WRONG("store %" PRIu64 ": its move is invalid", store->id);
    if (move->evictor != 0 && (move->evictor >= core->next_id || move->evictor == store->id ||
                               places->place != CORE_PLACE_DEVICE || move->spare))
        return WRONG("store %" PRIu64 ": its move cannot be an eviction for that store", store->id);
    if (core_get_writer(core, store->id))
        return WRONG("store %" PRIu64 ": it moves although it has a writer", store->id);
    if (core->lost && (places->place == CORE_PLACE_DEVICE || move->to == CORE_PLACE_DEVICE))
        return WRONG("store %" PRIu64 ": it moves to or from a lost device", store->id);
    return 0;
}

static int check_store(const struct core *core, const struct core_store *store,
                       struct failure *failure)
{
    const struct core_places *places = &store->places;
    int error = check_spares(store, failure);

    if (error < 0)
        return error;
    if ((unsigned)places->place >= CORE_PLACE_COUNT ||
        (places->place != CORE_PLACE_DEVICE && !store->lock.committed))
        return WRONG("store %" PRIu64 ": its place is invalid, or it has no committed layout there",
                     store->id);
    if (store->lock.bare != (places->place == CORE_PLACE_NONE) ||
        (store->lock.bare && !is_bare(store->fixed)))
        return WRONG("store %" PRIu64 ": its lock and its place disagree on whether it has bytes",
                     store->id);
    error = store->working ? check_working(store, failure) : 0;
    return error < 0 ? error : check_move(core, store, failure);
}

/* A reader of a store in another tier opened one allocation or asked for any tier. */
static int check_session(const struct core *core, const struct core_session *session,
                         struct failure *failure)
{
    const struct core_store *store = core_store(core, session->store);

    if (session->mode == LOCK_MODE_RO && store->places.place != CORE_PLACE_DEVICE &&
        session->holds && !session->any)
        return WRONG("session %" PRIu64 ": it holds a store that is not on the device",
                     session->id);
    return 0;
}

int core_check_places(const struct core *core, struct failure *failure)
{
    size_t displaced = 0;
    int error = 0;

    for (size_t i = 0; i < core->stores.count && error == 0; i++) {
        const struct core_store *store = core->stores.items[i];

        error = check_store(core, store, failure);
        displaced += store->places.place != CORE_PLACE_DEVICE;
    }
    for (size_t i = 0; i < core->sessions.count && error == 0; i++)
        error = check_session(core, core->sessions.items[i], failure);
    if (error == 0 && displaced != core->displaced)
        error = WRONG("the count of stores that are not on the device is wrong");
    return error;
}
