/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger - the one place where records are applied
 *
 * A record is written to the journal and changes the state; the account of the device follows. A
 * new ticket gets its random bytes here. Nothing is answered, planned or freed here: the core's
 * effects wait in its queue until the step ends (settle.c), so a caller finds everything else
 * unchanged.
 */
#include "base/probe.h"
#include "service/cost.h"
#include "service/trace.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Returns false for frequent records that change no choice of victims; most others may. */
static bool may_change_choices(const struct core *core, const struct record *record,
                               size_t waiters_before)
{
    switch (record->type) {
    case RECORD_TIME: /* forgets waiters; its grants end waits as well */
        return core->waiters.count != waiters_before;
    case RECORD_FILE_OPEN:
    case RECORD_GATHER:
    case RECORD_BOUND:
    case RECORD_OVER_QUOTA:
    case RECORD_OUT_OF_MEMORY:
    case RECORD_ENTRY_PUT:
    case RECORD_ENTRY_PUT_MANY:
        return false;
    default:
        return true;
    }
}

/* The journal comes first: a record that cannot be written is not applied. */
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
    if (!error && may_change_choices(s->core, record, waiters_before)) {
        s->backoffs.choices++;
        s->step.has_changed = true;
    }
    return error;
}

/* Makes the device's account follow the core's reservations, before any other request for
 * memory. */
static void keep_account(struct service *s)
{
    uint64_t aside_bytes = vmm_get_aside(s->vmm);
    if (s->core->reserved_bytes == aside_bytes)
        return;
    int error = vmm_set_aside(s->vmm, s->core->reserved_bytes);
    assert(!error); /* the record had the free bytes, and no request came since */
    (void)error;
    s->step.has_memory |= s->core->reserved_bytes < aside_bytes;
}

static void tell_event(const struct service *s)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_event)
            at->on_event(at->context);
}

/* Handles effects that cannot wait for the end of the step: memory counts as coming back from now
 * on, and the ring of events holds fewer than one step may bring. */
static void note_effects(struct service *s, size_t first)
{
    const struct effect *effect;
    size_t at = 0;
    for (size_t i = first; (effect = core_peek_effect(s->core, i)); i++) {
        if (effect->type == EFFECT_FREE_MEMORY)
            piece_doom(s, effect->memory, &at);
        else if (effect->type == EFFECT_EVENT)
            tell_event(s);
        else if (effect->type == EFFECT_GRANTED)
            PROBE_GRANT(effect->store, effect->session, effect->waiter);
    }
}

/* Notes that the user wanted more than the store's pool has. */
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

/* A lock that was free is granted by the record itself, not by an effect. */
static void probe_own_grant(const struct service *s, const struct record *record, uint64_t session)
{
    bool grants = record->type == RECORD_LOCK_OPEN || record->type == RECORD_ACQUIRE;
    const struct core_session *granted = grants ? core_find_session(s->core, session) : NULL;
    if (granted)
        PROBE_GRANT(granted->store, session, UINT64_C(0));
}

int service_apply_record(struct service *s, struct record *record, struct outcome *outcome)
{
    struct outcome ignored;
    if (!outcome)
        outcome = &ignored;
    size_t effects = s->core->effect_count;
    uint64_t began_us = log_begin_trace();
    int error = apply(s, record, outcome);
    PROBE_RECORD(record->type, record->store, record->session, error);
    if (!error && outcome->session)
        probe_own_grant(s, record, outcome->session);
    if (began_us)
        trace_record(s, record, outcome, error, effects, began_us);
    keep_account(s);
    note_effects(s, effects);
    note_bound(s, record, outcome, error);
    /* A refused record changed nothing: it must not begin the end of the step again. */
    s->step.is_unsettled |= !error || s->core->effect_count > effects;
    return error;
}

int service_add_ticket(struct service *s, struct record *record, uint8_t ticket[16])
{
    int error = s->host.get_random(s->host.context, record->bytes16, sizeof record->bytes16);
    if (!error)
        error = service_apply_record(s, record, NULL);
    if (error)
        return error;
    memcpy(ticket, record->bytes16, sizeof record->bytes16);
    s->counts->exports++;
    return 0;
}
