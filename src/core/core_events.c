/* SPDX-License-Identifier: Apache-2.0 */
/* core_events - lines for events and the audit, in a ring */
#include "core/core_internal.h"

#include <string.h>

static struct core_event *new_event(struct apply *apply, enum core_event_type type,
                                    const struct core_store *store)
{
    struct core *core = apply->core;
    const struct layout *layout = store ? core_get_layout(core, store) : core->empty;
    uint64_t seq = core->next_event++;
    struct core_event *event = &core->events[seq % core->options.limits.events];

    *event = (struct core_event){
        .seq = seq,
        .type = type,
        .wall_ms = apply->record->wall_ms,
        .allocations = layout_count_allocations(layout),
        .bytes = layout_total_bytes(layout),
        .generation = store ? store->generation : 0,
    };
    if (store)
        memcpy(event->store, store->name, sizeof event->store);
    if (type == CORE_EVENT_REVOKED) {
        event->by = apply->record->process;
        event->by_uid = apply->record->uid;
    }
    core_push_effect(core, (struct effect){.type = EFFECT_EVENT, .store = store ? store->id : 0});
    return event;
}

void core_add_event(struct apply *apply, enum core_event_type type, const struct core_store *store,
                    const struct core_session *session)
{
    struct core_event *event = new_event(apply, type, store);

    if (session) {
        event->session = session->id;
        event->process = session->owner;
        event->uid = session->uid;
        memcpy(event->comm, session->comm, sizeof event->comm);
    } else {
        event->process = apply->record->process;
        event->uid = apply->record->uid;
    }
    if (type == CORE_EVENT_BOUND) {
        memcpy(event->bound, apply->record->name, apply->record->name_bytes);
        event->is_share = (apply->record->flags & CORE_BOUND_SHARE) != 0;
    }
}

void core_add_waiter_event(struct apply *apply, enum core_event_type type,
                           const struct core_waiter *waiter)
{
    struct core_event *event = new_event(apply, type, core_store(apply->core, waiter->store));

    event->waiter = waiter->id;
    event->process = waiter->owner;
    event->uid = waiter->uid;
    memcpy(event->comm, waiter->comm, sizeof event->comm);
}
