/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the lock by the clock alone: deadlines, kept places, and the end of patience. */
#include "fsm/lock_internal.h"

bool lock_next_expired(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                       bool *was_kept)
{
    for (size_t i = 0; i < lock->waiter_count; i++) {
        uint64_t end_ms = waiter_end_ms(&lock->waiters[i]);

        if (end_ms == LOCK_FOREVER || end_ms > now_ms)
            continue;
        *waiter_id = lock->waiters[i].id;
        *was_kept = !waiter_is_active(&lock->waiters[i]);
        return true;
    }
    return false;
}

/* Returns when the clock alone gives a waiter its turn: at the end of the patience of the last
 * writer asleep in turn before it, if nothing else holds it off. LOCK_FOREVER if never. */
static uint64_t next_turn_end_ms(const struct lock *lock, uint64_t now_ms)
{
    struct view view = lock_view_at(lock, now_ms);
    uint64_t end_ms = 0;

    for (size_t i = view.turn; i < lock->waiter_count; i++) {
        const struct lock_waiter *waiter = &lock->waiters[i];
        uint64_t patience_end_ms = waiter_patience_end_ms(lock, waiter);

        if (waiter_keeps_turn(lock, waiter) && patience_end_ms > end_ms)
            end_ms = patience_end_ms;
        if (waiter_is_ready(waiter) && waiter_wants_to_write(lock, waiter) &&
            lock_mode_fits(&view, waiter_mode(lock, waiter)))
            return end_ms;
    }
    return LOCK_FOREVER;
}

/* Returns when the clock alone admits a reader: at the end of the patience of the last waiter that
 * it gives way to, if nothing else holds it off. LOCK_FOREVER if never. */
static uint64_t next_patience_end_ms(const struct lock *lock, uint64_t now_ms)
{
    uint64_t earliest_ms = LOCK_FOREVER;
    struct view view = lock_view_at(lock, now_ms);
    struct view patient_gone = {.held = view.held, .content = view.content, .closed = view.closed};

    for (size_t mode = LOCK_MODE_RO; mode < LOCK_MODES; mode++) {
        unsigned in_the_way = lock_get_preferred((enum lock_mode)mode) & view.wanted;
        bool waits = false;
        uint64_t end_ms = 0;

        if (!in_the_way || !lock_mode_fits(&patient_gone, (enum lock_mode)mode))
            continue;
        for (size_t i = 0; i < lock->waiter_count; i++) {
            const struct lock_waiter *waiter = &lock->waiters[i];
            uint64_t patience_end_ms = waiter_patience_end_ms(lock, waiter);

            if (!waiter_holds_off(waiter))
                continue;
            waits |= waiter_is_ready(waiter) && waiter_mode(lock, waiter) == (enum lock_mode)mode;
            if ((in_the_way & MODE_BIT(waiter_mode(lock, waiter))) && patience_end_ms > end_ms)
                end_ms = patience_end_ms;
        }
        if (waits && end_ms < earliest_ms)
            earliest_ms = end_ms;
    }
    return earliest_ms;
}

uint64_t lock_next_moment(const struct lock *lock, uint64_t now_ms)
{
    uint64_t turn_end_ms = next_turn_end_ms(lock, now_ms);
    uint64_t earliest_ms = next_patience_end_ms(lock, now_ms);

    if (turn_end_ms < earliest_ms)
        earliest_ms = turn_end_ms;
    for (size_t i = 0; i < lock->waiter_count; i++) {
        uint64_t end_ms = waiter_end_ms(&lock->waiters[i]);

        if (end_ms < earliest_ms)
            earliest_ms = end_ms;
    }
    return earliest_ms;
}
