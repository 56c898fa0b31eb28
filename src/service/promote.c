/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promote - stores come back to the device for those who wait for them in the lock
 *
 * There is one line for the device's memory: who waits for a store to come, who waits for a lock
 * with memory, and who waits in ALLOC. What lacks it keeps it from those who came later, or a large
 * store would wait for ever while small ones come and go. The core refuses who is behind a waiter
 * (apply_look_along); of ALLOCs it does not know.
 */
#include "service/move.h"
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>

/* It will never fit, so nobody waits for it. */
static bool can_fit(const struct service *s, const struct core_store *store)
{
    return layout_total_bytes(store->fixed) <= vmm_get_total_in(s->vmm, VMM_TIER_DEVICE);
}

/* Now there is none, of the device or of its pool. */
static bool lacks_room(const struct service *s, const struct core_store *store)
{
    uint64_t bytes = layout_total_bytes(store->fixed), free_bytes = vmm_get_free(s->vmm);
    return bytes > free_bytes || (bytes <= core_find_pool(s->core, store)->max_bytes &&
                                  core_check_promotion(s->core, store, free_bytes - bytes) < 0);
}

/* One at a time, while room comes for it or it is patient: for who comes later none is made before.
 */
static void make_room(struct service *s, const struct core_store *store, uint64_t turn)
{
    uint64_t bytes = layout_total_bytes(store->fixed);
    bool lacks_device = core_check_room(s->core, store, bytes, UINT64_MAX) == 0;
    bool comes = service_evict_for(s, store, bytes);
    if (lacks_device && turn < s->short_turn && (comes || service_holds_off(s, turn)))
        s->short_turn = turn;
}

static void promote(struct service *s, const struct core_store *store, uint64_t turn)
{
    uint64_t id = store->id;
    /* Tried again when some comes back. */
    if (can_fit(s, store) && lacks_room(s, store)) {
        make_room(s, store, turn);
        return;
    }
    int error = can_fit(s, store) ? service_promote(s, store) : -ENOMEM;
    if (!error || error == -EAGAIN)
        return;
    store = core_find_store(s->core, id);
    if (error == -ENOMEM && store && can_fit(s, store))
        service_back_off(s, BACKOFF_PROMOTE, 0, SERVICE_PROMOTE_RETRY_MS);
    else if (store && store->places.move.id == 0)
        service_move_failed(s, id, 0, error);
}

/* ---- the line ------------------------------------------------------------------------------ */

struct place_turn {
    uint64_t waiter, store;
};

static int compare_turns(const void *one, const void *other)
{
    const struct place_turn *a = one, *b = other;
    return (a->waiter > b->waiter) - (a->waiter < b->waiter);
}

/* The stores that somebody waits for, as they came. NULL: none, or no memory: then later. */
static struct place_turn *get_turns(struct service *s, size_t *count)
{
    const struct idvec *waited = &s->core->index.waited;
    struct place_turn *turns = waited->count > 0 ? calloc(waited->count, sizeof *turns) : NULL;
    *count = 0;
    if (!turns && waited->count > 0)
        service_back_off(s, BACKOFF_PROMOTE, 0, SERVICE_PROMOTE_RETRY_MS);
    for (size_t i = 0; turns && i < waited->count; i++) {
        const struct core_store *store = waited->items[i];
        if (core_wants_promotion(s->core, store))
            turns[(*count)++] = (struct place_turn){.waiter = core_get_place_turn(s->core, store),
                                                    .store = store->id};
    }
    if (*count > 1)
        qsort(turns, *count, sizeof *turns, compare_turns);
    return turns;
}

static void promote_in_turn(struct service *s, const struct place_turn *turn)
{
    const struct core_store *store = core_find_store(s->core, turn->store);
    if (!store || !core_wants_promotion(s->core, store))
        return;
    if (turn->waiter <= s->short_turn || service_is_guaranteed(s, store))
        promote(s, store, turn->waiter);
}

void service_start_promotions(struct service *s)
{
    if (s->ending)
        return;
    uint64_t alloc_turn = service_alloc_turn(s), writer_turn = service_writer_turn(s);
    s->short_turn = alloc_turn < writer_turn ? alloc_turn : writer_turn;
    if (s->core->displaced == 0 || service_is_backed_off(s, BACKOFF_PROMOTE, 0))
        return;
    size_t count;
    struct place_turn *turns = get_turns(s, &count);
    for (size_t i = 0; i < count; i++)
        promote_in_turn(s, &turns[i]);
    free(turns);
}
