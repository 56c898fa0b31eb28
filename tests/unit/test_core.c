/* SPDX-License-Identifier: Apache-2.0 */
/* The lock of a store as its users meet it: admission, waiting, membership, the end of sessions. */
#include "core_fixture.h"

/* ---- admission ------------------------------------------------------------------------------ */

TAP_TEST(a_new_store_is_empty_and_a_reader_waits)
{
    uint64_t store = start_store();
    check_int(state(store), LOCK_STATE_EMPTY);
    uint64_t waiter = must_wait(store, LOCK_WISH_RO, P1);
    check(core_find_waiter(core, waiter) != NULL);
    check_int(state(store), LOCK_STATE_EMPTY);
}

TAP_TEST(a_writer_is_granted_at_once_on_empty_and_excludes_everybody)
{
    uint64_t store, session = start_writer(&store);
    check_int(state(store), LOCK_STATE_RW);
    check(core_get_writer(core, store) == core_find_session(core, session));
    must_wait(store, LOCK_WISH_RO, P2);
    must_wait(store, LOCK_WISH_RW, P3);
}

TAP_TEST(readers_share_and_are_counted_as_files_of_their_own_sessions)
{
    uint64_t store = start_committed(NULL);
    uint64_t one = must_open(store, LOCK_WISH_RO, P1);
    uint64_t two = must_open(store, LOCK_WISH_RO, P2);
    check(one != two);
    check_int(state(store), LOCK_STATE_RO);
    check_int(core_find_store(core, store)->grants_ro, 2);
}

TAP_TEST(a_commit_grants_the_readers_that_waited)
{
    uint64_t store, session = start_writer(&store);
    uint64_t one = must_wait(store, LOCK_WISH_RO, P2);
    uint64_t two = must_wait(store, LOCK_WISH_RO, P3);
    check_int(commit(session), 0);
    check(granted(one) && granted(two));
    check_int(state(store), LOCK_STATE_RO);
    check(core_find_file(core, answer_to(one)->file) != NULL);
    check_int(core_find_file(core, answer_to(one)->file)->session, answer_to(one)->session);
}

TAP_TEST(a_waiting_writer_holds_readers_off_until_its_patience_ends)
{
    uint64_t store = start_committed(NULL);
    must_open(store, LOCK_WISH_RO, P1);
    uint64_t writer = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t reader = must_wait(store, LOCK_WISH_RO, P3);
    check_int(core_next_moment(core, now), now + PATIENCE_MS);
    check_int(pass(PATIENCE_MS - 1), 0);
    check(!granted(reader));
    check_int(pass(1), 0);
    check(granted(reader));
    check(!granted(writer));
}

TAP_TEST(a_release_starts_the_patience_anew)
{
    uint64_t store = start_committed(NULL);
    must_open(store, LOCK_WISH_RO, P1);
    uint64_t first = must_open(store, LOCK_WISH_RO, P2);
    must_wait(store, LOCK_WISH_RW, P3);
    check_int(pass(PATIENCE_MS), 0);
    check_int(of_session(RECORD_SESSION_END, first), 0);
    must_wait(store, LOCK_WISH_RO, P2);
}

TAP_TEST(auto_writes_on_empty_and_reads_once_something_is_committed)
{
    uint64_t store = start_store();
    uint64_t session = must_open(store, LOCK_WISH_AUTO, P1);
    check_int(core_find_session(core, session)->mode, LOCK_MODE_RW);
    uint64_t other = must_wait(store, LOCK_WISH_AUTO, P2);
    check_int(lock_count_waiting_writers(&core_find_store(core, store)->lock), 1);
    check_int(commit(session), 0);
    check(granted(other));
    check_int(core_find_session(core, answer_to(other)->session)->mode, LOCK_MODE_RO);
}

TAP_TEST(auto_becomes_the_writer_when_the_first_one_aborts)
{
    uint64_t store = start_store();
    uint64_t session = must_open(store, LOCK_WISH_AUTO, P1);
    uint64_t other = must_wait(store, LOCK_WISH_AUTO, P2);
    uint64_t third = must_wait(store, LOCK_WISH_AUTO, P3);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(other) && !granted(third));
    check_int(core_find_session(core, answer_to(other)->session)->mode, LOCK_MODE_RW);
}

TAP_TEST(nonblock_is_eagain_and_leaves_nothing)
{
    uint64_t store = start_store();
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P1);
    record.flags |= CORE_OPEN_NONBLOCK;
    check_int(apply(record), -EAGAIN);
    check_int(core->waiters.count, 0);
}

TAP_TEST(grace_waits_for_a_release_and_is_eagain_at_its_deadline)
{
    uint64_t store, session = start_writer(&store);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RW, P1);
    record.flags |= CORE_OPEN_GRACE;
    record.deadline_ms = now + 5;
    check_int(apply(record), 0);
    uint64_t late = out.waiter;
    check_int(pass(5), 0);
    check_int(refused(late), -EAGAIN);
    check(core_find_waiter(core, late) == NULL);
    record.deadline_ms = now + 5;
    check_int(apply(record), 0);
    uint64_t early = out.waiter;
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(early));
}

/* ---- waiting -------------------------------------------------------------------------------- */

TAP_TEST(an_interrupted_waiter_is_answered_and_keeps_its_place_for_a_second)
{
    uint64_t store, session = start_writer(&store);
    uint64_t kept = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t later = must_wait(store, LOCK_WISH_RW, P3);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    check_int(refused(kept), -EINTR);
    check(core_find_waiter(core, kept)->away);
    now += CORE_KEPT_PLACE_MS - 1;
    logged_count = 0;
    check_int(open_lock(store, LOCK_WISH_RW, P2), 0);
    check_int(out.waiter, kept);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(kept) && !granted(later));
}

TAP_TEST(a_kept_place_is_passed_over_and_forgotten_after_its_second)
{
    uint64_t store, session = start_writer(&store);
    uint64_t kept = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t later = must_wait(store, LOCK_WISH_RW, P3);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(later));
    check_int(core_next_moment(core, now), now + CORE_KEPT_PLACE_MS);
    check_int(pass(CORE_KEPT_PLACE_MS), 0);
    check(core_find_waiter(core, kept) == NULL);
    check_int(refused(kept), -EINTR); /* once, and not again */
}

/* The worker did not run for a while, and has not read the clients' new requests yet. */
TAP_TEST(no_kept_place_expires_while_requests_wait_unread)
{
    uint64_t store, session = start_writer(&store);
    uint64_t kept = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t later = must_wait(store, LOCK_WISH_RW, P3);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    now += 3 * CORE_KEPT_PLACE_MS;
    check_int(apply(RECORD(TIME, .flags = CORE_TIME_UNREAD)), 0);
    require(core_find_waiter(core, kept) != NULL);
    check_int(core_next_moment(core, now), now + CORE_KEPT_PLACE_MS);
    logged_count = 0;
    check_int(open_lock(store, LOCK_WISH_RW, P2), 0);
    check_int(out.waiter, kept);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    check_int(pass(CORE_KEPT_PLACE_MS), 0);
    check(core_find_waiter(core, kept) == NULL);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(later));
}

TAP_TEST(a_kept_place_is_of_one_process_and_one_wish)
{
    uint64_t store = start_store();
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t kept = must_wait(store, LOCK_WISH_RW, P2);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    check(must_wait(store, LOCK_WISH_RW, P3) != kept);
    check(must_wait(store, LOCK_WISH_RO, P2) != kept);
    check(must_wait(store, LOCK_WISH_RW, (struct core_process){102, 99}) != kept);
    check(core_find_waiter(core, kept)->away);
}

TAP_TEST(a_resumed_place_that_can_be_granted_is_the_answer_itself)
{
    uint64_t store, session = start_writer(&store);
    uint64_t kept = must_wait(store, LOCK_WISH_RW, P2);
    check_int(wait_end(kept, EINTR, CORE_WAIT_KEEP), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    logged_count = 0;
    must_open(store, LOCK_WISH_RW, P2);
    check(answer_to(kept) == NULL);
    check(core_find_waiter(core, kept) == NULL);
}

TAP_TEST(wait_end_without_keep_forgets)
{
    uint64_t store = start_store();
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t waiter = must_wait(store, LOCK_WISH_RW, P2);
    check_int(wait_end(waiter, ECANCELED, 0), 0);
    check_int(refused(waiter), -ECANCELED);
    check_int(wait_end(waiter, ECANCELED, 0), -ENOENT);
}

TAP_TEST(a_writer_that_gives_up_waiting_lets_the_readers_in)
{
    uint64_t store = start_committed(NULL);
    must_open(store, LOCK_WISH_RO, P1);
    uint64_t writer = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t reader = must_wait(store, LOCK_WISH_RO, P3);
    check_int(wait_end(writer, EINTR, CORE_WAIT_KEEP), 0);
    check(granted(reader));
}

TAP_TEST(an_open_at_the_kernels_bound_is_etimedout_and_keeps_its_place)
{
    uint64_t store = start_store();
    must_open(store, LOCK_WISH_RW, P1);
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P2);
    record.deadline_ms = now + 100;
    check_int(apply(record), 0);
    uint64_t waiter = out.waiter;
    check_int(pass(100), 0);
    check_int(refused(waiter), -ETIMEDOUT);
    check(core_find_waiter(core, waiter)->away);
}

TAP_TEST(a_wait_for_oneself_is_edeadlk)
{
    uint64_t store = start_committed(NULL);
    must_open(store, LOCK_WISH_RO, P1);
    check_int(open_lock(store, LOCK_WISH_RW, P1), -EDEADLK);
    check_int(open_file(store, CORE_KIND_LOCK, 0, RW, out.session, P1), -EINVAL);
    const struct core_session *mine =
        core_find_membership(core, store, &(struct core_process){101, 11}, 1);
    require(mine != NULL);
    check_int(open_file(store, CORE_KIND_LOCK, 0, RW, mine->id, P2), -EDEADLK);
}

TAP_TEST(waiting_for_the_end_of_ones_own_session_is_no_deadlock)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RW, P1);
    record.flags |= CORE_OPEN_LEAVING;
    check_int(apply(record), 0);
    uint64_t waiter = out.waiter;
    require(waiter != 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(waiter));
}

/* ---- membership ----------------------------------------------------------------------------- */

TAP_TEST(owner_descendants_and_openers_are_members_and_others_are_not)
{
    uint64_t store, session = start_writer(&store);
    struct core_process child[] = {{500, 1}, P2, P1};
    struct core_process recycled = {P1.pid, P1.start + 1};
    check_int(core_find_membership(core, store, child, 3)->id, session);
    check(core_find_membership(core, store, child, 2) == NULL);
    check(core_find_membership(core, store, &recycled, 1) == NULL);
    check(core_find_membership(core, store, &(struct core_process){0, 0}, 1) == NULL);
    check_int(open_file(store, CORE_KIND_LOCK, 0, RW, session, child[0]), 0);
    uint64_t file = out.file;
    check_int(core_find_membership(core, store, child, 1)->id, session);
    check_int(close_file(file), 0);
    check(core_find_membership(core, store, child, 1) == NULL);
}

TAP_TEST(joined_files_keep_a_session_alive_until_the_last_is_closed)
{
    uint64_t store, session = start_writer(&store);
    uint64_t first = out.file;
    check_int(open_file(store, CORE_KIND_COMMIT, 0, CORE_OPEN_WRITE, session, P2), 0);
    uint64_t second = out.file;
    check_int(core_find_session(core, session)->files, 2);
    check_int(close_file(first), 0);
    check(core_find_session(core, session) != NULL);
    check_int(close_file(second), 0);
    check(core_find_session(core, session) == NULL);
    check_int(state(store), LOCK_STATE_EMPTY);
    check_int(last_event(), CORE_EVENT_ABORTED);
}

TAP_TEST(an_acquired_session_is_not_found_by_process_but_by_its_token)
{
    uint64_t store = start_store();
    uint64_t ctl = open_ctl(store, P1);
    check_int(acquire(ctl, LOCK_WISH_RW, P1, 0), 0);
    uint64_t session = out.session;
    struct core_process me = P1;
    uint8_t token[16];
    memcpy(token, core_find_session(core, session)->token, sizeof token);
    check(core_find_membership(core, store, &me, 1) == NULL);
    check_int(core_find_token(core, token)->id, session);
    uint64_t worker = open_ctl(store, (struct core_process){0, 0});
    struct record join = RECORD(JOIN, .file = worker);
    check_int(apply(join), -ESTALE); /* no session has a token of zeros */
    memcpy(join.bytes16, token, sizeof token);
    check_int(apply(join), 0);
    check_int(out.session, session);
    check_int(out.mode, LOCK_MODE_RW);
    check_int(apply(join), -EDEADLK);
    check_int(close_file(worker), 0);
    check(core_find_session(core, session) != NULL);
}

TAP_TEST(a_read_only_handle_does_not_join_a_writer)
{
    uint64_t store, session = start_writer(&store);
    check_int(open_file(store, CORE_KIND_CTL, 0, CORE_OPEN_READ, 0, P2), 0);
    struct record join = RECORD(JOIN, .file = out.file);
    memcpy(join.bytes16, core_find_session(core, session)->token, sizeof join.bytes16);
    check_int(apply(join), -EBADF);
}

TAP_TEST(two_handles_of_one_process_have_sessions_of_their_own)
{
    uint64_t store = start_committed(NULL);
    uint64_t one = open_ctl(store, P1), two = open_ctl(store, P1);
    check_int(acquire(one, LOCK_WISH_RO, P1, 0), 0);
    uint64_t first = out.session;
    check_int(acquire(two, LOCK_WISH_RO, P1, 0), 0);
    check(out.session != first);
    check_int(acquire(one, LOCK_WISH_RW, P1, 0), -EDEADLK);
    check_int(acquire(open_ctl(store, P1), LOCK_WISH_RW, P1, 0), -EAGAIN);
}

TAP_TEST(acquire_needs_a_handle_that_was_opened_for_it)
{
    uint64_t store = start_committed(NULL);
    check_int(open_file(store, CORE_KIND_CTL, 0, CORE_OPEN_READ, 0, P1), 0);
    uint64_t reader = out.file;
    check_int(acquire(reader, LOCK_WISH_RW, P1, 0), -EBADF);
    check_int(acquire(reader, LOCK_WISH_AUTO, P1, 0), -EBADF);
    check_int(acquire(reader, LOCK_WISH_RO, P1, 0), 0);
    check_int(acquire(999, LOCK_WISH_RO, P1, 0), -EBADF);
    check_int(open_file(store, CORE_KIND_ABORT, 0, CORE_OPEN_WRITE, 0, P1), 0);
    check_int(acquire(out.file, LOCK_WISH_RW, P1, 0), -EINVAL);
}

TAP_TEST(acquire_waits_until_its_deadline_and_is_forgotten_then)
{
    uint64_t store = start_store();
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t ctl = open_ctl(store, P2);
    check_int(acquire(ctl, LOCK_WISH_RW, P2, 0), -EAGAIN);
    check_int(acquire(ctl, LOCK_WISH_RW, P2, 50), 0);
    uint64_t waiter = out.waiter;
    check_int(acquire(ctl, LOCK_WISH_RW, P2, 50), -EBUSY);
    check_int(core_next_moment(core, now), now + 50);
    check_int(pass(50), 0);
    check_int(refused(waiter), -ETIMEDOUT);
    check(core_find_waiter(core, waiter) == NULL);
}

TAP_TEST(an_interrupted_acquire_goes_on_by_the_same_handle)
{
    uint64_t store, session = start_writer(&store);
    uint64_t ctl = open_ctl(store, P2);
    check_int(acquire(ctl, LOCK_WISH_RW, P2, LOCK_FOREVER), 0);
    uint64_t waiter = out.waiter;
    uint64_t later = must_wait(store, LOCK_WISH_RW, P3);
    check_int(wait_end(waiter, EINTR, CORE_WAIT_KEEP), 0);
    logged_count = 0;
    check_int(acquire(ctl, LOCK_WISH_RW, P2, LOCK_FOREVER), 0);
    check_int(out.waiter, waiter);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(waiter) && !granted(later));
    check_int(answer_to(waiter)->file, ctl);
    check_int(core_find_file(core, ctl)->session, answer_to(waiter)->session);
    check(core_find_session(core, answer_to(waiter)->session)->exclusive);
}

TAP_TEST(an_acquire_that_waits_dies_with_its_handle)
{
    uint64_t store = start_store();
    must_open(store, LOCK_WISH_RW, P1);
    uint64_t ctl = open_ctl(store, P2);
    check_int(acquire(ctl, LOCK_WISH_RW, P2, LOCK_FOREVER), 0);
    uint64_t waiter = out.waiter;
    check_int(close_file(ctl), 0);
    check_int(refused(waiter), -ECANCELED);
    check_int(core->waiters.count, 0);
}

/* ---- the end of sessions -------------------------------------------------------------------- */

TAP_TEST(an_exclusive_session_ends_when_its_own_handle_closes)
{
    uint64_t store = start_store();
    uint64_t ctl = open_ctl(store, P1), worker = open_ctl(store, P2);
    check_int(acquire(ctl, LOCK_WISH_RW, P1, 0), 0);
    uint64_t session = out.session;
    struct record join = RECORD(JOIN, .file = worker);
    memcpy(join.bytes16, core_find_session(core, session)->token, sizeof join.bytes16);
    check_int(apply(join), 0);
    check_int(close_file(ctl), 0);
    check(core_find_session(core, session) == NULL);
    check_int(core_find_file(core, worker)->session, session); /* ESTALE from now on */
    check_int(apply(RECORD(DETACH, .file = worker)), -ESTALE);
    check_int(acquire(worker, LOCK_WISH_RW, P2, 0), 0);
}

TAP_TEST(detach_releases_the_lock_and_keeps_the_handle)
{
    uint64_t store = start_committed(NULL);
    uint64_t ctl = open_ctl(store, P1);
    struct record detach = RECORD(DETACH, .file = ctl);
    check_int(apply(detach), -ENOLCK);
    check_int(acquire(ctl, LOCK_WISH_RO, P1, 0), 0);
    uint64_t writer = must_wait(store, LOCK_WISH_RW, P2);
    check_int(apply(detach), 0);
    check(granted(writer));
    check_int(apply(detach), -ENOLCK);
    check_int(count_effects(EFFECT_SESSION_OVER), 2); /* the one that committed, this one */
}

TAP_TEST(a_revoked_writer_aborts_and_its_files_are_stale)
{
    uint64_t store, session = start_writer(&store);
    uint64_t file = out.file;
    check_int(apply(RECORD(SESSION_END, .session = session, .flags = CORE_END_REVOKED)), 0);
    check_int(core_find_event(core, core->next_event - 2)->type, CORE_EVENT_REVOKED);
    check_int(last_event(), CORE_EVENT_ABORTED);
    check_int(commit(session), -ESTALE);
    check_int(of_session(RECORD_SESSION_END, session), -ESTALE);
    check_int(close_file(file), 0);
    check_int(close_file(file), -EBADF);
}

TAP_TEST(an_implicit_session_is_taken_by_opening_an_allocation_and_joined_by_others)
{
    uint64_t serial, store = start_committed(&serial);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RW, P1);
    record.serial = serial;
    check_int(apply(record), 0);
    const struct core_session *session = core_find_session(core, out.session);
    uint64_t id = session->id, file = out.file;
    check(session->implicit && !session->exclusive);
    check_int(session->opener, file);
    struct core_process me = P1;
    check_int(core_find_membership(core, store, &me, 1)->id, id);
    record.process = P2;
    check_int(apply(record), -EAGAIN); /* never waits */
    check_int(open_file(store, CORE_KIND_COMMIT, 0, CORE_OPEN_WRITE, id, P1), 0);
    check_int(commit(id), 0);
    check_int(core_find_store(core, store)->generation, 2);
}

TAP_TEST(an_allocation_that_is_not_there_is_enoent)
{
    uint64_t store = start_committed(NULL);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RO, P1);
    record.serial = 4711;
    check_int(apply(record), -ENOENT);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);
    check_int(open_file(store, CORE_KIND_ALLOCATION, 4711, CORE_OPEN_READ, session, P1), -ENOENT);
    check_int(open_file(store, CORE_KIND_ENTRY, 4711, CORE_OPEN_READ, 0, P1), -ENOENT);
}

TAP_TEST(what_was_waited_for_may_be_gone_at_the_grant)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "w"), 0);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RW, P2);
    record.serial = out.serial;
    record.flags |= CORE_OPEN_GRACE;
    check_int(apply(record), 0);
    uint64_t waiter = out.waiter;
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(refused(waiter), -ENOENT);
    check_int(state(store), LOCK_STATE_EMPTY);
}

TAP_TEST(a_close_that_lingers_keeps_the_lock_until_its_session_is_ended)
{
    uint64_t store, session = start_writer(&store);
    struct record close = RECORD(FILE_CLOSE, .file = out.file, .flags = CORE_CLOSE_LINGER);
    check_int(apply(close), 0);
    check(core_find_session(core, session)->ending);
    check_int(state(store), LOCK_STATE_RW);
    check(!core_has_joinable(core, store));
    check(core_find_membership(core, store, &P1, 1) == NULL);
    require(open_file(store, CORE_KIND_CTL, 0, RW, 0, P2) == 0);
    struct record join = RECORD(JOIN, .file = out.file);
    memcpy(join.bytes16, core_find_session(core, session)->token, sizeof join.bytes16);
    check_int(apply(join), -ESTALE);
    check_int(apply(RECORD(SESSION_END, .session = session)), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
    close.file = 4711;
    check_int(apply(close), -EBADF);
}

TAP_TEST(a_file_that_others_have_too_does_not_linger)
{
    uint64_t store = start_store();
    uint64_t session = must_open(store, LOCK_WISH_RW, P1), first = out.file;
    require(open_file(store, CORE_KIND_LOCK, 0, RW, session, P1) == 0);
    check_int(apply(RECORD(FILE_CLOSE, .file = first, .flags = CORE_CLOSE_LINGER)), 0);
    check(!core_find_session(core, session)->ending);
}

TAP_TEST(a_revocation_says_who_asked_for_it)
{
    uint64_t store, session = start_writer(&store);
    check_int(open_lock(store, LOCK_WISH_RW, P2), 0);
    uint64_t waiter = out.waiter;
    struct record revoke = RECORD(WAIT_END, .waiter = waiter, .count = ECANCELED,
                                  .flags = CORE_WAIT_REVOKED, .process = P3, .uid = 7);
    check_int(apply(revoke), 0);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_int(event->type, CORE_EVENT_REVOKED);
    check_int(event->waiter, waiter);
    check_int(event->session, 0);
    check_int(event->process.pid, P2.pid);
    check_int(event->by.pid, P3.pid);
    check_int(event->by_uid, 7);
    revoke =
        RECORD(SESSION_END, .session = session, .flags = CORE_END_REVOKED, .process = P3, .uid = 7);
    check_int(apply(revoke), 0);
    event = core_find_event(core, core->next_event - 2);
    check_int(event->type, CORE_EVENT_REVOKED);
    check_int(event->session, session);
    check_int(event->process.pid, P1.pid);
    check_int(event->by.pid, P3.pid);
    check_int(event->by_uid, 7);
}
