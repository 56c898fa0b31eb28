/* SPDX-License-Identifier: Apache-2.0 */
/* Memory set aside with the lock: both or neither, first come first served, and back at the end. */
#include "core_fixture.h"

#define FREE(grains) (device_free = (uint64_t)(grains)*GRAIN)

static const struct core_session *session_of(uint64_t file)
{
    return core_find_session(core, core_find_file(core, file)->session);
}

static uint64_t aside(uint64_t file)
{
    const struct core_session *session = session_of(file);

    return session ? session->reserved_bytes / GRAIN : UINT64_MAX;
}

static uint64_t due(uint64_t file)
{
    return session_of(file)->due_bytes / GRAIN;
}

/* Asks for lock and memory, and must wait. */
static uint64_t must_queue(uint64_t file, uint64_t grains, struct core_process process)
{
    require(acquire_reserving(file, grains * GRAIN, process, LOCK_FOREVER) == 0);
    require(out.session == 0 && out.waiter != 0);
    return out.waiter;
}

/* The same, to look around after a while, and ask again. */
static uint64_t must_queue_again(uint64_t file, uint64_t grains, uint64_t after_ms)
{
    require(apply(RECORD(ACQUIRE, .file = file, .wish = LOCK_WISH_RW, .process = P1,
                         .flags = CORE_OPEN_AGAIN, .size_bytes = grains * GRAIN,
                         .deadline_ms = now + after_ms)) == 0);
    require(out.session == 0 && out.waiter != 0);
    return out.waiter;
}

TAP_TEST(lock_and_memory_come_together)
{
    uint64_t ctl = open_ctl(make_store("weights"), P1);

    FREE(5);
    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), 0);
    check_int(aside(ctl), 4);
    check_int(due(ctl), 0);
    check_int(core->reserved_bytes, 4 * GRAIN);
}

TAP_TEST(without_the_memory_the_lock_is_not_taken)
{
    uint64_t store = start_store();
    uint64_t ctl = open_ctl(store, P1);

    FREE(3);
    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), -ENOMEM);
    check_int(state(store), LOCK_STATE_EMPTY);
    uint64_t waiter = must_queue(ctl, 4, P1);
    check_int(state(store), LOCK_STATE_EMPTY);
    check_int(core->reserved_bytes, 0);
    FREE(4);
    check_int(pass(1), 0);
    check(granted(waiter));
    check_int(aside(ctl), 4);
}

TAP_TEST(without_the_lock_no_memory_is_set_aside)
{
    uint64_t store = start_store();
    uint64_t ctl = open_ctl(store, P1);

    must_open(store, LOCK_WISH_RW, P2);
    uint64_t holder = out.file;
    FREE(9);
    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), -EAGAIN);
    uint64_t waiter = must_queue(ctl, 4, P1);
    check_int(core->reserved_bytes, 0);
    check_int(close_file(holder), 0);
    check(granted(waiter));
    check_int(aside(ctl), 4);
}

TAP_TEST(readers_reserve_nothing)
{
    uint64_t store = start_committed(NULL);
    uint64_t ctl = open_ctl(store, P1);

    check_int(apply(RECORD(ACQUIRE, .file = ctl, .wish = LOCK_WISH_RO, .process = P1,
                           .size_bytes = GRAIN, .deadline_ms = LOCK_FOREVER)),
              -EINVAL);
    FREE(0);
    check_int(apply(RECORD(ACQUIRE, .file = ctl, .wish = LOCK_WISH_AUTO, .process = P1,
                           .size_bytes = 9 * GRAIN, .deadline_ms = now)),
              0);
    check_int(out.mode, LOCK_MODE_RO);
    check_int(core->reserved_bytes, 0);
}

TAP_TEST(a_small_reservation_does_not_overtake_a_large_one_of_another_store)
{
    uint64_t one = open_ctl(make_store("one"), P1), two = open_ctl(make_store("two"), P2);

    FREE(3);
    uint64_t large = must_queue(one, 4, P1);
    check_int(acquire_reserving(two, GRAIN, P2, 0), -EAGAIN);
    uint64_t small = must_queue(two, 1, P2);
    check_int(pass(1), 0);
    check(!granted(small));
    FREE(4);
    check_int(pass(1), 0);
    check(granted(large) && !granted(small));
    FREE(1);
    check_int(pass(1), 0);
    check(granted(small));
}

TAP_TEST(one_that_waits_for_its_lock_holds_no_reservation_off)
{
    uint64_t store = make_store("one");
    uint64_t one = open_ctl(store, P1), two = open_ctl(make_store("two"), P2);

    must_open(store, LOCK_WISH_RW, P3);
    FREE(4);
    must_queue(one, 4, P1);
    check_int(acquire_reserving(two, 3 * GRAIN, P2, 0), 0);
    check_int(aside(two), 3);
}

TAP_TEST(who_reserves_nothing_passes_one_that_waits_for_memory)
{
    uint64_t store = start_committed(NULL);
    uint64_t ctl = open_ctl(store, P1);

    FREE(0);
    uint64_t waiter = must_queue(ctl, 4, P1);
    must_open(store, LOCK_WISH_RO, P2); /* no patience is asked of it */
    check_int(close_file(out.file), 0);
    must_open(store, LOCK_WISH_RW, P2);
    check_int(close_file(out.file), 0);
    check(!granted(waiter));
    FREE(4);
    check_int(pass(1), 0);
    check(granted(waiter));
}

TAP_TEST(one_that_has_memory_and_waits_for_its_lock_holds_readers_off)
{
    uint64_t store = start_committed(NULL);
    uint64_t ctl = open_ctl(store, P1);

    must_open(store, LOCK_WISH_RO, P2);
    FREE(4);
    must_queue(ctl, 4, P1);
    must_wait(store, LOCK_WISH_RO, P3);
}

TAP_TEST(what_the_store_has_committed_counts_as_there_and_is_due)
{
    uint64_t ctl = open_ctl(make_committed("weights", NULL), P1);

    FREE(2);
    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), -ENOMEM);
    check_int(acquire_reserving(ctl, 3 * GRAIN, P1, 0), 0);
    check_int(aside(ctl), 2);
    check_int(due(ctl), 1);
}

TAP_TEST(the_end_of_a_session_in_every_way_gives_back_what_was_not_drawn)
{
    static const enum record_type ends[] = {RECORD_COMMIT, RECORD_SESSION_END, RECORD_DETACH,
                                            RECORD_FILE_CLOSE};

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        core_start();
        uint64_t ctl = open_ctl(make_store("weights"), P1);

        check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), 0);
        check_int(apply((struct record){.type = ends[i], .session = out.session, .file = ctl}), 0);
        check_int(core->reserved_bytes, 0);
    }
}

TAP_TEST(a_writer_that_stays_on_as_a_reader_has_nothing_set_aside)
{
    uint64_t ctl = open_ctl(make_store("weights"), P1);

    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), 0);
    check_int(apply(RECORD(COMMIT, .session = out.session, .flags = CORE_COMMIT_STAY)), 0);
    check_int(aside(ctl), 0);
    check_int(core->reserved_bytes, 0);
}

TAP_TEST(a_waiter_that_goes_lets_the_next_reservation_pass)
{
    uint64_t one = open_ctl(make_store("one"), P1), two = open_ctl(make_store("two"), P2);

    FREE(3);
    uint64_t large = must_queue(one, 4, P1);
    uint64_t small = must_queue(two, 3, P2);
    check_int(wait_end(large, ECANCELED, 0), 0);
    check_int(refused(large), -ECANCELED);
    check(granted(small));
    check_int(aside(two), 3);
}

TAP_TEST(a_kept_place_holds_no_reservation_off_and_is_resumed_with_its_size)
{
    uint64_t one = open_ctl(make_store("one"), P1), two = open_ctl(make_store("two"), P2);

    FREE(3);
    uint64_t large = must_queue(one, 4, P1);
    check_int(wait_end(large, EINTR, CORE_WAIT_KEEP), 0);
    check_int(acquire_reserving(two, GRAIN, P2, 0), 0);
    check_int(acquire_reserving(one, 2 * GRAIN, P1, LOCK_FOREVER), 0);
    check(out.session != 0 && out.waiter == 0);
    check_int(aside(one), 2);
}

TAP_TEST(who_only_looks_around_holds_reservations_off)
{
    uint64_t one = open_ctl(make_store("one"), P1), two = open_ctl(make_store("two"), P2);

    FREE(3);
    uint64_t large = must_queue_again(one, 4, 50), small = must_queue(two, 3, P2);
    check_int(pass(50), 0);
    check_int(refused(large), -ETIMEDOUT);
    check(core_find_waiter(core, large)->away && !granted(small));
    check_int(must_queue_again(one, 4, 50), large);
    check_int(pass(50), 0);
    check(!granted(small));
    check_int(pass(CORE_KEPT_PLACE_MS), 0);
    check(granted(small));
}

TAP_TEST(the_deadline_of_a_reservation_runs_while_it_waits_for_memory)
{
    uint64_t ctl = open_ctl(make_store("weights"), P1);

    FREE(0);
    check_int(acquire_reserving(ctl, GRAIN, P1, 50), 0);
    uint64_t waiter = out.waiter;
    check_int(core_next_moment(core, now), now + 50);
    check_int(pass(50), 0);
    check_int(refused(waiter), -ETIMEDOUT);
    check_int(core->reserving, 0);
}

TAP_TEST(a_writer_changes_what_is_set_aside_for_it_within_what_is_free)
{
    uint64_t store, session = start_writer(&store);
    uint64_t file = out.file;

    FREE(3);
    struct record record = RECORD(RESERVE, .session = session, .size_bytes = 4 * GRAIN);
    check_int(apply(record), -ENOMEM);
    record.size_bytes = 3 * GRAIN;
    record.count = GRAIN;
    check_int(apply(record), 0);
    check_int(aside(file), 3);
    check_int(due(file), 1);
    FREE(0);
    record.size_bytes = GRAIN;
    check_int(apply(record), 0);
    check_int(aside(file), 1);
    record.session = 99;
    check_int(apply(record), -ESTALE);
}

TAP_TEST(only_writers_change_what_is_set_aside)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);

    check_int(apply(RECORD(RESERVE, .session = session)), -ENOLCK);
}

static int reserve_by(uint64_t file, uint64_t grains, uint32_t flags)
{
    return apply(RECORD(RESERVE, .session = session_of(file)->id, .size_bytes = grains * GRAIN,
                        .count = 7 * GRAIN, .flags = flags));
}

static int reserve_as_acquire(uint64_t file, uint64_t grains)
{
    return reserve_by(file, grains, CORE_RESERVE_AS_ACQUIRE);
}

TAP_TEST(a_writer_may_reserve_as_if_it_asked_with_the_lock)
{
    uint64_t ctl = open_ctl(make_store("weights"), P1);

    FREE(3);
    check_int(acquire_reserving(ctl, 0, P1, 0), 0);
    check_int(reserve_as_acquire(ctl, 4), -ENOMEM);
    check_int(aside(ctl), 0);
    check_int(reserve_as_acquire(ctl, 2), 0);
    check_int(aside(ctl), 2);
    FREE(1);
    check_int(reserve_as_acquire(ctl, 4), -ENOMEM);
    check_int(reserve_as_acquire(ctl, 3), 0);
    FREE(0);
    check_int(reserve_as_acquire(ctl, 1), 0);
    check_int(aside(ctl), 1);
    check_int(due(ctl), 0);
    check_int(core->reserved_bytes, GRAIN);
}

TAP_TEST(reserving_so_counts_what_the_store_has_committed_and_that_is_due)
{
    uint64_t ctl = open_ctl(make_committed("weights", NULL), P1);

    FREE(1);
    check_int(acquire_reserving(ctl, 0, P1, 0), 0);
    check_int(reserve_as_acquire(ctl, 2), 0);
    check_int(aside(ctl), 1);
    check_int(due(ctl), 1);
    check_int(core->reserved_bytes, GRAIN);
    FREE(0);
    check_int(reserve_as_acquire(ctl, 3), -ENOMEM);
    check_int(reserve_as_acquire(ctl, 2), 0);
    check_int(due(ctl), 1);
}

TAP_TEST(reserving_to_replace_counts_what_is_committed_before_what_is_free)
{
    uint64_t ctl = open_ctl(make_committed("weights", NULL), P1);
    uint32_t flags = CORE_RESERVE_AS_ACQUIRE | CORE_RESERVE_REPLACING;

    FREE(1);
    check_int(acquire_reserving(ctl, 0, P1, 0), 0);
    check_int(reserve_by(ctl, 1, CORE_RESERVE_REPLACING), -EINVAL);
    check_int(reserve_by(ctl, 3, flags), -ENOMEM);
    check_int(reserve_by(ctl, 1, flags), 0);
    check_int(aside(ctl), 0);
    check_int(due(ctl), 1);
    check_int(reserve_by(ctl, 2, flags), 0);
    check_int(aside(ctl), 1);
    check_int(due(ctl), 1);
}

TAP_TEST(reserving_so_does_not_overtake_who_waits_for_memory)
{
    uint64_t one = open_ctl(make_store("one"), P1), two = open_ctl(make_store("two"), P2);

    FREE(3);
    check_int(acquire_reserving(two, 0, P2, 0), 0);
    uint64_t waiter = must_queue(one, 4, P1);
    check_int(reserve_as_acquire(two, 1), -EAGAIN);
    check_int(reserve_as_acquire(two, 4), -ENOMEM);
    FREE(4);
    check_int(pass(1), 0);
    check(granted(waiter));
    FREE(1);
    check_int(reserve_as_acquire(two, 1), 0);
}

TAP_TEST(unknown_flags_of_a_reservation_are_refused)
{
    uint64_t session = must_open(make_store("weights"), LOCK_WISH_RW, P1);

    FREE(3);
    check_int(apply(RECORD(RESERVE, .session = session, .size_bytes = GRAIN, .flags = 2)), -EINVAL);
}
