/* SPDX-License-Identifier: Apache-2.0 */
/* line - who waits for memory in ALLOC or RESERVE, as those see it who wait for it elsewhere */
#include "service/alloc_op.h"

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

bool service_may_promote(const struct service *s, const struct core_store *store)
{
    return service_alloc_turn(s) == UINT64_MAX || service_is_guaranteed(s, store);
}
