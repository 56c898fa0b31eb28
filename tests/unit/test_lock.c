/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of one store, where test_lock_states.c, which explores every order of events of three
 * processes, does not come: more processes, other patience, bounds, refused calls, restoring. */
#include "fsm/lock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "tap.h"

#define PATIENCE_MS 30000u

static struct lock lock;

/* Makes a lock as most tests want it; `committed` without the writer that would have done it. */
static void begin(bool committed)
{
    lock_init(&lock, PATIENCE_MS);
    lock_set_committed(&lock, committed);
}

static void end(void)
{
    lock_free(&lock);
}

TAP_AFTER_EACH(end)

static void hold(uint64_t id, enum lock_mode mode)
{
    require(lock_add_session(&lock, id, mode) == 0);
}

static void await(uint64_t id, enum lock_wish wish, uint64_t now_ms)
{
    require(lock_add_waiter(&lock, id, wish, now_ms, LOCK_FOREVER) == 0);
}

/* Returns the next grant as one number, waiter * 10 + mode; 0 if none. */
static uint64_t next(uint64_t now_ms)
{
    uint64_t id;
    enum lock_mode mode;

    return lock_next_grant(&lock, now_ms, &id, &mode) ? id * 10 + mode : 0;
}

static uint64_t expired(uint64_t now_ms)
{
    uint64_t id;
    bool was_kept;

    return lock_next_expired(&lock, now_ms, &id, &was_kept) ? id * 10 + was_kept : 0;
}

TAP_TEST(states_have_the_names_that_the_state_file_shows)
{
    check_str(lock_state_name(LOCK_STATE_EMPTY), "EMPTY");
    check_str(lock_state_name(LOCK_STATE_RW), "RW");
    check_str(lock_state_name(LOCK_STATE_COMMITTED), "COMMITTED");
    check_str(lock_state_name(LOCK_STATE_RO), "RO");
    check_str(lock_state_name(LOCK_STATE_LAYOUT_COMMITTED), "LAYOUT_COMMITTED");
    for (unsigned state = 0; state < LOCK_STATE_COUNT; state++)
        check(lock_state_name((enum lock_state)state) != NULL); /* no gap between the numbers */
}

TAP_TEST(commit_is_refused_to_readers_and_strangers_and_changes_nothing)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    check_int(lock_commit(&lock, 1, LOCK_MODE_NONE, 0), -EINVAL);
    check_int(lock_commit(&lock, 2, LOCK_MODE_NONE, 0), -ENOENT);
    check_int(lock.session_count, 1);
    lock_remove_session(&lock, 1, 0);
    lock_set_committed(&lock, false);
    hold(3, LOCK_MODE_RW);
    check_int(lock_commit(&lock, 3, LOCK_MODE_RW, 0), -EINVAL);
    check(!lock.committed);
}

TAP_TEST(one_patient_writer_is_enough_to_hold_readers_off)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 0);
    await(3, LOCK_WISH_RW, 500);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS + 500), LOCK_MODE_RO);
}

TAP_TEST(without_patience_readers_always_pass)
{
    begin(true);
    lock.patience_ms = 0;
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_RO);
}

TAP_TEST(endless_patience_never_runs_out)
{
    begin(true);
    lock.patience_ms = LOCK_FOREVER;
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 7);
    await(3, LOCK_WISH_RO, 7);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, UINT64_MAX - 1), LOCK_MODE_NONE);
    check_int(lock_next_moment(&lock, 7), LOCK_FOREVER);
}

TAP_TEST(a_new_reader_goes_along_with_a_waiting_one_that_time_has_let_in)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 0);
    await(3, LOCK_WISH_RO, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_RO);
}

TAP_TEST(a_place_kept_until_the_origin_of_time_is_kept_all_the_same)
{
    begin(false);
    await(1, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 1, 0, false);
    check_int(next(0), 0);
    check_int(expired(1), 11);
}

TAP_TEST(the_next_moment_is_when_the_last_patient_writer_gives_in)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 0);
    await(3, LOCK_WISH_RW, 500);
    check_int(lock_next_moment(&lock, 600), LOCK_FOREVER);
    await(4, LOCK_WISH_AUTO, 600);
    check_int(lock_next_moment(&lock, 600), 500 + PATIENCE_MS);
    check_int(lock_next_moment(&lock, 500 + PATIENCE_MS), LOCK_FOREVER);
}

TAP_TEST(what_is_unknown_is_enoent)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    await(2, LOCK_WISH_RW, 0);
    check_int(lock_remove_session(&lock, 2, 0), -ENOENT);
    check_int(lock_remove_waiter(&lock, 1), -ENOENT);
    check_int(lock_keep_place(&lock, 1, 1000, false), -ENOENT);
    check_int(lock_resume_place(&lock, 1, 1000), -ENOENT);
    check(!lock_find_session(&lock, 2));
    check(!lock_find_waiter(&lock, 1));
}

TAP_TEST(sessions_stay_in_order_of_grant_and_waiters_in_order_of_arrival)
{
    begin(true);
    for (uint64_t id = 1; id <= 20; id++) {
        hold(id, LOCK_MODE_RO);
        await(id + 100, LOCK_WISH_RW, id);
    }
    lock_remove_session(&lock, 7, 50);
    lock_remove_waiter(&lock, 107);
    require(lock.session_count == 19 && lock.waiter_count == 19);
    for (size_t i = 0; i < 19; i++) {
        check_int(lock.sessions[i].id, i < 6 ? i + 1 : i + 2);
        check_int(lock.waiters[i].id, i < 6 ? i + 101 : i + 102);
    }
}

TAP_TEST(too_many_sessions_are_enospc_and_waiters_go_on_waiting)
{
    begin(true);
    for (uint64_t id = 1; id <= LOCK_MAX_SESSIONS; id++)
        hold(id, LOCK_MODE_RO);
    check_int(lock_add_session(&lock, LOCK_MAX_SESSIONS + 1, LOCK_MODE_RO), -ENOSPC);
    check_int(lock.session_count, LOCK_MAX_SESSIONS);
    await(1, LOCK_WISH_RO, 0);
    check_int(next(0), 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(0), 10 + LOCK_MODE_RO);
}

TAP_TEST(too_many_waiters_are_enospc)
{
    begin(false);
    for (uint64_t id = 1; id <= LOCK_MAX_WAITERS; id++)
        await(id, LOCK_WISH_RO, 0);
    check_int(lock_add_waiter(&lock, LOCK_MAX_WAITERS + 1, LOCK_WISH_RO, 0, LOCK_FOREVER), -ENOSPC);
    check_int(lock.waiter_count, LOCK_MAX_WAITERS);
}

TAP_TEST(what_no_lock_could_have_is_not_restored)
{
    const struct lock_session reader = {5, LOCK_MODE_RO}, writer = {6, LOCK_MODE_RW};
    const struct lock_waiter waiter = {.id = 3, .wish = LOCK_WISH_RW};
    struct lock_waiter other = waiter;
    lock_init(&lock, 100);
    check_int(lock_restore_session(&lock, &reader), -EINVAL); /* nothing is committed */
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_NONE}), -EINVAL);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODES}), -EINVAL);
    lock_set_committed(&lock, true);
    check_int(lock_restore_session(&lock, &reader), 0);
    check_int(lock_restore_session(&lock, &reader), -EINVAL); /* twice */
    check_int(lock_restore_session(&lock, &writer), -EINVAL); /* beside a reader */
    check_int(lock_restore_waiter(&lock, &waiter), 0);
    check_int(lock_restore_waiter(&lock, &waiter), -EINVAL);
    other.id = 4;
    other.wish = LOCK_WISH_DATA + 1;
    check_int(lock_restore_waiter(&lock, &other), -EINVAL);
    other.wish = LOCK_WISH_RO;
    other.looking = true;
    check_int(lock_restore_waiter(&lock, &other), -EINVAL); /* looking around, and not away */
    other.kept_until_ms = 50;
    check_int(lock_restore_waiter(&lock, &other), 0);
    check_int(lock_restore_session(&lock, &(struct lock_session){9, LOCK_MODE_RO}), -EINVAL);
    check_int(lock.session_count, 1);
    check_int(lock.waiter_count, 2);
}

/* ---- sealed layouts, and RW_DATA ------------------------------------------------------------ */

/* The lock after a writer has sealed and left. */
static void begin_sealed(void)
{
    begin(false);
    lock_set_sealed(&lock, true);
}

TAP_TEST(data_means_rw_data_of_a_sealed_layout_and_rw_elsewhere)
{
    begin(false);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW);
    lock_set_sealed(&lock, true);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW_DATA);
    lock_set_sealed(&lock, false);
    lock_set_committed(&lock, true);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW);
}

TAP_TEST(a_seal_and_the_loss_of_what_is_sealed_are_changes)
{
    begin(false);
    hold(1, LOCK_MODE_RW);
    lock.changed = false;
    check_int(lock_seal(&lock, 1), 0);
    check(lock.changed);
    check_int(lock_remove_session(&lock, 1, 0), 0);
    lock.changed = false;
    lock_set_sealed(&lock, false);
    check(lock.changed);
}

TAP_TEST(rw_data_is_refused_a_commit_and_another_seal_with_einval)
{
    begin(true);
    hold(1, LOCK_MODE_RW);
    require(lock_seal(&lock, 1) == 0);
    check_int(lock_commit(&lock, 1, LOCK_MODE_NONE, 0), -EINVAL);
    check_int(lock_commit(&lock, 1, LOCK_MODE_RO, 0), -EINVAL);
    check_int(lock_seal(&lock, 1), -EINVAL);
}

TAP_TEST(a_lock_is_not_free_for_a_reader_of_what_is_sealed)
{
    begin_sealed();
    await(2, LOCK_WISH_RO, 0);
    check(!lock_is_free_for(&lock, 2));
}

TAP_TEST(the_end_of_a_patience_is_no_moment_for_readers_of_what_is_sealed)
{
    begin_sealed();
    await(1, LOCK_WISH_DATA, 0);
    lock_keep_place(&lock, 1, UINT64_C(2) * PATIENCE_MS, true);
    await(2, LOCK_WISH_RO, 0);
    check_int(lock_next_moment(&lock, 0), UINT64_C(2) * PATIENCE_MS);
}

TAP_TEST(a_seal_is_refused_to_readers_and_strangers_and_changes_nothing)
{
    begin(true);
    hold(1, LOCK_MODE_RO);
    check_int(lock_seal(&lock, 1), -EINVAL);
    check_int(lock_seal(&lock, 2), -ENOENT);
    check_int(lock_find_session(&lock, 1)->mode, LOCK_MODE_RO);
    check(lock.committed && !lock.sealed);
}

TAP_TEST(rw_data_is_restored_with_what_it_fills_and_no_other_session_is)
{
    begin_sealed();
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RO}), -EINVAL);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW}), -EINVAL);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), 0);
    check_int(lock_restore_session(&lock, &(struct lock_session){2, LOCK_MODE_RW_DATA}), -EINVAL);
    check_int(lock.session_count, 1);
    check_int(lock_get_state(&lock), LOCK_STATE_RW);
}

TAP_TEST(rw_data_without_a_sealed_layout_is_not_restored)
{
    begin(false);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), -EINVAL);
    lock_set_committed(&lock, true);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), -EINVAL);
}

TAP_TEST(data_that_waits_is_restored_and_finds_what_is_sealed)
{
    begin_sealed();
    check_int(lock_restore_waiter(&lock, &(struct lock_waiter){.id = 3,
                                                               .wish = LOCK_WISH_DATA,
                                                               .deadline_ms = LOCK_FOREVER}),
              0);
    check_int(next(0), 30 + LOCK_MODE_RW_DATA);
}

/* Waiter 1 came at 100 and sleeps in turn; there is no session. */
static void begin_with_turn(void)
{
    begin_sealed();
    await(1, LOCK_WISH_DATA, 100);
    require(lock_set_sleep(&lock, 1, LOCK_ASLEEP_IN_TURN) == 0);
}

TAP_TEST(a_turn_is_kept_while_it_looks_around_and_lost_while_it_is_away)
{
    begin_with_turn();
    check_int(lock_keep_place(&lock, 1, 900, true), 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 200), LOCK_MODE_NONE);
    check_int(lock_keep_place(&lock, 1, 900, false), 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 200), LOCK_MODE_RW);
}
