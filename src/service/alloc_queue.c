/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_queue - the queue of waiting ALLOCs and RESERVEs, as other waiters see it */
#include "service/alloc_op.h"
#include "service/plan.h"
#include "service/views.h"

#include <errno.h>

/* ---- the queue --------------------------------------------------------------------------- */

/* An operation that lacked memory while it was made comes back with its old turn. */
void alloc_queue_add(struct service *s, struct alloc_op *op)
{
    struct alloc_op *before = s->last_queued;
    while (before && before->turn > op->turn)
        before = before->prev;
    op->prev = before;
    op->next = before ? before->next : s->alloc_queue;
    *(op->prev ? &op->prev->next : &s->alloc_queue) = op;
    *(op->next ? &op->next->prev : &s->last_queued) = op;
    if (op->turn_until_ms > service_now(s) && (!s->first_turn || s->first_turn == op->next))
        s->first_turn = op;
    op->is_queued = true;
    s->numbers.allocs_waiting++;
}

void alloc_queue_remove(struct service *s, struct alloc_op *op)
{
    *(op->prev ? &op->prev->next : &s->alloc_queue) = op->next;
    *(op->next ? &op->next->prev : &s->last_queued) = op->prev;
    if (s->first_turn == op)
        s->first_turn = op->next;
    if (s->next_tried == op)
        s->next_tried = op->next;
    op->is_queued = false;
    s->numbers.allocs_waiting--;
}

void alloc_queue_pass_turns(struct service *s)
{
    uint64_t now_ms = service_now(s);
    while (s->first_turn && s->first_turn->turn_until_ms <= now_ms)
        s->first_turn = s->first_turn->next;
}

/* Returns the first operation that newer waiters queue behind; NULL if there is none. Each step
 * asks, and thousands may be queued. */
static const struct alloc_op *find_turn(const struct service *s)
{
    const struct alloc_op *op = s->first_turn;
    uint64_t now_ms = op ? service_now(s) : 0;
    while (op && op->turn_until_ms <= now_ms)
        op = op->next;
    return op;
}

uint64_t service_alloc_turn(const struct service *s)
{
    const struct alloc_op *op = find_turn(s);
    return op ? op->turn - 1 : UINT64_MAX;
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

/* Returns the store of the first ALLOC that newer waiters queue behind; NULL if there is none. */
static const struct core_store *find_alloc(const struct service *s)
{
    const struct alloc_op *op = find_turn(s);
    const struct core_session *session = op ? core_find_session(s->core, op->session) : NULL;
    return session ? core_find_store(s->core, session->store) : NULL;
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
    const struct core_store *making = find_alloc(s);
    return making == store ? NULL : making;
}
