/* SPDX-License-Identifier: Apache-2.0 */
/* records - applying them, and their effects: what has to be done outside, and who hears of it */
#include "service/discard.h"
#include "service/service_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void tell_state(struct service *s, uint64_t store)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_state)
            at->on_state(at->context, store);
}

static void tell_place(struct service *s, uint64_t store)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_place)
            at->on_place(at->context, store);
}

static void tell_event(struct service *s)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_event)
            at->on_event(at->context);
}

static void handle_effect(struct service *s, const struct effect *effect)
{
    switch (effect->type) {
    case EFFECT_GRANTED:
        service_on_granted(s, effect);
        break;
    case EFFECT_REFUSED:
        service_on_refused(s, effect);
        break;
    case EFFECT_FREE_MEMORY:
        service_on_free_memory(s, effect->memory);
        break;
    case EFFECT_STATE:
        tell_state(s, effect->store);
        break;
    case EFFECT_EVENT:
        tell_event(s);
        break;
    case EFFECT_SESSION_OVER:
        service_cancel_session_allocs(s, effect->session);
        service_unwatch(s, effect->owner);
        service_on_session_over(s, effect->session);
        break;
    case EFFECT_PLACE:
        tell_place(s, effect->store);
        break;
    case EFFECT_MOVE_OVER:
        service_on_move_over(s, effect);
        break;
    case EFFECT_REGION_OVER:
        service_on_region_over(s, effect);
        break;
    }
}

/* The device's account follows what the core has set aside, before anybody else asks for memory.
 * Whether some of it is free again. */
static bool settle_account(struct service *s)
{
    uint64_t aside_bytes = vmm_get_aside(s->vmm);
    if (s->core->reserved_bytes == aside_bytes)
        return false;
    int error = vmm_set_aside(s->vmm, s->core->reserved_bytes);
    assert(!error); /* the record said how much is free, and nobody has asked since */
    (void)error;
    return s->core->reserved_bytes < aside_bytes;
}

/* Into the journal first: what cannot be recorded does not happen. */
static int apply(struct service *s, struct record *record, struct outcome *outcome)
{
    size_t mark = 0;
    memset(outcome, 0, sizeof *outcome);
    record->now_ms = service_now(s);
    int error = service_take_room_for(s, record, outcome);
    if (error)
        return error;
    record->free_bytes = vmm_get_free(s->vmm);
    record->wall_ms = s->host.wall_ms(s->host.context);
    error = s->host.record(s->host.context, record, &mark);
    if (error)
        return error;
    size_t waiters_before = s->core->waiters.count;
    error = core_apply(s->core, record, outcome);
    if (error && !outcome->noted)
        s->host.unrecord(s->host.context, mark);
    s->changes++;
    if (!error && service_look_for_changes(s, record, waiters_before))
        service_retry_allocs_soon(s);
    return error;
}

/* Who wanted more than the pool of the store allows. */
static void note_pool(struct service *s, const struct record *record, const struct outcome *outcome,
                      const struct core_file *file)
{
    const struct core_session *session = core_find_session(s->core, record->session);
    const struct core_store *store = core_find_store(s->core, session ? session->store
                                                              : file  ? file->store
                                                                      : record->store);
    if (store && store->use.pool == outcome->pool)
        service_note_over_quota(s, store,
                                session ? session->uid
                                : file  ? file->uid
                                        : record->uid,
                                session ? session->owner : record->process);
}

/* A bound that the record met is told after its effects: telling it is another record. */
static void note_bound(struct service *s, const struct record *record,
                       const struct outcome *outcome, int error)
{
    const struct core_file *file = core_find_file(s->core, record->file);
    uint64_t store = record->store;
    if (error == -EDQUOT && outcome->pool != 0)
        note_pool(s, record, outcome, file);
    if (!error || outcome->bound == CORE_BOUND_NONE)
        return;
    if (store == 0 && file)
        store = file->store;
    service_note_bound(s, core_bound_name(outcome->bound), store, outcome->bound_uid, error);
}

static void handle_effects(struct service *s)
{
    struct effect effect;
    bool is_freed = settle_account(s);
    /* An effect's answer may apply further records, which take of the queue as well: that is fine,
     * each effect is taken exactly once and in order. */
    while (core_next_effect(s->core, &effect))
        handle_effect(s, &effect);
    piece_free_doomed(s);
    service_discard_garbage(s);
    if (is_freed)
        service_on_memory(s);
    service_evict_for_lack(s);
    service_start_heals(s);
    service_start_promotions(s);
    service_evict_for_writers(s);
    service_evict_for_allocs(s);
    service_evict_for_moves(s);
    s->is_unsettled = true;
}

int service_apply_record(struct service *s, struct record *record, struct outcome *outcome)
{
    struct outcome ignored;
    if (!outcome)
        outcome = &ignored;
    int error = apply(s, record, outcome);
    handle_effects(s);
    note_bound(s, record, outcome, error);
    return error;
}

int service_apply_asking(struct service *s, struct record *record, struct outcome *outcome,
                         struct parked *parked, uint64_t *waiter)
{
    int error = apply(s, record, outcome);
    *waiter = error ? 0 : outcome->waiter;
    if (*waiter)
        error = service_park(s, parked, *waiter);
    handle_effects(s);
    note_bound(s, record, outcome, error);
    return error;
}

void service_on_memory(struct service *s)
{
    struct record record = {.type = RECORD_TIME};
    service_retry_spools(s);
    service_retry_allocs(s);
    service_answer_freed(s);
    service_start_promotions(s);
    if (s->core->reserving > 0)
        service_apply_record(s, &record, NULL);
    service_resume_moves(s); /* last: others may wait for longer */
    service_evict_for_moves(s);
    s->is_unsettled = true; /* what failed is tried again */
}

void service_look_at_moves(struct service *s)
{
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++)
        service_drop_spares(s, (enum core_place)tier);
    service_resume_moves(s);
    service_evict_for_moves(s);
}
