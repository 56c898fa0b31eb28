/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of places: copies are complete and of the committed layout, and only stores that may
 * move do. */
#include "core/core_check.h"

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

static int check_spares(const struct check *check, const struct core_store *store)
{
    const struct core_places *places = &store->places;

    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++) {
        if (!places->spares[tier])
            continue;
        if (!store->lock.committed || tier <= (unsigned)places->place)
            return core_wrong(
                check, "it has a spare in its own or a faster tier, or without a committed layout");
        if (layout_count_allocations(places->spares[tier]) !=
                layout_count_allocations(store->fixed) ||
            layout_is_immutable(places->spares[tier]) != layout_is_immutable(store->fixed))
            return core_wrong(check, "a spare is incomplete, or not as immutable as its layout");
    }
    return 0;
}

/* Only a committed layout without its bytes has allocations with a size and no memory. */
static int check_working(const struct check *check, const struct core_store *store)
{
    for (size_t i = 0; i < layout_count_allocations(store->working); i++) {
        const struct layout_allocation *allocation = layout_at_rank(store->working, i);

        if (allocation->memory == LAYOUT_NO_MEMORY && allocation->aligned_bytes > 0 &&
            !(store->lock.bare && layout_find_serial(store->fixed, allocation->serial)))
            return core_wrong(check,
                              "its working copy has an allocation with a size and no memory");
    }
    return 0;
}

static int check_move(const struct check *check, const struct core_store *store)
{
    const struct core *core = check->core;
    const struct core_places *places = &store->places;
    const struct core_move *move = &places->move;

    if (places->moves == 0 && places->moved_ms != 0)
        return core_wrong(check, "it never moved and has a time of its last move");
    if (move->id == 0)
        return move->to == 0 && !move->spare && move->since_ms == 0 && move->evictor == 0
                   ? 0
                   : core_wrong(check, "it has members of a move that is over");
    if (move->id >= core->next_id || !store->lock.committed || move->to == places->place ||
        places->place == CORE_PLACE_NONE ||
        (places->spares[move->to] && (move->spare || move->to < places->place)) ||
        (move->spare && move->to < places->place))
        return core_wrong(check, "its move is invalid");
    if (move->evictor != 0 && (move->evictor >= core->next_id || move->evictor == store->id ||
                               places->place != CORE_PLACE_DEVICE || move->spare))
        return core_wrong(check, "its move cannot be an eviction for that store");
    if (core_get_writer(core, store->id))
        return core_wrong(check, "it moves although it has a writer");
    if (core->lost && (places->place == CORE_PLACE_DEVICE || move->to == CORE_PLACE_DEVICE))
        return core_wrong(check, "it moves to or from a lost device");
    return 0;
}

static int check_store(struct check *check, const void *item)
{
    const struct core_store *store = item;
    const struct core_places *places = &store->places;
    int error = check_spares(check, store);

    check->displaced += places->place != CORE_PLACE_DEVICE;
    if (error < 0)
        return error;
    if ((unsigned)places->place >= CORE_PLACE_COUNT ||
        (places->place != CORE_PLACE_DEVICE && !store->lock.committed))
        return core_wrong(check, "its place is invalid, or it has no committed layout there");
    if (store->lock.bare != (places->place == CORE_PLACE_NONE) ||
        (store->lock.bare && !is_bare(store->fixed)))
        return core_wrong(check, "its lock and its place disagree on whether it has bytes");
    error = store->working ? check_working(check, store) : 0;
    return error < 0 ? error : check_move(check, store);
}

/* A reader of a store in another tier opened one allocation or asked for any tier. */
static int check_session(struct check *check, const void *item)
{
    const struct core_session *session = item;
    const struct core_store *store = core_store(check->core, session->store);

    if (session->mode == LOCK_MODE_RO && store->places.place != CORE_PLACE_DEVICE &&
        session->holds && !session->any)
        return core_wrong(check, "it holds a store that is not on the device");
    return 0;
}

int core_check_places(struct check *check)
{
    const struct core *core = check->core;
    int error = core_check_each(check, "store", &core->stores, core->next_id, check_store);

    if (error == 0)
        error =
            core_check_each(check, "session", &core->sessions, core->next_session, check_session);
    if (error == 0 && check->displaced != core->displaced)
        error = core_wrong(check, "the count of stores that are not on the device is wrong");
    return error;
}
