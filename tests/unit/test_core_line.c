/* SPDX-License-Identifier: Apache-2.0 */
/* The one line for the device's memory: stores that are waited for, and locks with memory; and the
 * budgets that stores obey that come to the device. */
#include "core_fixture.h"

static const struct core_store *store_of(uint64_t id)
{
    return core_find_store(core, id);
}

static int begin_move(uint64_t store, enum core_place to)
{
    return apply(RECORD(MOVE_BEGIN, .store = store, .kind = to));
}

static int end_move(uint64_t store)
{
    static uint64_t next_copy = UINT64_C(1) << 40;
    uint64_t memory = next_copy++;

    return apply(RECORD(MOVE_END, .store = store, .count = store_of(store)->places.move.id,
                        .memories = &memory, .memory_count = 1));
}

/* Committed, and at the host. */
static uint64_t make_displaced(const char *name)
{
    uint64_t store = make_committed(name, NULL);

    require(begin_move(store, CORE_PLACE_HOST) == 0 && end_move(store) == 0);
    require(store_of(store)->places.place == CORE_PLACE_HOST);
    return store;
}

static uint64_t must_queue(uint64_t store, uint64_t grains, struct core_process process)
{
    require(acquire_reserving(open_ctl(store, process), grains * GRAIN, process, LOCK_FOREVER) ==
            0);
    require(out.session == 0 && out.waiter != 0);
    return out.waiter;
}

TAP_TEST(a_store_that_is_waited_for_comes_after_one_that_was_before)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    must_wait(two, LOCK_WISH_RO, P1);
    must_wait(one, LOCK_WISH_RO, P2);
    check_int(begin_move(one, CORE_PLACE_DEVICE), -EAGAIN);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(who_waits_a_second_time_for_a_store_stands_where_the_first_one_does)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");
    uint64_t first = must_wait(one, LOCK_WISH_RO, P1);

    must_wait(two, LOCK_WISH_RO, P2);
    must_wait(one, LOCK_WISH_RO, P3);
    check_int(begin_move(two, CORE_PLACE_DEVICE), -EAGAIN);
    check_int(wait_end(first, EINTR, 0), 0);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(a_move_that_nobody_waits_for_is_behind_all)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    must_wait(two, LOCK_WISH_RO, P1);
    check_int(begin_move(one, CORE_PLACE_DEVICE), -EAGAIN);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(a_reservation_does_not_overtake_a_store_that_is_waited_for)
{
    uint64_t one = make_displaced("one"), two = make_store("two");

    must_wait(one, LOCK_WISH_RO, P1);
    check_int(acquire_reserving(open_ctl(two, P2), GRAIN, P2, 0), -EAGAIN);
    uint64_t writer = must_queue(two, 1, P2);
    check_int(pass(1), 0);
    check(!granted(writer));
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
    check(granted(writer));
}

TAP_TEST(a_store_that_is_waited_for_does_not_overtake_a_reservation)
{
    uint64_t one = make_displaced("one"), two = make_store("two");

    device_free = 3 * GRAIN;
    uint64_t writer = must_queue(two, 4, P1);
    must_wait(one, LOCK_WISH_RO, P2);
    check_int(begin_move(one, CORE_PLACE_DEVICE), -EAGAIN);
    device_free = 4 * GRAIN;
    check_int(pass(1), 0);
    check(granted(writer));
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
}

static void set_pool(const char *name, uint64_t min, uint64_t slots)
{
    require(apply(named(RECORD(POOL_SET, .flags = CORE_POOL_MIN | CORE_POOL_SLOTS,
                               .offset = min * GRAIN, .count = slots),
                        name)) == 0);
}

static void join_pool(uint64_t store, const char *name)
{
    require(apply(named(RECORD(STORE_POOL, .store = store), name)) == 0);
}

/* ---- patience -------------------------------------------------------------------------------- */

/* Starts outside of the times in which all waiters hold off later ones. */
static void start_between(void)
{
    core_start();
    now = 5 * PATIENCE_MS;
}

TAP_TEST(who_waits_for_more_than_comes_holds_others_off_for_as_long_as_it_is_patient)
{
    start_between();
    uint64_t store = make_displaced("small"), other = make_displaced("other");

    device_free = 3 * GRAIN;
    uint64_t large = must_queue(make_store("large"), 4, P1),
             small = must_queue(make_store("s"), 1, P2);
    must_wait(store, LOCK_WISH_RO, P3);
    check_int(pass(PATIENCE_MS - 1), 0);
    check(!granted(small));
    check_int(begin_move(other, CORE_PLACE_DEVICE), -EAGAIN);
    check_int(core_next_moment(core, now), now + 1);
    check_int(pass(1), 0);
    check(granted(small) && !granted(large));
    check_int(begin_move(store, CORE_PLACE_DEVICE), 0);
    check_int(begin_move(other, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(who_waits_for_a_store_that_does_not_fit_holds_others_off_no_longer)
{
    start_between();
    uint64_t large = make_displaced("large"), small = make_displaced("small");

    must_wait(large, LOCK_WISH_RO, P1);
    check_int(begin_move(small, CORE_PLACE_DEVICE), -EAGAIN);
    check_int(acquire_reserving(open_ctl(make_store("s"), P2), GRAIN, P2, 0), -EAGAIN);
    check_int(pass(PATIENCE_MS), 0);
    check_int(acquire_reserving(open_ctl(make_store("t"), P2), GRAIN, P2, 0), 0);
    check_int(begin_move(small, CORE_PLACE_DEVICE), 0);
}

/* Small ones come all the time, and none stays for as long as a writer is patient. */
TAP_TEST(who_waits_for_much_is_not_kept_out_by_small_ones_that_come_and_go)
{
    start_between();
    device_free = 3 * GRAIN;
    uint64_t large = must_queue(make_store("large"), 4, P1);

    check_int(pass(PATIENCE_MS), 0);
    check_int(acquire_reserving(open_ctl(make_store("a"), P2), GRAIN, P2, 0), 0);
    check_int(pass(10 * PATIENCE_MS - now % (10 * PATIENCE_MS) - 1), 0);
    check_int(acquire_reserving(open_ctl(make_store("b"), P2), GRAIN, P2, 0), 0);
    check_int(core_next_moment(core, now), now + 1);
    check_int(pass(1), 0);
    check_int(acquire_reserving(open_ctl(make_store("c"), P2), GRAIN, P2, 0), -EAGAIN);
    check_int(pass(PATIENCE_MS - 1), 0);
    uint64_t small = must_queue(make_store("d"), 1, P3);
    device_free = 4 * GRAIN; /* they have gone */
    check_int(pass(0), 0);
    check(granted(large) && !granted(small));
}

TAP_TEST(many_who_wait_in_vain_hold_others_off_at_the_same_times)
{
    start_between();
    device_free = 3 * GRAIN;
    must_queue(make_store("one"), 4, P1);
    check_int(pass(PATIENCE_MS), 0);
    must_queue(make_store("two"), 4, P2);
    check_int(pass(PATIENCE_MS), 0);
    for (unsigned times = 7; times < 10; times++) {
        char name[] = {'s', (char)('0' + times), 0};

        check_int(now / PATIENCE_MS, times);
        check_int(acquire_reserving(open_ctl(make_store(name), P3), GRAIN, P3, 0), 0);
        check_int(pass(PATIENCE_MS), 0);
    }
    check_int(acquire_reserving(open_ctl(make_store("last"), P3), GRAIN, P3, 0), -EAGAIN);
    check_int(pass(PATIENCE_MS), 0);
    check_int(acquire_reserving(open_ctl(make_store("over"), P3), GRAIN, P3, 0), 0);
}

TAP_TEST(what_is_guaranteed_to_a_pool_comes_before_all)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    set_pool("chat", 1, 0);
    join_pool(two, "chat");
    must_wait(one, LOCK_WISH_RO, P1);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(who_lacks_a_slot_of_its_pool_holds_nobody_off_but_in_that)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");
    uint64_t resident = make_committed("resident", NULL);

    set_pool("chat", 0, 1);
    join_pool(one, "chat");
    join_pool(resident, "chat");
    must_wait(one, LOCK_WISH_RO, P1);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(a_store_behind_a_fence_holds_nobody_off)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");
    struct record fence = named(RECORD(FENCE, .flags = CORE_FENCE_ON, .bytes16 = {1}), "one");

    require(apply(fence) == 0);
    open_lock(one, LOCK_WISH_RO, P1);
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
}

/* ---- budgets -------------------------------------------------------------------------------- */

static int check_promotion(uint64_t store, uint64_t free_grains)
{
    return core_check_promotion(core, store_of(store), free_grains * GRAIN);
}

static void set_max(const char *name, uint64_t grains)
{
    require(apply(named(RECORD(POOL_SET, .flags = CORE_POOL_MAX, .size_bytes = grains * GRAIN),
                        name)) == 0);
}

TAP_TEST(a_store_comes_within_the_max_of_its_pool_besides_those_that_are_on_their_way)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    set_max("chat", 1);
    join_pool(one, "chat");
    join_pool(two, "chat");
    check_int(check_promotion(two, 9), 0);
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
    check_int(check_promotion(two, 9), -EDQUOT);
    check_int(apply(RECORD(MOVE_CANCEL, .store = one)), 0);
    check_int(check_promotion(two, 9), 0);
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
    check_int(end_move(one), 0);
    check_int(check_promotion(two, 9), -EDQUOT);
    check_int(begin_move(one, CORE_PLACE_HOST), 0);
    check_int(end_move(one), 0);
    check_int(check_promotion(two, 9), 0);
}

TAP_TEST(a_store_comes_within_the_slots_of_its_pool_besides_those_that_are_on_their_way)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    set_pool("chat", 0, 1);
    join_pool(one, "chat");
    join_pool(two, "chat");
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
    check_int(begin_move(two, CORE_PLACE_DEVICE), -EDQUOT);
    join_pool(two, "default");
    check_int(begin_move(two, CORE_PLACE_DEVICE), 0);
}

TAP_TEST(who_is_on_its_way_counts_in_the_pool_that_it_goes_to)
{
    uint64_t one = make_displaced("one"), two = make_displaced("two");

    set_pool("chat", 0, 1);
    check_int(begin_move(one, CORE_PLACE_DEVICE), 0);
    join_pool(two, "chat");
    check_int(check_promotion(two, 9), 0);
    join_pool(one, "chat");
    check_int(check_promotion(two, 9), -EDQUOT);
    check_int(apply(RECORD(STORE_REMOVE, .store = one)), 0);
    check_int(check_promotion(two, 9), 0);
}

TAP_TEST(a_store_leaves_over_what_other_pools_have_not_used_of_their_min)
{
    uint64_t one = make_displaced("one");

    set_pool("chat", 4, 0);
    check_int(check_promotion(one, 4), 0);
    check_int(check_promotion(one, 3), -EDQUOT);
    join_pool(one, "chat");
    check_int(check_promotion(one, 0), 0);
}

TAP_TEST(who_is_on_its_way_comes_back_from_a_states_bytes)
{
    mirror_is_reborn = true;
    uint64_t one = make_displaced("one");

    set_pool("chat", 0, 1);
    join_pool(one, "chat");
    require(begin_move(one, CORE_PLACE_DEVICE) == 0);
    struct core *back = reborn(core);
    check_int(core_find_pool_name(back, "chat")->coming, 1);
    check_int(core_find_pool_name(back, "chat")->coming_bytes, GRAIN);
    core_free(back);
    mirror_is_reborn = false;
}
