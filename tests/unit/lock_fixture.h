/* SPDX-License-Identifier: Apache-2.0 */
/* lock_fixture - short names for the lock tests' operations. For test_lock*.c, each of
 * which includes it once. */
#ifndef GMSFS_TESTS_UNIT_LOCK_FIXTURE_H
#define GMSFS_TESTS_UNIT_LOCK_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "fsm/lock.h"
#include "tap.h"

#define PATIENCE_MS 30000u

/* A lock as most tests want it; `committed` without the writer that would have done it. */
__attribute__((unused)) static struct lock lock_of(bool committed)
{
    struct lock lock;

    lock_init(&lock, PATIENCE_MS);
    lock_set_committed(&lock, committed);
    return lock;
}

__attribute__((unused)) static void hold(struct lock *lock, uint64_t id, enum lock_mode mode)
{
    require(lock_add_session(lock, id, mode) == 0);
}

__attribute__((unused)) static void await(struct lock *lock, uint64_t id, enum lock_wish wish,
                                          uint64_t now_ms)
{
    require(lock_add_waiter(lock, id, wish, now_ms, LOCK_FOREVER) == 0);
}

/* Returns the next grant as one number, waiter * 10 + mode; 0 if none. */
__attribute__((unused)) static uint64_t next(const struct lock *lock, uint64_t now_ms)
{
    uint64_t id;
    enum lock_mode mode;

    return lock_next_grant(lock, now_ms, &id, &mode) ? id * 10 + mode : 0;
}

__attribute__((unused)) static uint64_t expired(const struct lock *lock, uint64_t now_ms)
{
    uint64_t id;
    bool was_kept;

    return lock_next_expired(lock, now_ms, &id, &was_kept) ? id * 10 + was_kept : 0;
}

#endif
