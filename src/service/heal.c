/* SPDX-License-Identifier: Apache-2.0 */
/* heal - chooses the store with suspect memory that is healed next from its copy on the disk */
#include "service/plan.h"

/* Names the store with the oldest first waiter. A store without waiters begins only when no other
 * copy is being read, for it would be in the way. */
bool plan_heal(const struct service *s, struct plan *plan, struct deed *deed)
{
    const struct core_store *chosen = NULL;
    uint64_t chosen_turn = UINT64_MAX;
    bool is_reading = false;
    (void)plan;
    if (s->core->suspect == 0 || s->ending || s->moves.end)
        return false;
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        uint64_t turn = core_get_heal_turn(s->core, store);
        is_reading |= core_is_healing(store);
        if (!core_wants_heal(s->core, store) ||
            service_is_backed_off(s, BACKOFF_LEAVE, store->id) ||
            (chosen && (turn == 0 || turn > chosen_turn)))
            continue;
        chosen = store;
        chosen_turn = turn ? turn : UINT64_MAX;
    }
    if (!chosen || (chosen_turn == UINT64_MAX && is_reading))
        return false;
    *deed = (struct deed){.type = DEED_HEAL, .store = chosen->id};
    return true;
}
