/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_queue - the queue of waiting ALLOCs and RESERVEs, as other waiters see it */
#include "service/alloc_op.h"
#include "service/plan.h"
#include "service/views.h"

#include <errno.h>

uint64_t service_alloc_turn(const struct service *s)
{
    uint64_t turn = UINT64_MAX;
    for (const struct alloc_op *op = s->alloc_queue; op; op = op->next) {
        if (op->turn < turn && op->turn_until_ms > service_now(s))
            turn = op->turn;
    }
    return turn == UINT64_MAX ? turn : turn - 1;
}

bool service_is_guaranteed(const struct service *s, const struct core_store *store)
{
    return layout_total_bytes(store->fixed) <= core_get_unfilled(core_find_pool(s->core, store));
}

/* ---- waiters ahead ----------------------------------------------------------------------- */

/* Returns true if the waiter waits for memory alone: with memory it would have been granted, or the
 * store would be on its way. */
static bool waits_for_memory(const struct service *s, const struct core_store *store,
                             const struct core_waiter *waiter)
{
    if (!core_waiter_counts(waiter))
        return false;
    if (core_get_place_turn(s->core, store) == waiter->id)
        return core_wants_promotion(s->core, store) && !core_is_fenced(s->core, store->name);
    return waiter->reserve_bytes > 0 && lock_is_free_for(&store->lock, waiter->id);
}

/* A waiter for which its pool has no room holds off waiters of the same pool alone. */
static bool holds_off(const struct service *s, const struct core_store *before,
                      const struct core_waiter *waiter, const struct core_store *store)
{
    uint64_t bytes =
        waiter->reserve_bytes > 0 ? waiter->reserve_bytes : layout_total_bytes(before->fixed);
    bool of_pool = core_check_room(s->core, before, bytes, UINT64_MAX) == -EDQUOT;
    return service_holds_off(s, waiter->id) && (!of_pool || before->use.pool == store->use.pool);
}

static const struct core_store *find_alloc(const struct service *s, uint64_t turn)
{
    for (const struct alloc_op *op = s->alloc_queue; op; op = op->next) {
        const struct core_session *session = core_find_session(s->core, op->session);
        if (session && op->turn == turn && op->turn_until_ms > service_now(s))
            return core_find_store(s->core, session->store);
    }
    return NULL;
}

/* Returns the store of the first waiter older than `store`, and older than `turn`, that holds it
 * off; NULL if there is none. Thousands may wait for locks alone: they cost a look each, or none if
 * no waiter can be short of memory. */
static const struct core_store *find_waiter(const struct service *s, uint64_t turn,
                                            const struct core_store *store)
{
    const struct core *core = s->core;
    if (core->reserving == 0 && core->displaced == 0)
        return NULL;
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        if (waiter->store == store->id || waiter->id > turn)
            return NULL;
        if (waiter->reserve_bytes == 0 && core->displaced == 0)
            continue;
        const struct core_store *before = core_find_store(core, waiter->store);
        if (waits_for_memory(s, before, waiter) && holds_off(s, before, waiter, store))
            return before;
    }
    return NULL;
}

const struct core_store *service_get_ahead(const struct service *s, const struct core_store *store)
{
    uint64_t alloc_turn = service_alloc_turn(s);
    const struct core_store *before = find_waiter(s, alloc_turn, store);
    if (before)
        return before;
    const struct core_store *making =
        alloc_turn == UINT64_MAX ? NULL : find_alloc(s, alloc_turn + 1);
    return making == store ? NULL : making;
}
