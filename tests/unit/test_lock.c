/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of one store, one behaviour at a time. test_lock_sealed.c tests sealed layouts;
 * test_lock_states.c explores all states. */
#include "fsm/lock.h"

#include <errno.h>

#include "lock_fixture.h"
#include "tap.h"

TAP_TEST(a_new_lock_is_empty)
{
    struct lock lock = lock_of(false);

    check_int(lock_get_state(&lock), LOCK_STATE_EMPTY);
    check_int(lock_next_moment(&lock, 0), LOCK_FOREVER);
    check_int(next(&lock, 0), 0);
    lock_free(&lock);
}

TAP_TEST(states_have_the_names_that_the_state_file_shows)
{
    check_str(lock_state_name(LOCK_STATE_EMPTY), "EMPTY");
    check_str(lock_state_name(LOCK_STATE_RW), "RW");
    check_str(lock_state_name(LOCK_STATE_COMMITTED), "COMMITTED");
    check_str(lock_state_name(LOCK_STATE_RO), "RO");
    for (unsigned state = 0; state < LOCK_STATE_COUNT; state++)
        check(lock_state_name((enum lock_state)state) != NULL); /* no gap between the numbers */
}

TAP_TEST(an_empty_store_grants_rw_and_no_ro)
{
    struct lock lock = lock_of(false);

    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(a_committed_store_grants_rw_or_ro)
{
    struct lock lock = lock_of(true);

    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(auto_is_rw_on_an_empty_store_and_ro_on_a_committed_one)
{
    struct lock lock = lock_of(false);

    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 0), LOCK_MODE_RW);
    lock_set_committed(&lock, true);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 0), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(a_writer_keeps_everybody_out)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    check_int(lock_get_state(&lock), LOCK_STATE_RW);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 0), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(readers_share_and_keep_writers_out)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_RO);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_NONE);
    hold(&lock, 2, LOCK_MODE_RO);
    check_int(lock_get_state(&lock), LOCK_STATE_RO);
    lock_free(&lock);
}

TAP_TEST(a_writer_waits_for_the_last_reader)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    hold(&lock, 2, LOCK_MODE_RO);
    await(&lock, 3, LOCK_WISH_RW, 0);
    check_int(lock_remove_session(&lock, 1, 0), 0);
    check_int(next(&lock, 0), 0);
    check_int(lock_get_state(&lock), LOCK_STATE_RO);
    check_int(lock_remove_session(&lock, 2, 0), 0);
    check_int(next(&lock, 0), 30 + LOCK_MODE_RW);
    check_int(lock_get_state(&lock), LOCK_STATE_COMMITTED);
    lock_free(&lock);
}

TAP_TEST(commit_ends_the_writer_and_lets_readers_in)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RO, 0);
    check_int(lock_commit(&lock, 1, LOCK_MODE_NONE, 5), 0);
    check(!lock_find_session(&lock, 1));
    check_int(lock_get_state(&lock), LOCK_STATE_COMMITTED);
    check_int(next(&lock, 5), 20 + LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(commit_can_leave_the_writer_as_a_reader)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    check_int(lock_commit(&lock, 1, LOCK_MODE_RO, 5), 0);
    check_int(lock_find_session(&lock, 1)->mode, LOCK_MODE_RO);
    check_int(lock_get_state(&lock), LOCK_STATE_RO);
    lock_free(&lock);
}

TAP_TEST(commit_is_refused_to_readers_and_strangers_and_changes_nothing)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    check_int(lock_commit(&lock, 1, LOCK_MODE_NONE, 0), -EINVAL);
    check_int(lock_commit(&lock, 2, LOCK_MODE_NONE, 0), -ENOENT);
    check_int(lock.session_count, 1);
    lock_remove_session(&lock, 1, 0);
    lock_set_committed(&lock, false);
    hold(&lock, 3, LOCK_MODE_RW);
    check_int(lock_commit(&lock, 3, LOCK_MODE_RW, 0), -EINVAL);
    check(!lock.committed);
    lock_free(&lock);
}

TAP_TEST(a_writer_that_ends_without_commit_leaves_an_empty_store_empty)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    check_int(lock_remove_session(&lock, 1, 0), 0);
    check_int(lock_get_state(&lock), LOCK_STATE_EMPTY);
    lock_free(&lock);
}

TAP_TEST(auto_waiting_behind_the_first_writer_reads_its_commit)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_AUTO, 0);
    lock_commit(&lock, 1, LOCK_MODE_NONE, 1);
    check_int(next(&lock, 1), 20 + LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(auto_waiting_behind_a_writer_that_aborts_becomes_the_writer)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_AUTO, 0);
    lock_remove_session(&lock, 1, 1);
    check_int(next(&lock, 1), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(auto_counts_as_a_waiting_writer_only_while_nothing_is_committed)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_AUTO, 0);
    await(&lock, 3, LOCK_WISH_RW, 0);
    await(&lock, 4, LOCK_WISH_RO, 0);
    check_int(lock_count_waiting_writers(&lock), 2);
    lock_set_committed(&lock, true);
    check_int(lock_count_waiting_writers(&lock), 1);
    lock_keep_place(&lock, 3, 1000, false);
    check_int(lock_count_waiting_writers(&lock), 0);
    lock_free(&lock);
}

TAP_TEST(writers_are_served_in_order_of_arrival)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_AUTO, 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_waiter_that_does_not_fit_does_not_stop_those_behind_it)
{
    struct lock lock = lock_of(false);

    await(&lock, 1, LOCK_WISH_RO, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, 0), LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_waiting_writer_holds_new_readers_off)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 100);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 100 + PATIENCE_MS - 1), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, 100 + PATIENCE_MS - 1), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(a_waiting_writer_goes_before_readers_that_came_earlier)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RO, 0);
    await(&lock, 3, LOCK_WISH_RW, 1);
    lock_remove_session(&lock, 1, 2);
    check_int(next(&lock, 2), 30 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(readers_pass_when_the_patience_is_over)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 100);
    await(&lock, 3, LOCK_WISH_RO, 200);
    check_int(next(&lock, 100 + PATIENCE_MS - 1), 0);
    check_int(next(&lock, 100 + PATIENCE_MS), 30 + LOCK_MODE_RO);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 100 + PATIENCE_MS), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(one_patient_writer_is_enough_to_hold_readers_off)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RW, 500);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS + 500), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(each_release_starts_the_patience_anew)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    hold(&lock, 2, LOCK_MODE_RO);
    await(&lock, 3, LOCK_WISH_RW, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_RO);
    lock_remove_session(&lock, 1, PATIENCE_MS);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 2 * PATIENCE_MS), LOCK_MODE_RO);
    check_int(lock_find_waiter(&lock, 3)->since_ms, 0);
    lock_free(&lock);
}

TAP_TEST(a_commit_that_stays_on_is_a_release_too)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    lock_commit(&lock, 1, LOCK_MODE_RO, PATIENCE_MS);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(without_patience_readers_always_pass)
{
    struct lock lock = lock_of(true);

    lock.patience_ms = 0;
    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(endless_patience_never_runs_out)
{
    struct lock lock = lock_of(true);

    lock.patience_ms = LOCK_FOREVER;
    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 7);
    await(&lock, 3, LOCK_WISH_RO, 7);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, UINT64_MAX - 1), LOCK_MODE_NONE);
    check_int(lock_next_moment(&lock, 7), LOCK_FOREVER);
    lock_free(&lock);
}

TAP_TEST(a_newcomer_does_not_overtake_a_waiter_that_could_be_granted)
{
    struct lock lock = lock_of(false);

    await(&lock, 1, LOCK_WISH_RW, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RW, PATIENCE_MS), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_AUTO, PATIENCE_MS), LOCK_MODE_NONE);
    lock_set_committed(&lock, true);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_NONE);
    lock_free(&lock);
}

TAP_TEST(a_new_reader_goes_along_with_a_waiting_one_that_time_has_let_in)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RO, 0);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(a_kept_place_is_never_granted)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 2, 1000, false);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 30 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_kept_place_holds_nobody_off)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 2, 1000, false);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(who_looks_around_holds_others_off_and_is_not_granted)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 2, 1000, true);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, 0), LOCK_MODE_NONE);
    check_int(lock_count_waiting_writers(&lock), 1);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 0);
    lock_resume_place(&lock, 2, LOCK_FOREVER);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_resumed_waiter_is_where_it_was)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 2, 1000, false);
    check_int(lock_resume_place(&lock, 2, 5000), 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 20 + LOCK_MODE_RW);
    check_int(lock_find_waiter(&lock, 2)->deadline_ms, 5000);
    lock_free(&lock);
}

TAP_TEST(a_resumed_writer_has_the_patience_that_it_had_left)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 2, 1000, false);
    lock_resume_place(&lock, 2, LOCK_FOREVER);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS - 1), LOCK_MODE_NONE);
    check_int(lock_would_grant(&lock, LOCK_WISH_RO, PATIENCE_MS), LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(a_place_kept_until_the_origin_of_time_is_kept_all_the_same)
{
    struct lock lock = lock_of(false);

    await(&lock, 1, LOCK_WISH_RW, 0);
    lock_keep_place(&lock, 1, 0, false);
    check_int(next(&lock, 0), 0);
    check_int(expired(&lock, 1), 11);
    lock_free(&lock);
}

TAP_TEST(a_deadline_expires_at_its_moment_and_not_before)
{
    struct lock lock = lock_of(false);

    lock_add_waiter(&lock, 1, LOCK_WISH_RO, 0, LOCK_FOREVER);
    lock_add_waiter(&lock, 2, LOCK_WISH_RO, 0, 50);
    check_int(lock_next_moment(&lock, 0), 50);
    check_int(expired(&lock, 49), 0);
    check_int(expired(&lock, 50), 20);
    check_int(lock_remove_waiter(&lock, 2), 0);
    check_int(expired(&lock, UINT64_MAX), 0);
    lock_free(&lock);
}

TAP_TEST(a_waiter_past_its_deadline_is_granted_while_it_is_there)
{
    struct lock lock = lock_of(false);

    hold(&lock, 1, LOCK_MODE_RW);
    lock_add_waiter(&lock, 2, LOCK_WISH_RW, 0, 50);
    lock_remove_session(&lock, 1, 60);
    check_int(next(&lock, 60), 20 + LOCK_MODE_RW);
    lock_free(&lock);
}

TAP_TEST(a_kept_place_expires_by_its_own_time_and_not_by_its_deadline)
{
    struct lock lock = lock_of(false);

    lock_add_waiter(&lock, 1, LOCK_WISH_RO, 0, 50);
    lock_keep_place(&lock, 1, 1000, false);
    check_int(lock_next_moment(&lock, 0), 1000);
    check_int(expired(&lock, 999), 0);
    check_int(expired(&lock, 1000), 11);
    lock_free(&lock);
}

TAP_TEST(the_next_moment_is_when_the_last_patient_writer_gives_in)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RW, 500);
    check_int(lock_next_moment(&lock, 600), LOCK_FOREVER);
    await(&lock, 4, LOCK_WISH_AUTO, 600);
    check_int(lock_next_moment(&lock, 600), 500 + PATIENCE_MS);
    check_int(lock_next_moment(&lock, 500 + PATIENCE_MS), LOCK_FOREVER);
    lock_free(&lock);
}

TAP_TEST(patience_is_no_moment_while_a_writer_holds)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RW);
    await(&lock, 2, LOCK_WISH_RW, 0);
    await(&lock, 3, LOCK_WISH_RO, 0);
    check_int(lock_next_moment(&lock, 0), LOCK_FOREVER);
    lock_free(&lock);
}

TAP_TEST(what_is_unknown_is_enoent)
{
    struct lock lock = lock_of(true);

    hold(&lock, 1, LOCK_MODE_RO);
    await(&lock, 2, LOCK_WISH_RW, 0);
    check_int(lock_remove_session(&lock, 2, 0), -ENOENT);
    check_int(lock_remove_waiter(&lock, 1), -ENOENT);
    check_int(lock_keep_place(&lock, 1, 1000, false), -ENOENT);
    check_int(lock_resume_place(&lock, 1, 1000), -ENOENT);
    check(!lock_find_session(&lock, 2));
    check(!lock_find_waiter(&lock, 1));
    lock_free(&lock);
}

TAP_TEST(sessions_stay_in_order_of_grant_and_waiters_in_order_of_arrival)
{
    struct lock lock = lock_of(true);

    for (uint64_t id = 1; id <= 20; id++) {
        hold(&lock, id, LOCK_MODE_RO);
        await(&lock, id + 100, LOCK_WISH_RW, id);
    }
    lock_remove_session(&lock, 7, 50);
    lock_remove_waiter(&lock, 107);
    require(lock.session_count == 19 && lock.waiter_count == 19);
    for (size_t i = 0; i < 19; i++) {
        check_int(lock.sessions[i].id, i < 6 ? i + 1 : i + 2);
        check_int(lock.waiters[i].id, i < 6 ? i + 101 : i + 102);
    }
    lock_free(&lock);
}

TAP_TEST(too_many_sessions_are_enospc_and_waiters_go_on_waiting)
{
    struct lock lock = lock_of(true);

    for (uint64_t id = 1; id <= LOCK_MAX_SESSIONS; id++)
        hold(&lock, id, LOCK_MODE_RO);
    check_int(lock_add_session(&lock, LOCK_MAX_SESSIONS + 1, LOCK_MODE_RO), -ENOSPC);
    check_int(lock.session_count, LOCK_MAX_SESSIONS);
    await(&lock, 1, LOCK_WISH_RO, 0);
    check_int(next(&lock, 0), 0);
    lock_remove_session(&lock, 1, 0);
    check_int(next(&lock, 0), 10 + LOCK_MODE_RO);
    lock_free(&lock);
}

TAP_TEST(what_no_lock_could_have_is_not_restored)
{
    const struct lock_session reader = {5, LOCK_MODE_RO}, writer = {6, LOCK_MODE_RW};
    const struct lock_waiter waiter = {.id = 3, .wish = LOCK_WISH_RW};
    struct lock_waiter other = waiter;
    struct lock lock;

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
    lock_free(&lock);
}

TAP_TEST(too_many_waiters_are_enospc)
{
    struct lock lock = lock_of(false);

    for (uint64_t id = 1; id <= LOCK_MAX_WAITERS; id++)
        await(&lock, id, LOCK_WISH_RO, 0);
    check_int(lock_add_waiter(&lock, LOCK_MAX_WAITERS + 1, LOCK_WISH_RO, 0, LOCK_FOREVER), -ENOSPC);
    check_int(lock.waiter_count, LOCK_MAX_WAITERS);
    lock_free(&lock);
}
