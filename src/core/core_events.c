/* SPDX-License-Identifier: Apache-2.0 */
/* core_events - lines for events and the audit, in a ring, and the histories of stores */
#include "core/core_fields.h"
#include "core/core_internal.h"
#include "core/event_line.h"

#include <string.h>

bool core_is_history(enum core_event_type type)
{
    switch (type) {
    case CORE_EVENT_RW_CONNECTED:
    case CORE_EVENT_RW_DATA_CONNECTED:
    case CORE_EVENT_RW_DATA_DISCONNECTED:
    case CORE_EVENT_COMMITTED:
    case CORE_EVENT_SEALED:
    case CORE_EVENT_CLEARED:
    case CORE_EVENT_ROLLED_BACK:
    case CORE_EVENT_ABORTED:
    case CORE_EVENT_OUT_OF_MEMORY:
        return true;
    default:
        return false;
    }
}

void core_history_add(struct core_history *history, struct core_past past)
{
    history->events[(history->first + history->count) % CORE_HISTORY_EVENTS] = past;
    if (history->count < CORE_HISTORY_EVENTS)
        history->count++;
    else
        history->first = (history->first + 1) % CORE_HISTORY_EVENTS;
}

const struct core_past *core_history_get(const struct core_history *history, size_t index)
{
    return &history->events[(history->first + index) % CORE_HISTORY_EVENTS];
}

static void count_texts(struct core *core, struct core_event *event)
{
    event->text_bytes = core_count_texts(core_event_fields, event);
    core->event_text_bytes += event->text_bytes;
}

void core_measure_events(struct core *core)
{
    for (; core->measured_event < core->next_event; core->measured_event++) {
        struct core_event *event =
            &core->events[core->measured_event % core->options.limits.events];

        event->at = core->event_bytes;
        core->event_bytes += event_line_write(event, 0, NULL);
        count_texts(core, event);
    }
}

void core_count_event_texts(struct core *core)
{
    core->event_text_bytes = 0;
    for (uint64_t seq = core_first_event(core); seq < core->next_event; seq++)
        count_texts(core, &core->events[seq % core->options.limits.events]);
}

static struct core_event *new_event(struct apply *apply, enum core_event_type type,
                                    const struct core_store *store)
{
    struct core *core = apply->core;
    const struct layout *layout = store ? core_get_layout(core, store) : core->empty;
    /* the last event is complete by now, and this one may replace it */
    core_measure_events(core);
    uint64_t seq = core->next_event++;
    struct core_event *event = &core->events[seq % core->options.limits.events];

    core->event_text_bytes -= event->text_bytes;
    *event = (struct core_event){
        .seq = seq,
        .type = type,
        .wall_ms = apply->record->wall_ms,
        .process = apply->record->process,
        .uid = apply->record->uid,
        .allocations = layout_count_allocations(layout),
        .bytes = layout_total_bytes(layout),
        .generation = store ? store->generation : 0,
    };
    if (store)
        memcpy(event->store, store->name, sizeof event->store);
    if (store && core_is_history(type))
        core_history_add(
            &core_store(core, store->id)->history,
            (struct core_past){.type = type, .allocations = (uint32_t)event->allocations});
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
    }
    if (type == CORE_EVENT_BOUND) {
        memcpy(event->bound, apply->record->name, apply->record->name_bytes);
        event->is_share = (apply->record->flags & CORE_BOUND_SHARE) != 0;
    }
    if (type == CORE_EVENT_OVER_QUOTA)
        memcpy(event->pool, apply->record->name, apply->record->name_bytes);
    if (type == CORE_EVENT_UNFENCED)
        event->resolved_by = apply->record->flags;
    if (type == CORE_EVENT_STORE_DRAINING)
        event->deadline_ms = store->drain.deadline_ms;
}

struct core_event *core_add_move_event(struct apply *apply, enum core_event_type type,
                                       const struct core_store *store, enum core_place tier,
                                       int error)
{
    struct core_event *event = new_event(apply, type, store);
    const struct core_move *move = &store->places.move;

    event->tier = (uint32_t)tier;
    event->error = (uint32_t)error;
    if (move->id != 0 && apply->record->now_ms > move->since_ms)
        event->took_ms = apply->record->now_ms - move->since_ms;
    return event;
}

void core_add_region_event(struct apply *apply, enum core_event_type type,
                           const struct region *region)
{
    struct core_event *event = new_event(apply, type, NULL);

    event->uid = region->uid;
    event->bytes = region->byte_size;
    memcpy(event->region, region->name, region->name_bytes);
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
