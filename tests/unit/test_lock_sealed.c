/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a store with a sealed layout, and RW_DATA: one behaviour at a time. */
#include "fsm/lock.h"

#include <errno.h>

#include "lock_fixture.h"
#include "tap.h"

/* The lock after a writer has sealed and left. */
static struct lock sealed_lock(void)
{
    struct lock lock = lock_of(false);

    lock_set_sealed(&lock, true);
    return lock;
}

/* Session 1 writes the bytes of its sealed layout. */
static struct lock lock_with_rw_data(void)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    require(lock_seal(&lock, 1) == 0);
    return lock;
}

TAP_TEST(a_writer_that_seals_goes_on_with_rw_data)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    lock.changed = false;
    check_int(lock_seal(&lock, 1), 0);
    check_int(lock_find_session(&lock, 1)->mode, LOCK_MODE_RW_DATA);
    check_int(lock_get_state(&lock), LOCK_STATE_RW);
    check(lock.changed);
    lock_free(&lock);
}

TAP_TEST(what_was_committed_is_sealed_by_the_seal_and_not_both)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    lock_seal(&lock, 1);
    check(lock.sealed);
    check(!lock.committed);
    lock_free(&lock);
}

TAP_TEST(the_end_of_rw_data_leaves_what_is_sealed)
{
    struct lock lock = lock_with_rw_data();

    check_int(lock_remove_session(&lock, 1, 0), 0);
    check_int(lock_get_state(&lock), LOCK_STATE_LAYOUT_COMMITTED);
    check_str(lock_state_name(lock_get_state(&lock)), "LAYOUT_COMMITTED");
    lock_free(&lock);
}

TAP_TEST(a_store_whose_sealed_layout_is_dropped_is_empty)
{
    struct lock lock = sealed_lock();

    lock.changed = false;
    lock_set_sealed(&lock, false);
    check_int(lock_get_state(&lock), LOCK_STATE_EMPTY);
    check(lock.changed);
    lock_free(&lock);
}

TAP_TEST(data_is_rw_data_where_something_is_sealed_and_rw_elsewhere)
{
    struct lock lock = lock_of(false);

    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_RW);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW);
    lock_set_sealed(&lock, true);
    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_RW_DATA);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW_DATA);
    lock_set_sealed(&lock, false);
    lock_set_committed(&lock, true);
    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_RW);
    check_int(lock_get_wish_mode(&lock, LOCK_WISH_DATA), LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(what_is_sealed_is_replaced_by_rw_and_auto_and_read_by_nobody)
{
    struct lock lock = sealed_lock();

    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 0), LOCK_MODE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(rw_data_keeps_everybody_out)
{
    struct lock lock = lock_with_rw_data();

    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 0), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(readers_and_writers_keep_data_out)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_NONE);
    lock_remove_session(&lock, 1, 0);
    hold(&lock, 2, LOCK_MODE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_DATA, 0), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(data_that_waits_adopts_what_the_writer_before_it_sealed)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_DATA, 0);
    lock_seal(&lock, 1);
    check_int(next(&lock, 0), 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW_DATA);
    lock_free(&lock);
}

TAP_TEST(data_that_waits_writes_anew_where_the_writer_before_it_aborts_or_commits)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_DATA, 0);
    await(&lock, 3, LOCK_WISH_DATA, 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_remove_waiter(&lock, 2);
    hold(&lock, 4, LOCK_MODE_RW);
    lock_commit(&lock, 4, LOCK_MODE_NONE, 0);
    check_int(next(&lock, 0), 30 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(auto_that_waits_becomes_the_writer_after_a_seal)
{
    struct lock lock = lock_with_rw_data();

    await(&lock, 2, LOCK_WISH_AUTO, 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_reader_waits_for_a_commit_and_not_for_a_seal)
{
    struct lock lock = lock_with_rw_data();

    await(&lock, 2, LOCK_WISH_RO, 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 0);
    check_int(lock_next_moment(&lock, 0), LOCK_FOREVER);
    check(!lock_is_free_for(&lock, 2));
    lock_set_sealed(&lock, false);
    hold(&lock, 3, LOCK_MODE_RW);
    lock_commit(&lock, 3, LOCK_MODE_NONE, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(the_end_of_a_patience_is_no_moment_for_readers_of_what_is_sealed)
{
    struct lock lock = sealed_lock();

    await(&lock, 1, LOCK_WISH_DATA, 0);
    lock_keep_place(&lock, 1, UINT64_C(2) * PATIENCE_MS, true);
    await(&lock, 2, LOCK_WISH_RO, 0);
    check_int(lock_next_moment(&lock, 0), UINT64_C(2) * PATIENCE_MS);
    lock_free(&lock);
}

TAP_TEST(rw_data_can_neither_commit_nor_seal)
{
    struct lock lock = lock_with_rw_data();

    check_int(lock_commit(&lock, 1, LOCK_MODE_NONE, 0), -EINVAL);
    check_int(lock_commit(&lock, 1, LOCK_MODE_RO, 0), -EINVAL);
    check_int(lock_seal(&lock, 1), -EINVAL);
    check_int(lock_find_session(&lock, 1)->mode, LOCK_MODE_RW_DATA);
    check(lock.sealed && !lock.committed);
    lock_free(&lock);
}

TAP_TEST(a_seal_is_refused_to_readers_and_strangers_and_changes_nothing)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    check_int(lock_seal(&lock, 1), -EINVAL);
    check_int(lock_seal(&lock, 2), -ENOENT);
    check_int(lock_find_session(&lock, 1)->mode, LOCK_MODE_RO);
    check(lock.committed && !lock.sealed);
    lock_free(&lock);
}

TAP_TEST(data_that_waits_holds_new_readers_off_until_its_patience_is_over)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_DATA, 100);
    await(&lock, 3, LOCK_WISH_RO, 200);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 100 + PATIENCE_MS - 1), LOCK_MODE_NONE);
    check_int(lock_next_moment(&lock, 200), 100 + PATIENCE_MS);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 100 + PATIENCE_MS), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(data_and_auto_behind_a_seal_count_as_waiting_writers)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_DATA, 0);
    await(&lock, 3, LOCK_WISH_AUTO, 0);
    await(&lock, 4, LOCK_WISH_RO, 0);
    check_int(lock_count_waiting_writers(&lock), 1);
    lock_seal(&lock, 1);
    check_int(lock_count_waiting_writers(&lock), 2);
    lock_free(&lock);
}

TAP_TEST(a_seal_is_no_release)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 7);
    lock_seal(&lock, 1);
    check_int(lock_find_waiter(&lock, 2)->hold_since_ms, 7);
    lock_remove_session(&lock, 1, 50);
    check_int(lock_find_waiter(&lock, 2)->hold_since_ms, 50);
    lock_free(&lock);
}

TAP_TEST(rw_data_is_restored_with_what_it_fills_and_no_other_session_is)
{
    struct lock lock = sealed_lock();

    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RO}), -EINVAL);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW}), -EINVAL);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), 0);
    check_int(lock_restore_session(&lock, &(struct lock_session){2, LOCK_MODE_RW_DATA}), -EINVAL);
    check_int(lock.session_count, 1);
    check_int(lock_get_state(&lock), LOCK_STATE_RW);
    lock_free(&lock);
}

TAP_TEST(rw_data_without_a_sealed_layout_is_not_restored)
{
    struct lock lock = lock_of(false);

    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), -EINVAL);
    lock_set_committed(&lock, true);
    check_int(lock_restore_session(&lock, &(struct lock_session){1, LOCK_MODE_RW_DATA}), -EINVAL);
    lock_free(&lock);
}

TAP_TEST(data_that_waits_is_restored_and_finds_what_is_sealed)
{
    struct lock lock = sealed_lock();

    check_int(lock_restore_waiter(&lock, &(struct lock_waiter){.id = 3,
                                                               .wish = LOCK_WISH_DATA,
                                                               .deadline_ms = LOCK_FOREVER}),
              0);
    check_int(next(&lock, 0), 30 + LOCK_MODE_RW_DATA);
    lock_free(&lock);
}

/* ---- sleep in turn: until other processes have exited --------------------------------------- */

/* Waiter 1 came at 100 and sleeps in turn; there is no session. */
static struct lock lock_with_turn(void)
{
    struct lock lock = sealed_lock();

    await(&lock, 1, LOCK_WISH_DATA, 100);
    require(lock_set_sleep(&lock, 1, LOCK_ASLEEP_IN_TURN) == 0);
    return lock;
}

TAP_TEST(who_sleeps_in_turn_is_passed_by_nobody_until_its_patience_is_over)
{
    struct lock lock = lock_with_turn();

    for (enum lock_wish wish = LOCK_WISH_RO; wish <= LOCK_WISH_DATA; wish++)
        check_int(lock_would_grant(&lock, wish, 100 + PATIENCE_MS - 1), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 100 + PATIENCE_MS), LOCK_MODE_RW);
    check_int(next(&lock, 100 + PATIENCE_MS), 0);
    lock_free(&lock);
}

TAP_TEST(who_waits_behind_a_turn_is_granted_at_the_end_of_its_patience)
{
    struct lock lock = lock_with_turn();

    await(&lock, 2, LOCK_WISH_RW, 200);
    check_int(next(&lock, 200), 0);
    check_int(lock_next_moment(&lock, 200), 100 + PATIENCE_MS);
    check_int(next(&lock, 100 + PATIENCE_MS), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(who_came_before_it_passes_who_sleeps_in_turn)
{
    struct lock lock = lock_with_rw_data();

    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_DATA, 0);
    lock_set_sleep(&lock, 3, LOCK_ASLEEP_IN_TURN);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_turn_is_kept_while_it_looks_around_and_lost_while_it_is_away)
{
    struct lock lock = lock_with_turn();

    check_int(lock_keep_place(&lock, 1, 900, true), 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 200), LOCK_MODE_NONE);
    check_int(lock_keep_place(&lock, 1, 900, false), 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 200), LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(of_several_turns_each_is_waited_for)
{
    struct lock lock = lock_with_turn();

    await(&lock, 2, LOCK_WISH_DATA, 300);
    lock_set_sleep(&lock, 2, LOCK_ASLEEP_IN_TURN);
    await(&lock, 3, LOCK_WISH_AUTO, 400);
    check_int(lock_next_moment(&lock, 400), 300 + PATIENCE_MS);
    check_int(next(&lock, 100 + PATIENCE_MS), 0);
    check_int(next(&lock, 300 + PATIENCE_MS), 30 + LOCK_MODE_RW);
    lock_free(&lock);
}
