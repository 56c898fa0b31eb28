/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of events, histories, drains, the device's health and the fence. */
#include "core/core_check.h"
#include "core/event_line.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static bool is_resolution(uint32_t flags)
{
    return flags == CORE_FENCE_ABORT || flags == CORE_FENCE_COMPLETE;
}

static bool is_of_copies(enum core_event_type type)
{
    return type >= CORE_EVENT_PROMOTED && type <= CORE_EVENT_EVICTED;
}

static int check_event(struct check *check, uint64_t seq)
{
    const struct core *core = check->core;
    const struct core_event *event = core_find_event(core, seq);
    bool of_bound, of_region, of_recovery;

    check->kind = "event";
    check->id = seq;
    if (!event || (unsigned)event->type >= CORE_EVENT_TYPE_COUNT)
        return core_wrong(check, "its type is invalid");
    of_bound = event->type == CORE_EVENT_BOUND;
    of_region = event->type == CORE_EVENT_REGION_REGISTERED ||
                event->type == CORE_EVENT_REGION_UNREGISTERED ||
                event->type == CORE_EVENT_REGION_ENDED;
    of_recovery = event->type == CORE_EVENT_RECOVERED;
    if (!core_is_text(event->store, sizeof event->store) ||
        !core_is_text(event->comm, sizeof event->comm) ||
        !core_is_text(event->bound, sizeof event->bound) ||
        (event->store[0] != '\0' && core_check_store_name(event->store) < 0))
        return core_wrong(check, "it has an invalid name");
    if (event->session >= core->next_session || event->waiter >= core->next_waiter)
        return core_wrong(check, "its session or its waiter never existed");
    if ((event->bound[0] != '\0') != of_bound || (event->is_share && !of_bound))
        return core_wrong(check, "it has a bound that its type does not have");
    if (!core_is_text(event->region, sizeof event->region) ||
        (of_region ? region_check_name(event->region, strlen(event->region)) < 0
                   : (event->region[0] != '\0') != of_recovery))
        return core_wrong(check, "it has a region or a cause that its type does not have");
    if (!core_is_text(event->pool, sizeof event->pool) ||
        (event->type == CORE_EVENT_OVER_QUOTA ? !core_is_pool_name(event->pool)
                                              : event->pool[0] != '\0'))
        return core_wrong(check, "it has a pool that its type does not have");
    if (!core_is_text(event->for_store, sizeof event->for_store) ||
        (event->for_store[0] != '\0' &&
         (event->type != CORE_EVENT_EVICTED || core_check_store_name(event->for_store) < 0)))
        return core_wrong(check, "it has an evictor that its type does not have");
    if (event->type != CORE_EVENT_REVOKED &&
        (event->by.pid != 0 || event->by.start != 0 || event->by_uid != 0))
        return core_wrong(check, "it has a revoker that its type does not have");
    if (event->tier >= CORE_PLACE_COUNT ||
        (!is_of_copies(event->type) &&
         (event->tier != 0 || (event->took_ms != 0 && !of_recovery))) ||
        (event->type != CORE_EVENT_MOVE_FAILED && event->type != CORE_EVENT_COPY_DROPPED &&
         event->error != 0))
        return core_wrong(check,
                          "it has a tier, a duration or an error that its type does not have");
    if (event->type == CORE_EVENT_UNFENCED ? !is_resolution(event->resolved_by)
                                           : event->resolved_by != 0)
        return core_wrong(check, "it resolves a fence in an unknown way");
    if (event->deadline_ms != 0 && event->type != CORE_EVENT_STORE_DRAINING)
        return core_wrong(check, "it has a deadline that its type does not have");
    if (event->type == CORE_EVENT_RESUMED || of_recovery
            ? event->resumes == 0 || event->resumes > core->resumes
            : event->resumes != 0)
        return core_wrong(check, "its count of replaced workers is wrong");
    return 0;
}

/* Each line begins where the previous one ends, and the last one ends at event_bytes. */
static int check_lines(struct check *check)
{
    const struct core *core = check->core;
    uint64_t first = core_first_event(core), at = core->event_bytes;

    for (uint64_t seq = core->next_event; seq-- > first;) {
        const struct core_event *event = core_find_event(core, seq);
        size_t bytes = event_line_write(event, 0, NULL);

        check->id = seq;
        if (at < bytes || event->at != at - bytes)
            return core_wrong(check, "its line has another offset than the lines before it");
        at = event->at;
    }
    check->kind = NULL;
    if (core->measured_event != core->next_event || (first == 1 && at != 0))
        return core_wrong(check, "the bytes of all events are counted wrongly");
    return 0;
}

static int check_history(const struct check *check, const struct core_store *store)
{
    if (store->history.count > CORE_HISTORY_EVENTS || store->history.first >= CORE_HISTORY_EVENTS)
        return core_wrong(check, "its history is too long");
    for (size_t i = 0; i < store->history.count; i++) {
        const struct core_past *past = core_history_get(&store->history, i);

        if (!core_is_history(past->type) || past->allocations > LAYOUT_MAX_ALLOCATIONS)
            return core_wrong(check, "its history has an invalid entry");
    }
    return 0;
}

static bool is_nobody(const struct core_drainer *drainer)
{
    return core_is_zero(drainer->token, sizeof drainer->token) && drainer->process.pid == 0 &&
           drainer->process.start == 0 && drainer->uid == 0;
}

static int check_store(struct check *check, const void *item)
{
    const struct core_store *store = item;
    const struct core_drain *drain = &store->drain;

    if (store->lock.closed != drain->is_on)
        return core_wrong(check, store->lock.closed
                                     ? "its lock is closed, which does not fit its drain"
                                     : "its lock is open, which does not fit its drain");
    if (drain->is_on && drain->id >= check->core->next_event)
        return core_wrong(check, "its drain never began");
    if (!drain->is_on && (drain->id != 0 || drain->since_ms != 0 || drain->deadline_ms != 0 ||
                          !is_nobody(&drain->by)))
        return core_wrong(check, "it has members of a drain that is over");
    return check_history(check, store);
}

int core_check_events(struct check *check)
{
    const struct core *core = check->core;
    int error = core_check_each(check, "store", &core->stores, core->next_id, check_store);

    for (uint64_t seq = core_first_event(core); seq < core->next_event && error == 0; seq++)
        error = check_event(check, seq);
    return error < 0 ? error : check_lines(check);
}

static int check_health(const struct check *check)
{
    const struct core *core = check->core;

    if (!core_is_text(core->health_reason, sizeof core->health_reason))
        return core_wrong(check, "the reason of the device's health is not terminated");
    if (!core->lost && core->suspect == 0 && core->health_reason[0] != '\0')
        return core_wrong(check, "the device is healthy and has a reason for not being so");
    return 0;
}

static int check_fence(struct check *check)
{
    const struct core *core = check->core;
    const struct core_fence *fence = &core->fence;

    for (size_t i = 0; i < 2; i++) {
        if (!core_is_text(fence->names[i], sizeof fence->names[i]) ||
            (fence->names[i][0] != '\0' && core_check_store_name(fence->names[i]) < 0))
            return core_wrong(check, "the fence has an invalid name of a store");
    }
    if (fence->is_up ? fence->resolved_by != 0 || strcmp(fence->names[0], fence->names[1]) == 0
                     : fence->names[0][0] != '\0' || fence->names[1][0] != '\0')
        return core_wrong(check, "the fence has names or a resolution that do not fit its state");
    if (fence->resolved_by != 0 && !is_resolution(fence->resolved_by))
        return core_wrong(check, "the last fence was resolved in an unknown way");
    if (fence->is_up && core->draining)
        return core_wrong(check, "a fence is up although the mount is drained");
    if (fence->is_up && !core_find_store_name(core, fence->names[0]))
        return core_wrong(check, "the store of the fence does not exist");
    for (size_t i = 0; i < 2 && fence->is_up; i++) {
        const struct core_store *store = core_find_store_name(core, fence->names[i]);

        if (store && (store->lock.session_count > 0 || store->lock.waiter_count > 0))
            return failure_set(check->failure, -EINVAL,
                               "store %" PRIu64 ": it is in use behind the fence", store->id);
    }
    return 0;
}

int core_check_mount(struct check *check)
{
    const struct core *core = check->core;
    int error = check_health(check);

    if (error == 0 && !core->draining && !is_nobody(&core->drainer))
        error = core_wrong(check, "the mount has a drainer and is not draining");
    return error < 0 ? error : check_fence(check);
}
