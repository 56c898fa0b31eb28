/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settle - the end of a step of the loop: everything that follows from the records of the step
 *
 * Ends of jobs first, then effects, then memory that is free and sessions that are over, then the
 * service's own decisions. Each may apply records, so this repeats until nothing follows; nothing
 * below calls it. A refused record does not count, or a record that cannot be written would keep
 * the step going for ever. Where the journal has no room for an answer, the records of the step so
 * far are published without the answers that the step still has to give.
 */
#include "service/account.h"
#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"
#include "service/moves.h"
#include "service/parked.h"
#include "service/plan.h"
#include "service/summing.h"
#include "service/trace.h"
#include "service/transfers.h"

#include <stdlib.h>

static bool take(bool *flag)
{
    bool was_set = *flag;
    *flag = false;
    return was_set;
}

/* ---- effects ------------------------------------------------------------------------------- */

#define TELL(s, call, store)                                              \
    for (struct service_observer *at = (s)->observers; at; at = at->next) \
        if (at->call)                                                     \
    at->call(at->context, store)

static void handle_effect(struct service *s, const struct effect *effect)
{
    switch (effect->type) {
    case EFFECT_GRANTED:
        service_on_granted(s, effect);
        break;
    case EFFECT_REFUSED:
        service_on_refused(s, effect);
        break;
    case EFFECT_STATE:
        service_on_sums_state(s, effect->store);
        TELL(s, on_state, effect->store);
        break;
    case EFFECT_SESSION_OVER:
        service_cancel_session_allocs(s, effect->session);
        service_unwatch(s, effect->owner);
        service_on_session_over(s, effect->session);
        break;
    case EFFECT_PLACE:
        TELL(s, on_place, effect->store);
        break;
    case EFFECT_MOVE_OVER:
        service_on_move_over(s, effect);
        break;
    case EFFECT_REGION_OVER:
        service_on_region_over(s, effect);
        break;
    case EFFECT_FREE_MEMORY: /* the ledger has handled these */
    case EFFECT_EVENT:
        break;
    }
}

/* ---- endings ------------------------------------------------------------------------------ */

static void tell_bounds(struct service *s)
{
    struct record record;
    while (service_take_note(s, &record))
        service_apply_record(s, &record, NULL);
}

static void end_tasks(struct service *s)
{
    struct task *task;
    while ((task = s->step.done)) {
        s->step.done = task->next;
        task->end(s, task);
    }
}

static void run_endings_and_notes(struct service *s)
{
    if (take(&s->step.has_endings))
        service_run_endings(s);
    if (take(&s->step.has_notes))
        tell_bounds(s);
}

/* ---- decisions --------------------------------------------------------------------------- */

/* Carries out a planner's deeds. Their number is limited, for a planner names a failed deed again
 * once the table of back-offs has no row for it. */
static void carry_out(struct service *s, struct plan *plan, service_planner *next)
{
    struct deed deed;
    size_t left = s->core->stores.count + s->core->waiters.count;
    plan->comes = false;
    for (; left > 0 && next(s, plan, &deed); left--) {
        plan->comes = service_do(s, &deed);
        if (log_is_debug())
            trace_deed(s, next, &deed, plan->comes);
    }
}

static void look_at_moves(struct service *s, struct plan *plan)
{
    for (unsigned tier = CORE_PLACE_HOST; tier < CORE_TIER_COUNT; tier++) {
        plan_take_spares(s, plan, (enum core_place)tier);
        carry_out(s, plan, plan_spare);
    }
    service_resume_moves(s);
}

static void plan(struct service *s)
{
    struct plan plan = {0};
    bool has_memory = take(&s->step.has_memory), has_moves = take(&s->step.has_moves);
    if (take(&s->step.has_changed))
        service_retry_allocs_soon(s);
    if (has_memory) {
        service_retry_spools(s);
        service_retry_allocs(s);
        service_answer_freed(s);
    }
    carry_out(s, &plan, plan_shortfall);
    carry_out(s, &plan, plan_heal);
    if (!plan_take_queue(s, &plan))
        service_back_off(s, BACKOFF_PROMOTE, 0, SERVICE_PROMOTE_RETRY_MS);
    carry_out(s, &plan, plan_promotion);
    if (has_memory && s->core->reserving > 0)
        service_pass_time(s);
    if (has_memory || has_moves)
        look_at_moves(s, &plan); /* last: other waiters may have waited longer */
    carry_out(s, &plan, plan_writer);
    carry_out(s, &plan, plan_alloc);
    carry_out(s, &plan, plan_move);
    free(plan.queue);
    free(plan.spares);
}

/* ---- the end of a step ----------------------------------------------------------------------- */

static void arm_timer(struct service *s)
{
    uint64_t core_ms = core_next_moment(s->core, service_now(s)), own_ms = deadline_first(s);
    s->host.set_timer(s->host.context, core_ms < own_ms ? core_ms : own_ms);
}

void service_end_step(struct service *s)
{
    struct effect effect;
    if (!s->step.is_unsettled && !s->step.sets_timer)
        return;
    while (take(&s->step.is_unsettled)) {
        end_tasks(s);
        while (core_next_effect(s->core, &effect))
            handle_effect(s, &effect);
        run_endings_and_notes(s);
        if (core_peek_effect(s->core, 0))
            continue;         /* of an ending: its answers come first */
        piece_free_doomed(s); /* publishes the records if no thread frees it */
        service_discard_garbage(s);
        plan(s);
    }
    s->step.sets_timer = false;
    arm_timer(s);
}

bool service_is_unsettled(const struct service *s)
{
    return s->step.is_unsettled || s->step.sets_timer;
}
