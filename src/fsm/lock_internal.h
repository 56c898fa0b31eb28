/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_internal - what one look at the lock sees, for the parts of src/fsm/lock*.c alone
 *
 * Who is let in is decided in lock.c; lock_time.c finds when time alone changes that.
 */
#ifndef GMSFS_FSM_LOCK_INTERNAL_H
#define GMSFS_FSM_LOCK_INTERNAL_H

#include "fsm/lock.h"

#define MODE_BIT(mode) (1u << (mode))
#define WRITERS        (MODE_BIT(LOCK_MODE_RW) | MODE_BIT(LOCK_MODE_RW_DATA))

/* What a store has, as far as its lock goes. */
enum content {
    CONTENT_NONE,
    CONTENT_SEALED,
    CONTENT_COMMITTED,
    CONTENT_BARE, /* committed, and without its bytes */
    CONTENT_COUNT,
};

/* What an admission looks at, gathered in one pass. */
struct view {
    unsigned held;   /* modes of live sessions */
    unsigned wanted; /* modes of waiters that hold others off, with patience left */
    size_t turn;     /* the first waiter that nobody behind it passes; their count: none */
    enum content content;
    bool closed;
};

struct view lock_view_at(const struct lock *lock, uint64_t now_ms);
/* By what is held, wanted and there; whose turn it is apart. */
bool lock_mode_fits(const struct view *view, enum lock_mode mode);
/* Modes that active, patient waiters want, which keep this one out. */
unsigned lock_get_preferred(enum lock_mode mode);

static inline enum lock_mode waiter_mode(const struct lock *lock, const struct lock_waiter *waiter)
{
    return lock_get_wish_mode(lock, waiter->wish);
}

/* Somebody is there to be answered. */
static inline bool waiter_is_active(const struct lock_waiter *waiter)
{
    return waiter->kept_until_ms == 0;
}

/* It waits, or will go on waiting in a moment. */
static inline bool waiter_counts(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) || waiter->looking;
}

static inline bool waiter_holds_off(const struct lock_waiter *waiter)
{
    return waiter_counts(waiter) && waiter->sleep != LOCK_ASLEEP;
}

/* It can be granted, and holds others off. */
static inline bool waiter_is_ready(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) && waiter->sleep == LOCK_AWAKE;
}

static inline bool waiter_wants_to_write(const struct lock *lock, const struct lock_waiter *waiter)
{
    return (MODE_BIT(waiter_mode(lock, waiter)) & WRITERS) != 0;
}

/* It sleeps, and as long as it is patient those who came later wait behind it. */
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

/* When time ends this waiter, by its deadline or because its place is kept no longer. */
static inline uint64_t waiter_end_ms(const struct lock_waiter *waiter)
{
    return waiter_is_active(waiter) ? waiter->deadline_ms : waiter->kept_until_ms;
}

#endif
