/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - has stores leave the device so that another store fits
 *
 * evict_plan.c chooses the victims, anew after each record that may change the choice: no wish
 * waits for a victim of an earlier choice.
 */
#include "service/evict_table.h"
#include "service/moves.h"
#include "service/plan.h"
#include "service/trace.h"

static bool may_try(struct service *s)
{
    if (service_is_backed_off(s, BACKOFF_EVICT, 0))
        return false;
    uint64_t wait_ms = service_count_try(s, BACKOFF_EVICT_TRIES);
    if (wait_ms > 0)
        service_back_off(s, BACKOFF_EVICT, 0, wait_ms);
    return wait_ms == 0;
}

/* has_none: other programs have taken all that is free by the account. */
static bool evict(struct service *s, const struct core_store *store, uint64_t bytes, bool has_none)
{
    uint64_t id = store->id, victim;
    enum core_place to;
    struct evict_plan plan;
    if (!evict_plan_begin(s, &plan, store, bytes, has_none)) {
        service_back_off(s, BACKOFF_EVICT, 0, SERVICE_PROMOTE_RETRY_MS);
        return false;
    }
    while (evict_plan_next(s, &plan, &victim, &to)) {
        if (service_evict(s, victim, to, id) == 0)
            evict_plan_leaves(&plan);
        else
            evict_plan_stays(s, &plan);
    }
    bool comes = evict_plan_comes(&plan);
    if (log_is_debug())
        trace_eviction(s, id, bytes, plan.chosen, comes);
    uint64_t stay_ms = comes ? 0 : evict_plan_stay_ms(&plan);
    if (stay_ms > 0)
        service_back_off(s, BACKOFF_STAY, id, stay_ms);
    evict_table_free(&plan.table);
    return comes;
}

bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes)
{
    if (!s->options.evicts || s->ending)
        return false;
    if (service_had_no_victims(s, store->id, bytes) || !may_try(s))
        return false;
    uint64_t id = store->id;
    bool comes = evict(s, store, bytes, false);
    if (!comes)
        service_note_no_victims(s, id, bytes);
    return comes;
}

bool service_evict_for_shortfall(struct service *s, const struct core_store *store, uint64_t bytes)
{
    s->shortfall.bytes = 0;
    return evict(s, store, bytes, true);
}
