/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_internal - declarations that only src/fsm/lock*.c share
 *
 * lock.c decides grants; lock_time.c finds when the clock alone changes them.
 */
#ifndef GMSFS_FSM_LOCK_INTERNAL_H
#define GMSFS_FSM_LOCK_INTERNAL_H

#include "fsm/lock.h"

#define MODE_BIT(mode) (1u << (mode))
#define WRITERS        (MODE_BIT(LOCK_MODE_RW) | MODE_BIT(LOCK_MODE_RW_DATA))

/* The contents of a store, as its lock sees them. */
enum content {
    CONTENT_NONE,
    CONTENT_SEALED,
    CONTENT_COMMITTED,
    CONTENT_BARE, /* committed, and without its bytes */
    CONTENT_COUNT,
};

/* The facts that an admission looks at, gathered in one pass. */
struct view {
    unsigned held;   /* modes of live sessions */
    unsigned wanted; /* modes of waiters that hold others off, with patience left */
    size_t turn;     /* index of the first waiter that no newer one passes; waiter_count if none */
    enum content content;
    bool closed;
};

struct view lock_view_at(const struct lock *lock, uint64_t now_ms);
/* True if the mode is compatible with held, wanted and content; ignores turns. */
bool lock_mode_fits(const struct view *view, enum lock_mode mode);
/* Returns the modes that a waiter of this mode gives way to. */
unsigned lock_get_preferred(enum lock_mode mode);

static inline enum lock_mode waiter_mode(const struct lock *lock, const struct lock_waiter *waiter)
{
    return lock_get_wish_mode(lock, waiter->wish);
}

/* True if there is a request to answer. */
static inline bool waiter_is_active(const struct lock_waiter *waiter)
{
    return waiter->kept_until_ms == 0;
}

/* True if it waits, or its client asks again soon. */
static inline bool waiter_counts(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) || waiter->looking;
}

static inline bool waiter_holds_off(const struct lock_waiter *waiter)
{
    return waiter_counts(waiter) && waiter->sleep != LOCK_ASLEEP;
}

/* True if it can be granted. */
static inline bool waiter_is_ready(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) && waiter->sleep == LOCK_AWAKE;
}

static inline bool waiter_wants_to_write(const struct lock *lock, const struct lock_waiter *waiter)
{
    return (MODE_BIT(waiter_mode(lock, waiter)) & WRITERS) != 0;
}

/* True if it sleeps in turn: newer waiters wait behind it while it is patient. */
static inline bool waiter_keeps_turn(const struct lock *lock, const struct lock_waiter *waiter)
{
    return waiter_counts(waiter) && waiter->sleep == LOCK_ASLEEP_IN_TURN &&
           waiter_wants_to_write(lock, waiter);
}

static inline uint64_t waiter_patience_end_ms(const struct lock *lock,
                                              const struct lock_waiter *waiter)
{
    if (lock->patience_ms > LOCK_FOREVER - waiter->hold_since_ms)
        return LOCK_FOREVER;
    return waiter->hold_since_ms + lock->patience_ms;
}

/* Returns when the clock ends this waiter: at its deadline, or at the end of its kept place. */
static inline uint64_t waiter_end_ms(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) ? waiter->deadline_ms : waiter->kept_until_ms;
}

#endif
