/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims - names the store that gets device memory next
 *
 * Waiters with a reservation come one at a time, in their order in the queue: a newer one gets no
 * room before an older one, unless no room can be made for that one, and its patience is over.
 */
#include "service/alloc_op.h"
#include "service/moves.h"
#include "service/plan.h"

/* ---- the queue of waiters --------------------------------------------------------------- */

/* Returns the first waiter newer than `after` that waits for memory alone: its lock is free. */
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

/* ---- planners ----------------------------------------------------------------------------- */

static bool make_room(const struct service *s, struct deed *deed, const struct core_store *store,
                      uint64_t bytes)
{
    *deed = (struct deed){.type = DEED_MAKE_ROOM, .bytes = bytes};
    deed->store = store ? store->id : 0;
    return store && bytes > 0 && s->options.evicts && !s->ending;
}

bool plan_shortfall(const struct service *s, struct plan *plan, struct deed *deed)
{
    (void)plan;
    bool is_short =
        make_room(s, deed, core_find_store(s->core, s->shortfall.store), s->shortfall.bytes);
    deed->type = DEED_COVER_SHORTFALL;
    return is_short;
}

static uint64_t count_short(const struct core_store *store, const struct core_waiter *waiter)
{
    uint64_t replaced_bytes = store->fixed && store->places.place == CORE_PLACE_DEVICE
                                  ? layout_total_bytes(store->fixed)
                                  : 0;
    return waiter->reserve_bytes > replaced_bytes ? waiter->reserve_bytes - replaced_bytes : 0;
}

bool plan_writer(const struct service *s, struct plan *plan, struct deed *deed)
{
    const struct core_waiter *waiter = core_find_waiter(s->core, plan->writer);
    while (s->options.evicts && !plan->comes) {
        if (waiter && core_is_patient(s->core, waiter, service_now(s)))
            return false;
        waiter = find_short_writer(s, plan->writer);
        if (!waiter || waiter->id > plan->short_turn)
            return false;
        const struct core_store *store = core_find_store(s->core, waiter->store);
        plan->writer = waiter->id;
        if (make_room(s, deed, store, count_short(store, waiter)))
            return true;
    }
    return false;
}

bool plan_alloc(const struct service *s, struct plan *plan, struct deed *deed)
{
    const struct alloc_op *op = plan->has_alloc ? NULL : s->alloc_queue;
    while (op && alloc_is_backed_off(s, op))
        op = op->next;
    const struct core_session *held = op ? core_find_session(s->core, op->session) : NULL;
    plan->has_alloc = true;
    return held &&
           make_room(s, deed, core_find_store(s->core, held->store), alloc_count_short(op, held));
}

bool plan_move(const struct service *s, struct plan *plan, struct deed *deed)
{
    uint64_t move;
    const struct core_store *store = service_get_short_move(s, &move);
    (void)plan;
    if (!store)
        return false;
    make_room(s, deed, store, layout_total_bytes(store->fixed));
    deed->move = move;
    return true;
}
