/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_line - for how long who waits for memory keeps those behind it from what there is
 *
 * If it did for ever, one that waits for more than will come back, say the whole device beside an
 * engine that stays, would hold everybody up. If it did not, small ones that come and go would keep
 * it out. So it does for as long as a writer is patient, in which others leave and none comes; then
 * they pass it, but for one such time in TIMES, in which memory gathers for it again. These times
 * are the same for all, or many who wait in vain would take turns in holding others up.
 */
#include "core/core_internal.h"

#define TIMES 10u

/* The same for all who wait. */
static bool is_time(uint64_t patience_ms, uint64_t now_ms)
{
    return now_ms / patience_ms % TIMES == 0;
}

/* In the lock they are in order of their ids. */
static const struct lock_waiter *find_place(const struct lock *lock, uint64_t id)
{
    size_t low = 0, high = lock->waiter_count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;

        if (lock->waiters[middle].id <= id)
            low = middle;
        else
            high = middle;
    }
    return &lock->waiters[low];
}

bool core_is_patient(const struct core *core, const struct core_waiter *waiter, uint64_t now_ms)
{
    uint64_t patience_ms = core->options.patience_ms;
    const struct lock_waiter *place =
        find_place(&core_store(core, waiter->store)->lock, waiter->id);

    return patience_ms > 0 &&
           (now_ms < core_later(place->hold_since_ms, patience_ms) || is_time(patience_ms, now_ms));
}

/* When the next of those times begins, or this one ends. */
static uint64_t get_next_time(uint64_t patience_ms, uint64_t now_ms)
{
    uint64_t times = now_ms / patience_ms;

    times += is_time(patience_ms, now_ms) ? 1 : TIMES - times % TIMES;
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
            uint64_t end_ms = core_later(store->lock.waiters[k].hold_since_ms, patience_ms);
            uint64_t at_ms = now_ms < end_ms ? end_ms : get_next_time(patience_ms, now_ms);

            moment_ms = at_ms < moment_ms ? at_ms : moment_ms;
        }
    }
    return moment_ms;
}
