/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_broken - functions of broken locks: each stands for one of the sound lock's
 *
 * For lock_mutants.h, which describes each of them.
 */
#ifndef GMSFS_TESTS_UNIT_LOCK_BROKEN_H
#define GMSFS_TESTS_UNIT_LOCK_BROKEN_H

#include <string.h>

#include "fsm/lock.h"
#include "lock_laws.h"

/* A lock with some of its facts changed, as a broken implementation would see them. */
struct illusion {
    struct lock lock;
    struct lock_waiter waiters[PROCS];
};

static void imagine(struct illusion *illusion, const struct lock *lock)
{
    illusion->lock = *lock;
    memcpy(illusion->waiters, lock->waiters, lock->waiter_count * sizeof(*lock->waiters));
    illusion->lock.waiters = illusion->waiters;
}

static enum lock_mode grant_past_waiters(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    struct lock seen = *lock;

    seen.waiter_count = 0;
    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_past_sessions(const struct lock *lock, enum lock_wish wish,
                                          uint64_t now)
{
    struct lock seen = *lock;

    seen.session_count = 0;
    memset(seen.held, 0, sizeof(seen.held));
    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_uncommitted(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    struct lock seen = *lock;

    seen.committed = true;
    return lock_would_grant(&seen, wish, now);
}

static struct lock as_if_open(const struct lock *lock)
{
    struct lock seen = *lock;

    seen.closed = false;
    return seen;
}

static enum lock_mode grant_though_closed(const struct lock *lock, enum lock_wish wish,
                                          uint64_t now)
{
    struct lock seen = as_if_open(lock);

    return lock_would_grant(&seen, wish, now);
}

static bool next_though_closed(const struct lock *lock, uint64_t now, uint64_t *id,
                               enum lock_mode *mode)
{
    struct lock seen = as_if_open(lock);

    return lock_next_grant(&seen, now, id, mode);
}

static uint64_t moment_though_closed(const struct lock *lock, uint64_t now)
{
    struct lock seen = as_if_open(lock);

    return lock_next_moment(&seen, now);
}

static void open_impatiently(struct lock *lock, bool closed, uint64_t now)
{
    (void)now;
    lock->closed = closed;
}

static void close_for_ever(struct lock *lock, bool closed, uint64_t now)
{
    if (closed)
        lock_set_closed(lock, closed, now);
}

/* Treats a sealed layout as a committed one. */
static struct lock with_sealed_as_committed(const struct lock *lock)
{
    struct lock seen = *lock;

    seen.committed |= seen.sealed;
    seen.sealed = false;
    return seen;
}

static enum lock_mode grant_ro_of_sealed(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    struct lock seen = with_sealed_as_committed(lock);

    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_ro_beside_data(const struct lock *lock, enum lock_wish wish,
                                           uint64_t now)
{
    struct lock seen = with_sealed_as_committed(lock);

    seen.held[LOCK_MODE_RW_DATA] = 0;
    return lock_would_grant(wish == LOCK_WISH_RO ? &seen : lock, wish, now);
}

static enum lock_mode grant_rw_beside_data(const struct lock *lock, enum lock_wish wish,
                                           uint64_t now)
{
    struct lock seen = *lock;

    seen.held[LOCK_MODE_RW_DATA] = 0;
    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_data_of_committed(const struct lock *lock, enum lock_wish wish,
                                              uint64_t now)
{
    struct lock seen = *lock;

    if (wish == LOCK_WISH_DATA && seen.committed) {
        seen.committed = false;
        seen.sealed = true;
    }
    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_data_of_nothing(const struct lock *lock, enum lock_wish wish,
                                            uint64_t now)
{
    struct lock seen = *lock;

    seen.sealed = !seen.committed;
    return lock_would_grant(&seen, wish, now);
}

static enum lock_mode grant_data_as_rw(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    return lock_would_grant(lock, wish == LOCK_WISH_DATA ? LOCK_WISH_RW : wish, now);
}

static enum lock_mode grant_data_as_auto(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    if (wish == LOCK_WISH_DATA && lock->committed)
        wish = LOCK_WISH_AUTO;
    return lock_would_grant(lock, wish, now);
}

static enum lock_mode grant_past_waiting_data(const struct lock *lock, enum lock_wish wish,
                                              uint64_t now)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++) {
        if (seen.waiters[i].wish == LOCK_WISH_DATA)
            seen.waiters[i].wish = LOCK_WISH_RO;
    }
    return lock_would_grant(&seen.lock, wish, now);
}

static enum lock_mode grant_auto_as_rw(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    return lock_would_grant(lock, wish == LOCK_WISH_AUTO ? LOCK_WISH_RW : wish, now);
}

static enum lock_mode grant_as_if_none_were_away(const struct lock *lock, enum lock_wish wish,
                                                 uint64_t now)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i].kept_until_ms = 0;
    return lock_would_grant(&seen.lock, wish, now);
}

static enum lock_mode grant_past_lookers(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i].looking = false;
    return lock_would_grant(&seen.lock, wish, now);
}

static bool next_is_none(const struct lock *lock, uint64_t now, uint64_t *id, enum lock_mode *mode)
{
    (void)lock, (void)now, (void)id, (void)mode;
    return false;
}

/* Decides the mode by the state at arrival, for waiters that came before the seal. */
static bool next_as_if_unsealed(const struct lock *lock, uint64_t now, uint64_t *id,
                                enum lock_mode *mode)
{
    struct lock seen = *lock;

    seen.sealed = false;
    return lock_next_grant(&seen, now, id, mode);
}

static bool next_may_be_away(const struct lock *lock, uint64_t now, uint64_t *id,
                             enum lock_mode *mode)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i].kept_until_ms = 0;
    return lock_next_grant(&seen.lock, now, id, mode);
}

static bool next_is_the_last(const struct lock *lock, uint64_t now, uint64_t *id,
                             enum lock_mode *mode)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i] = lock->waiters[lock->waiter_count - 1 - i];
    return lock_next_grant(&seen.lock, now, id, mode);
}

static bool next_is_the_first_or_none(const struct lock *lock, uint64_t now, uint64_t *id,
                                      enum lock_mode *mode)
{
    return lock_next_grant(lock, now, id, mode) && *id == lock->waiters[0].id;
}

static bool next_without_end_of_patience(const struct lock *lock, uint64_t now, uint64_t *id,
                                         enum lock_mode *mode)
{
    struct lock seen = *lock;

    seen.patience_ms = LOCK_FOREVER;
    return lock_next_grant(&seen, now, id, mode);
}

static int add_any(struct lock *lock, uint64_t id, enum lock_mode mode)
{
    lock->sessions[lock->session_count++] = (struct lock_session){id, mode};
    lock->held[mode]++;
    return 0;
}

static int remove_without_new_patience(struct lock *lock, uint64_t id, uint64_t now)
{
    struct illusion before;
    int err;

    imagine(&before, lock);
    err = lock_remove_session(lock, id, now);
    for (size_t i = 0; i < lock->waiter_count; i++)
        lock->waiters[i].hold_since_ms = before.waiters[i].hold_since_ms;
    return err;
}

static int remove_as_if_committed(struct lock *lock, uint64_t id, uint64_t now)
{
    lock_set_committed(lock, true);
    return lock_remove_session(lock, id, now);
}

static int commit_for_nothing(struct lock *lock, uint64_t id, enum lock_mode stay, uint64_t now)
{
    (void)stay;
    return lock_remove_session(lock, id, now);
}

static int commit_and_go_on_writing(struct lock *lock, uint64_t id, enum lock_mode stay,
                                    uint64_t now)
{
    if (stay == LOCK_MODE_NONE)
        return lock_commit(lock, id, stay, now);
    lock_set_committed(lock, true);
    return 0;
}

static int seal_and_stay_committed(struct lock *lock, uint64_t id)
{
    bool committed = lock->committed;
    int error = lock_seal(lock, id);

    lock->committed = committed;
    return error;
}

static int seal_and_keep_rw(struct lock *lock, uint64_t id)
{
    if (lock_find_session(lock, id)->mode != LOCK_MODE_RW)
        return lock_seal(lock, id);
    lock->committed = false;
    lock->sealed = true;
    return 0;
}

static int seal_for_nothing(struct lock *lock, uint64_t id)
{
    int error = lock_seal(lock, id);

    if (error == 0)
        lock->sealed = false;
    return error;
}

static int seal_again(struct lock *lock, uint64_t id)
{
    lock_seal(lock, id);
    return 0;
}

/* Treats RW_DATA as RW. */
static int commit_sealed(struct lock *lock, uint64_t id, enum lock_mode stay, uint64_t now)
{
    for (size_t i = 0; i < lock->session_count; i++) {
        if (lock->sessions[i].id == id && lock->sessions[i].mode == LOCK_MODE_RW_DATA) {
            lock->sessions[i].mode = LOCK_MODE_RW;
            lock->held[LOCK_MODE_RW_DATA]--;
            lock->held[LOCK_MODE_RW]++;
            lock->sealed = false;
        }
    }
    return lock_commit(lock, id, stay, now);
}

static int remove_with_sealed(struct lock *lock, uint64_t id, uint64_t now)
{
    int error = lock_remove_session(lock, id, now);

    lock_set_sealed(lock, false);
    return error;
}

static int lose_place(struct lock *lock, uint64_t id, uint64_t kept_until, bool looking)
{
    (void)kept_until, (void)looking;
    return lock_remove_waiter(lock, id);
}

static int resume_at_the_end(struct lock *lock, uint64_t id, uint64_t deadline)
{
    struct lock_waiter waiter = *lock_find_waiter(lock, id);

    lock_remove_waiter(lock, id);
    return lock_add_waiter(lock, id, waiter.wish, waiter.hold_since_ms, deadline);
}

static bool next_may_sleep(const struct lock *lock, uint64_t now, uint64_t *id,
                           enum lock_mode *mode)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i].sleep = LOCK_AWAKE;
    return lock_next_grant(&seen.lock, now, id, mode);
}

static enum lock_mode grant_as_if_none_slept(const struct lock *lock, enum lock_wish wish,
                                             uint64_t now)
{
    struct illusion seen;

    imagine(&seen, lock);
    for (size_t i = 0; i < lock->waiter_count; i++)
        seen.waiters[i].sleep = LOCK_AWAKE;
    return lock_would_grant(&seen.lock, wish, now);
}

static int never_wake(struct lock *lock, uint64_t id, enum lock_sleep sleep)
{
    return sleep != LOCK_AWAKE ? lock_set_sleep(lock, id, sleep) : 0;
}

/* Only this posture is another one. */
static void imagine_sleep(struct illusion *illusion, const struct lock *lock, enum lock_sleep was,
                          enum lock_sleep is)
{
    imagine(illusion, lock);
    for (size_t i = 0; i < lock->waiter_count; i++) {
        if (lock->waiters[i].sleep == was)
            illusion->waiters[i].sleep = is;
    }
}

static enum lock_mode grant_past_turns(const struct lock *lock, enum lock_wish wish, uint64_t now)
{
    struct illusion seen;

    imagine_sleep(&seen, lock, LOCK_ASLEEP_IN_TURN, LOCK_ASLEEP);
    return lock_would_grant(&seen.lock, wish, now);
}

static enum lock_mode grant_as_if_all_slept_in_turn(const struct lock *lock, enum lock_wish wish,
                                                    uint64_t now)
{
    struct illusion seen;

    imagine_sleep(&seen, lock, LOCK_ASLEEP, LOCK_ASLEEP_IN_TURN);
    return lock_would_grant(&seen.lock, wish, now);
}

static bool next_past_turns(const struct lock *lock, uint64_t now, uint64_t *id,
                            enum lock_mode *mode)
{
    struct illusion seen;

    imagine_sleep(&seen, lock, LOCK_ASLEEP_IN_TURN, LOCK_ASLEEP);
    return lock_next_grant(&seen.lock, now, id, mode);
}

static bool next_may_sleep_in_turn(const struct lock *lock, uint64_t now, uint64_t *id,
                                   enum lock_mode *mode)
{
    struct illusion seen;

    imagine_sleep(&seen, lock, LOCK_ASLEEP_IN_TURN, LOCK_AWAKE);
    return lock_next_grant(&seen.lock, now, id, mode);
}

/* Grants no waiter while one sleeps in turn, even a waiter that came first. */
static bool next_waits_for_all_turns(const struct lock *lock, uint64_t now, uint64_t *id,
                                     enum lock_mode *mode)
{
    for (size_t i = 0; i < lock->waiter_count; i++) {
        if (lock->waiters[i].sleep == LOCK_ASLEEP_IN_TURN)
            return false;
    }
    return lock_next_grant(lock, now, id, mode);
}

static uint64_t moment_without_turns(const struct lock *lock, uint64_t now)
{
    struct illusion seen;

    imagine_sleep(&seen, lock, LOCK_ASLEEP_IN_TURN, LOCK_ASLEEP);
    return lock_next_moment(&seen.lock, now);
}

static bool expire_early(const struct lock *lock, uint64_t now, uint64_t *id, bool *was_kept)
{
    return lock_next_expired(lock, now + 1, id, was_kept);
}

static bool expire_never(const struct lock *lock, uint64_t now, uint64_t *id, bool *was_kept)
{
    (void)lock, (void)now, (void)id, (void)was_kept;
    return false;
}

static uint64_t moment_never(const struct lock *lock, uint64_t now)
{
    (void)lock, (void)now;
    return LOCK_FOREVER;
}

static size_t count_all(const struct lock *lock)
{
    return lock->waiter_count;
}

static size_t count_without_data(const struct lock *lock)
{
    size_t count = lock_count_waiting_writers(lock);

    for (size_t i = 0; i < lock->waiter_count; i++) {
        const struct lock_waiter *waiter = &lock->waiters[i];

        count -= waiter->wish == LOCK_WISH_DATA && (!waiter->kept_until_ms || waiter->looking);
    }
    return count;
}

static enum lock_state state_without_sealed(const struct lock *lock)
{
    enum lock_state state = lock_get_state(lock);

    return state == LOCK_STATE_LAYOUT_COMMITTED ? LOCK_STATE_EMPTY : state;
}

static enum lock_state state_without_readers(const struct lock *lock)
{
    enum lock_state state = lock_get_state(lock);

    return state == LOCK_STATE_RO ? LOCK_STATE_COMMITTED : state;
}

#endif
