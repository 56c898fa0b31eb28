/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_line - how long a waiter for memory holds off newer ones
 *
 * If it held them off for ever, a request for more memory than will ever be free (the whole device
 * beside an engine that stays) would block all others. If it never did, small requests that come
 * and go would starve it. So it holds them off while it is patient: in that time sessions end and
 * none begins. After that newer waiters pass it, except during one patience interval in INTERVALS,
 * in which memory gathers for it again. These intervals are the same for all waiters; otherwise
 * many hopeless waiters would take turns in blocking the others.
 */
#include "core/core_internal.h"

#include "base/array.h"

#define INTERVALS 10u

/* True during an interval in which every waiter is patient. */
static bool is_patient_interval(uint64_t patience_ms, uint64_t now_ms)
{
    return now_ms / patience_ms % INTERVALS == 0;
}

/* Finds a waiter in its lock, which is sorted by id. */
static const struct lock_waiter *find_place(const struct lock *lock, uint64_t id)
{
    size_t at = 0;

    ARRAY_SEARCH(at, lock->waiter_count, lock->waiters[at].id < id);
    return &lock->waiters[at];
}

bool core_is_patient(const struct core *core, const struct core_waiter *waiter, uint64_t now_ms)
{
    uint64_t patience_ms = core->options.patience_ms;
    const struct lock_waiter *place =
        find_place(&core_store(core, waiter->store)->lock, waiter->id);

    return patience_ms > 0 && (now_ms < number_add(place->hold_since_ms, patience_ms) ||
                               is_patient_interval(patience_ms, now_ms));
}

/* Returns when the next such interval begins, or the current one ends. */
static uint64_t get_next_change(uint64_t patience_ms, uint64_t now_ms)
{
    uint64_t times = now_ms / patience_ms;

    times += is_patient_interval(patience_ms, now_ms) ? 1 : INTERVALS - times % INTERVALS;
    return times > UINT64_MAX / patience_ms ? UINT64_MAX : times * patience_ms;
}

uint64_t core_line_moment(const struct core *core, uint64_t now_ms)
{
    uint64_t patience_ms = core->options.patience_ms, moment_ms = UINT64_MAX;

    if (patience_ms == 0 || (core->reserving == 0 && core->displaced == 0))
        return moment_ms;
    for (size_t i = 0; i < core->index.waited.count; i++) {
        const struct core_store *store = core->index.waited.items[i];
        bool may_lack = core->reserving > 0 || store->places.place != CORE_PLACE_DEVICE;

        for (size_t k = 0; may_lack && k < store->lock.waiter_count; k++) {
            uint64_t end_ms = number_add(store->lock.waiters[k].hold_since_ms, patience_ms);
            uint64_t at_ms = now_ms < end_ms ? end_ms : get_next_change(patience_ms, now_ms);

            moment_ms = at_ms < moment_ms ? at_ms : moment_ms;
        }
    }
    return moment_ms;
}
