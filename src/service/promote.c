/* SPDX-License-Identifier: Apache-2.0 */
/*
 * promote - brings stores back to the device for the clients that wait for them in the lock
 *
 * There is one queue for device memory: clients that wait for a store to come, clients that wait
 * for a lock with a reservation, and waiting ALLOCs. A waiter that is short of memory holds newer
 * ones off, or a large store would wait for ever while small ones come and go. The core refuses
 * requests that are behind a waiter (apply_look_along); it does not know ALLOCs.
 */
#include "service/account.h"
#include "service/plan.h"

#include <stdlib.h>

/* Returns true if the device, or the store's pool, has no room now. */
static bool has_no_room(const struct service *s, const struct core_store *store)
{
    uint64_t bytes = layout_total_bytes(store->fixed), free_bytes = vmm_get_free(s->vmm);
    return bytes > free_bytes || (bytes <= core_find_pool(s->core, store)->max_bytes &&
                                  core_check_promotion(s->core, store, free_bytes - bytes) < 0);
}

/* ---- the queue --------------------------------------------------------------------------- */

struct place_turn {
    uint64_t waiter, store;
};

static int compare_turns(const void *one, const void *other)
{
    const struct place_turn *a = one, *b = other;
    return (a->waiter > b->waiter) - (a->waiter < b->waiter);
}

bool plan_take_queue(const struct service *s, struct plan *plan)
{
    const struct idvec *waited = &s->core->index.waited;
    uint64_t alloc_turn = service_alloc_turn(s), writer_turn = service_writer_turn(s);
    plan->short_turn = alloc_turn < writer_turn ? alloc_turn : writer_turn;
    if (s->ending || s->core->displaced == 0 || waited->count == 0 ||
        service_is_backed_off(s, BACKOFF_PROMOTE, 0))
        return true;
    plan->queue = calloc(waited->count, sizeof *plan->queue);
    for (size_t i = 0; plan->queue && i < waited->count; i++) {
        const struct core_store *store = waited->items[i];
        if (core_wants_promotion(s->core, store))
            plan->queue[plan->queue_count++] = (struct place_turn){
                .waiter = core_get_place_turn(s->core, store), .store = store->id};
    }
    if (plan->queue_count > 1)
        qsort(plan->queue, plan->queue_count, sizeof *plan->queue, compare_turns);
    return plan->queue != NULL;
}

/* Makes newer waiters queue behind a store that room is made for, while the room comes or the
 * store's waiter is patient. */
static void hold_off_newer(const struct service *s, struct plan *plan)
{
    uint64_t turn = plan->is_short ? plan->queue[plan->queue_at - 1].waiter : UINT64_MAX;
    if (turn < plan->short_turn && (plan->comes || service_holds_off(s, turn)))
        plan->short_turn = turn;
    plan->is_short = false;
}

bool plan_promotion(const struct service *s, struct plan *plan, struct deed *deed)
{
    hold_off_newer(s, plan);
    while (plan->queue_at < plan->queue_count) {
        const struct place_turn *turn = &plan->queue[plan->queue_at++];
        const struct core_store *store = core_find_store(s->core, turn->store);
        if (!store || !core_wants_promotion(s->core, store) ||
            (turn->waiter > plan->short_turn && !service_is_guaranteed(s, store)))
            continue;
        uint64_t bytes = layout_total_bytes(store->fixed);
        bool can_fit = service_can_ever_fit(s, bytes), is_short = can_fit && has_no_room(s, store);
        plan->is_short = is_short && core_check_room(s->core, store, bytes, UINT64_MAX) == 0;
        *deed = (struct deed){.type = is_short  ? DEED_MAKE_ROOM
                                      : can_fit ? DEED_PROMOTE
                                                : DEED_REFUSE,
                              .store = store->id,
                              .bytes = bytes};
        return true;
    }
    return false;
}
