/* SPDX-License-Identifier: Apache-2.0 */
/* A new worker takes over: operations in progress have ended, and nothing else. */
#include "core_fixture.h"

static int resume(void)
{
    return apply(RECORD(RESUME));
}

static uint64_t must_acquire(uint64_t store, uint64_t bytes)
{
    require(acquire_reserving(open_ctl(store, P1), bytes, P1, 0) == 0);
    require(out.session != 0);
    return out.session;
}

static int making(uint64_t session, uint64_t aside, uint64_t due, uint64_t made, uint64_t drawn)
{
    return apply(RECORD(RESERVE, .session = session, .size_bytes = aside, .count = due,
                        .offset = made, .slot = drawn));
}

static void check_session(uint64_t id, uint64_t aside, uint64_t due, uint64_t made, uint64_t drawn)
{
    const struct core_session *session = core_find_session(core, id);

    require(session != NULL);
    check_int(session->reserved_bytes, aside);
    check_int(session->due_bytes, due);
    check_int(session->making_bytes, made);
    check_int(session->drawn_bytes, drawn);
}

/* ---- memory ---------------------------------------------------------------------------------- */

TAP_TEST(what_is_drawn_is_of_what_is_made_and_no_more)
{
    uint64_t session = must_acquire(make_store("weights"), 8 * GRAIN);

    check_int(making(session, 8 * GRAIN, 0, 2 * GRAIN, 2 * GRAIN + 1), -EINVAL);
    check_int(making(session, 4 * GRAIN, 0, 6 * GRAIN, 4 * GRAIN), 0);
    check_session(session, 4 * GRAIN, 0, 6 * GRAIN, 4 * GRAIN);
}

static int add_made(uint64_t session, uint64_t made, uint64_t drawn)
{
    uint64_t memory = next_memory++;

    return apply(RECORD(ALLOC_ADD, .session = session, .count = 1, .size_bytes = GRAIN,
                        .aligned_bytes = GRAIN, .memories = &memory, .memory_count = 1,
                        .offset = made, .slot = drawn));
}

TAP_TEST(what_comes_into_the_layout_is_made_and_drawn_no_more)
{
    uint64_t session = must_acquire(make_store("weights"), 8 * GRAIN);

    require(making(session, 6 * GRAIN, 0, 3 * GRAIN, 2 * GRAIN) == 0);
    check_int(add_made(session, GRAIN, 3 * GRAIN), -EINVAL); /* more than was drawn */
    check_int(add_made(session, 2 * GRAIN, 0), -EINVAL);     /* more would be drawn than is made */
    check_int(add_made(session, GRAIN, GRAIN), 0);
    check_session(session, 6 * GRAIN, 0, 2 * GRAIN, GRAIN);
    check_int(add_made(session, 2 * GRAIN, GRAIN), 0);
    check_session(session, 6 * GRAIN, 0, 0, 0);
}

TAP_TEST(what_was_drawn_for_an_alloc_is_set_aside_again)
{
    uint64_t store = make_store("weights"), session = must_acquire(store, 8 * GRAIN);

    require(making(session, 5 * GRAIN, GRAIN, 4 * GRAIN, 3 * GRAIN) == 0);
    check_int(core_find_store(core, store)->use.used_bytes, 9 * GRAIN);
    check_int(resume(), 0);
    check_session(session, 8 * GRAIN, GRAIN, 0, 0);
    check_int(core->reserved_bytes, 8 * GRAIN);
    check_int(core_find_store(core, store)->use.used_bytes, 8 * GRAIN);
}

TAP_TEST(what_was_drawn_and_is_not_free_yet_is_due)
{
    uint64_t first = must_acquire(make_store("first"), 4 * GRAIN),
             second = must_acquire(make_store("second"), 4 * GRAIN);

    require(making(first, GRAIN, 0, 3 * GRAIN, 3 * GRAIN) == 0);
    require(making(second, 0, 0, 4 * GRAIN, 4 * GRAIN) == 0);
    device_free = 5 * GRAIN;
    check_int(resume(), 0);
    check_session(first, 4 * GRAIN, 0, 0, 0);
    check_session(second, 2 * GRAIN, 2 * GRAIN, 0, 0);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Waiters were not answered, and their places are kept. */
static bool is_kept(uint64_t waiter)
{
    const struct core_waiter *found = core_find_waiter(core, waiter);

    return found && found->away && !granted(waiter) && !refused(waiter);
}

static int end_resuming(void)
{
    return apply(RECORD(RESUME, .flags = CORE_RESUME_END));
}

TAP_TEST(a_move_goes_on_and_who_waits_for_it_too)
{
    uint64_t store = make_demoted("weights"), waiter = must_wait(store, LOCK_WISH_RO, P1), move,
             memory = next_memory++;

    require(apply(RECORD(MOVE_BEGIN, .store = store, .kind = CORE_PLACE_DEVICE)) == 0);
    move = out.id;
    require(move != 0);
    logged_count = 0;
    check_int(resume(), 0);
    const struct core_store *found = core_find_store(core, store);
    check_int(found->places.place, CORE_PLACE_HOST);
    check_int(found->places.move.id, move);
    check(is_kept(waiter));
    check_int(must_wait(store, LOCK_WISH_RO, P1), waiter);
    check(!core_wants_promotion(core, found));
    check_int(count_effects(EFFECT_MOVE_OVER), 0);
    check_int(end_resuming(), 0);
    check_int(apply(RECORD(MOVE_END, .store = store, .count = move, .memories = &memory,
                           .memory_count = 1)),
              0);
    check(granted(waiter));
}

/* ---- sessions -------------------------------------------------------------------------------- */

static uint64_t linger(uint64_t file)
{
    require(apply(RECORD(FILE_CLOSE, .file = file, .flags = CORE_CLOSE_LINGER)) == 0);
    require(core_find_session(core, out.session)->ending);
    return out.session;
}

TAP_TEST(sessions_that_waited_for_transfers_are_over_and_the_others_go_on)
{
    uint64_t store = make_committed("weights", NULL), reader, gone;

    reader = must_open(store, LOCK_WISH_RO, P1);
    must_open(store, LOCK_WISH_RO, P2);
    gone = linger(out.file);
    logged_count = 0;
    check_int(resume(), 0);
    check(core_find_session(core, gone) == NULL);
    check(core_find_session(core, reader) != NULL);
    check_int(count_effects(EFFECT_SESSION_OVER), 1);
    check_int(state(store), LOCK_STATE_RO);
}

static int revoke_with(uint64_t session, uint32_t flags)
{
    return apply(
        RECORD(SESSION_END, .session = session, .flags = CORE_END_REVOKED | flags, .uid = 7));
}

TAP_TEST(a_session_that_was_revoked_and_waited_for_transfers_is_over)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1), file = out.file, events;

    check_int(revoke_with(session, CORE_END_LINGER), 0);
    check_int(last_event(), CORE_EVENT_REVOKED);
    check_int(core_find_event(core, core->next_event - 1)->by_uid, 7);
    check(core_find_session(core, session)->ending);
    check_int(state(store), LOCK_STATE_RO);
    events = core->next_event;
    check_int(revoke_with(session, CORE_END_LINGER), 0); /* once is enough */
    check_int(core->next_event, events);
    check_int(resume(), 0);
    check(core_find_session(core, session) == NULL);
    check_int(state(store), LOCK_STATE_COMMITTED);
    check(core_find_file(core, file) != NULL);
    check_int(revoke_with(session, CORE_END_LINGER), -ESTALE);
    check_int(revoke_with(session, 4), -EINVAL);
}

TAP_TEST(a_session_that_was_revoked_outlives_its_files_until_its_transfers_have_ended)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1), file = out.file;

    require(revoke_with(session, CORE_END_LINGER) == 0);
    check_int(apply(RECORD(FILE_CLOSE, .file = file)), 0);
    check(core_find_session(core, session) != NULL);
    check_int(apply(RECORD(SESSION_END, .session = session)), 0);
    check_int(state(store), LOCK_STATE_COMMITTED);
}

TAP_TEST(a_writer_that_waited_for_transfers_has_aborted_and_who_comes_back_is_granted)
{
    uint64_t store = start_store();
    uint64_t session = must_open(store, LOCK_WISH_RW, P1), file = out.file, waiter;

    require(add_memory(session, "w") == 0);
    waiter = must_wait(store, LOCK_WISH_RW, P2);
    linger(file);
    check_int(resume(), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
    check(freed(1));
    check(is_kept(waiter));
    check_int(open_lock(store, LOCK_WISH_RW, P2), 0);
    check(out.session != 0 && !core_find_waiter(core, waiter));
}

/* The first waiter is next, in any order of their return. */
TAP_TEST(nobody_is_granted_a_lock_before_all_who_waited_for_it_could_come_back)
{
    uint64_t store = make_store("weights"), first, second;

    must_open(store, LOCK_WISH_RW, P1);
    uint64_t file = out.file;
    first = must_wait(store, LOCK_WISH_RW, P2);
    second = must_wait(store, LOCK_WISH_RW, P3);
    linger(file);
    check_int(resume(), 0);
    check_int(must_wait(store, LOCK_WISH_RW, P3), second);
    check(is_kept(first));
    check_int(open_lock(store, LOCK_WISH_RW, P2), 0);
    check(out.session != 0 && !core_find_waiter(core, first) && !granted(second));
}

TAP_TEST(who_comes_back_waits_until_when_it_would_have)
{
    uint64_t store = make_store("weights"), ctl = open_ctl(store, P2), waiter;

    must_open(store, LOCK_WISH_RW, P1);
    check_int(acquire_reserving(ctl, 0, P2, 100), 0);
    waiter = out.waiter;
    now += 60;
    check_int(resume(), 0);
    check_int(acquire_reserving(ctl, 0, P2, 100), 0);
    check_int(out.waiter, waiter);
    check_int(end_resuming(), 0);
    check_int(pass(50), 0);
    check(refused(waiter));
}

/* Its time begins anew with each worker, and none passes before all could have come. */
TAP_TEST(a_second_death_before_all_have_come_back_takes_nobody_his_place)
{
    uint64_t store = make_store("weights"), waiter;

    must_open(store, LOCK_WISH_RW, P1);
    waiter = must_wait(store, LOCK_WISH_RW, P2);
    check_int(resume(), 0);
    check_int(pass(CORE_KEPT_PLACE_MS + 1), 0);
    check(is_kept(waiter));
    check_int(resume(), 0);
    check_int(pass(CORE_KEPT_PLACE_MS - 1), 0);
    check_int(resume(), 0);
    check_int(end_resuming(), 0);
    check_int(pass(CORE_KEPT_PLACE_MS - 1), 0);
    check_int(must_wait(store, LOCK_WISH_RW, P2), waiter);
}

TAP_TEST(who_does_not_come_back_is_passed_over_at_the_end)
{
    uint64_t store = make_store("weights"), first, second;

    must_open(store, LOCK_WISH_RW, P1);
    uint64_t file = out.file;
    first = must_wait(store, LOCK_WISH_RW, P2);
    second = must_wait(store, LOCK_WISH_RW, P3);
    linger(file);
    check_int(resume(), 0);
    check_int(must_wait(store, LOCK_WISH_RW, P3), second);
    check_int(end_resuming(), 0);
    check(granted(second) && is_kept(first));
}

TAP_TEST(memory_that_a_session_gives_back_is_granted_to_who_comes_back_for_it)
{
    uint64_t file, waiter;

    device_free = 2 * GRAIN;
    must_acquire(make_store("first"), 2 * GRAIN);
    file =
        core->sessions.count ? ((const struct core_session *)core->sessions.items[0])->opener : 0;
    device_free = 0;
    uint64_t second = open_ctl(make_store("second"), P2);
    require(acquire_reserving(second, GRAIN, P2, LOCK_FOREVER) == 0);
    waiter = out.waiter;
    require(waiter != 0);
    linger(file);
    device_free = 2 * GRAIN;
    check_int(resume(), 0);
    check(is_kept(waiter));
    check_int(acquire_reserving(second, GRAIN, P2, LOCK_FOREVER), 0);
    check(out.session != 0 && !core_find_waiter(core, waiter));
}

/* ---- how often ------------------------------------------------------------------------------- */

TAP_TEST(each_time_is_counted_and_told)
{
    start_store();
    for (uint64_t i = 1; i <= 3; i++) {
        uint64_t events = core->next_event;

        check_int(resume(), 0);
        check_int(core->resumes, i);
        check_int(core->next_event, events + 1);
        check_int(last_event(), CORE_EVENT_RESUMED);
        check_int(core_find_event(core, events)->resumes, i);
    }
    check_int(apply(RECORD(RESUME, .flags = 2)), -EINVAL);
}

TAP_TEST(the_end_of_a_recovery_tells_its_cause_and_how_long_it_took)
{
    struct record end = RECORD(RESUME, .flags = CORE_RESUME_END, .count = 12345);

    check_int(apply(named(end, "nothing was resumed")), -EINVAL);
    check_int(resume(), 0);
    check_int(apply(named(end, "was killed by signal 9 (Killed)")), 0);
    check_int(last_event(), CORE_EVENT_RECOVERED);
    const struct core_event *event = core_find_event(core, core->next_event - 1);
    check_str(event->cause, "was killed by signal 9 (Killed)");
    check_int(event->took_us, 12345);
    check_int(event->resumes, 1);
    check_int(resume(), 0);
    check_int(apply(end), 0); /* nothing is known of it: nothing is told */
    check_int(last_event(), CORE_EVENT_RESUMED);
}

TAP_TEST(a_cause_that_is_no_text_is_refused)
{
    char longer[256];
    struct record end = RECORD(RESUME, .flags = CORE_RESUME_END, .name = longer);

    memset(longer, 'x', sizeof longer);
    core_start();
    check_int(resume(), 0);
    end.name_bytes = sizeof longer;
    check_int(apply(end), -EINVAL);
    check(core->is_resuming);
    end.name_bytes = sizeof longer - 1;
    longer[7] = '\0';
    check_int(apply(end), -EINVAL);
    longer[7] = '7';
    check_int(apply(end), 0);
    check_int(strlen(core_find_event(core, core->next_event - 1)->cause), 255);
}
