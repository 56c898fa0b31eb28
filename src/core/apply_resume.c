/* SPDX-License-Identifier: Apache-2.0 */
/* A new worker takes over the state: operations in progress ended with the old one. See core.h,
 * RESUMING. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

/* Sessions that end leave the table, so the next one is found by its id. */
static void end_sessions(struct apply *apply)
{
    struct core_session *session;

    for (uint64_t id = 0; (session = idvec_find_after(&apply->core->sessions, id));) {
        id = session->id;
        if (session->ending)
            apply_end_session(apply, session, false);
    }
}

/* In order of ids: the oldest session reserves first. */
static void undo_making(struct apply *apply)
{
    for (size_t i = 0; i < apply->core->sessions.count; i++)
        apply_undo_making(apply, apply->core->sessions.items[i]);
}

/* Forgets waiters for a RELEASE, which start again. All others have the full time to come back to
 * this worker. */
static void keep_places(struct apply *apply)
{
    struct core_waiter *waiter;

    for (uint64_t id = 0; (waiter = idvec_find_after(&apply->core->waiters, id));) {
        id = waiter->id;
        if (waiter->flags & CORE_OPEN_GRACE && !waiter->away)
            apply_forget_waiter(apply, waiter);
        else
            apply_keep_place(apply, waiter);
    }
}

static struct core_event *add_event(struct apply *apply, enum core_event_type type)
{
    struct core *core = apply->core;
    struct core_event *event = &core->events[core->next_event % core->options.limits.events];

    core_add_event(apply, type, NULL, NULL);
    event->resumes = core->resumes;
    return event;
}

static int end_resuming(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_event *event;

    if (record->name_bytes >= sizeof event->cause ||
        (record->name_bytes > 0 &&
         (!apply->core->is_resuming || memchr(record->name, '\0', record->name_bytes))))
        return -EINVAL;
    apply->core->is_resuming = false;
    if (record->name_bytes > 0) {
        event = add_event(apply, CORE_EVENT_RECOVERED);
        memcpy(event->cause, record->name, record->name_bytes);
        event->took_us = record->took_us;
    }
    return apply_time(apply);
}

int apply_resume(struct apply *apply)
{
    struct core *core = apply->core;

    if (apply->record->flags & ~CORE_RESUME_END)
        return -EINVAL;
    if (apply->record->flags)
        return end_resuming(apply);
    keep_places(apply);
    core->is_resuming = true;
    end_sessions(apply);
    undo_making(apply);
    core->resumes++;
    add_event(apply, CORE_EVENT_RESUMED);
    return 0;
}
