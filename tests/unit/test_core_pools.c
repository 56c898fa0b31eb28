/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of stores, holds, and the time of last use. */
#include "core_fixture.h"

#define FREE(grains) (device_free = (uint64_t)(grains)*GRAIN)
#define OWNER        7u

/* A pool with these limits; 0: none is said. */
static int set_pool(const char *name, uint64_t min_grains, uint64_t max_grains, uint64_t slots)
{
    struct record record =
        RECORD(POOL_SET,
               .flags = (min_grains ? CORE_POOL_MIN : 0) | (max_grains ? CORE_POOL_MAX : 0) |
                        (slots ? CORE_POOL_SLOTS : 0),
               .offset = min_grains * GRAIN, .size_bytes = max_grains * GRAIN, .count = slots);

    return apply(named(record, name));
}

static int remove_pool(const char *name)
{
    return apply(named(RECORD(POOL_SET, .flags = CORE_POOL_REMOVE), name));
}

static int join_pool(uint64_t store, const char *name)
{
    return apply(named(RECORD(STORE_POOL, .store = store), name));
}

static uint64_t make_in(const char *name, const char *pool)
{
    uint64_t store = make_store(name);

    require(join_pool(store, pool) == 0);
    return store;
}

static const struct core_use *use_of(uint64_t store)
{
    return &core_find_store(core, store)->use;
}

static uint64_t used_of(const char *pool)
{
    return core_find_pool_name(core, pool)->used_bytes / GRAIN;
}

/* Records the session's charge, with `grains` of memory being made. */
static int make_bytes(uint64_t session, uint64_t grains)
{
    const struct core_session *held = core_find_session(core, session);

    return apply(RECORD(RESERVE, .session = session, .size_bytes = held->reserved_bytes,
                        .count = held->due_bytes, .offset = grains * GRAIN));
}

static uint64_t must_queue(uint64_t file, uint64_t grains)
{
    require(acquire_reserving(file, grains * GRAIN, P1, LOCK_FOREVER) == 0);
    require(out.session == 0 && out.waiter != 0);
    return out.waiter;
}

TAP_TEST(every_store_is_in_the_default_pool_which_always_stays)
{
    uint64_t store = start_store();
    check_str(core_find_pool(core, core_find_store(core, store))->name, "default");
    check_int(remove_pool("default"), -EBUSY);
    check_int(set_pool("default", 0, 4, 0), 0);
    check_int(core->pools.items.count, 1);
    check_int(core_find_pool_name(core, "default")->max_bytes, 4 * GRAIN);
}

TAP_TEST(a_pool_is_made_changed_and_removed_when_no_store_is_in_it)
{
    uint64_t store = start_store();
    check_int(join_pool(store, "chat"), -ENOENT);
    check_int(set_pool("chat", 2, 8, 0), 0);
    check_int(join_pool(store, "chat"), 0);
    check_int(remove_pool("chat"), -EBUSY);
    check_int(set_pool("chat", 0, 0, 3), 0);
    check_int(core_find_pool_name(core, "chat")->slots, 3);
    check_int(core_find_pool_name(core, "chat")->min_bytes, 2 * GRAIN);
    check_int(join_pool(store, "default"), 0);
    check_int(remove_pool("chat"), 0);
    check_int(remove_pool("chat"), -ENOENT);
}

TAP_TEST(names_and_budgets_that_are_none_are_refused)
{
    static const char *const wrong[] = {"", "-", "-x", "a b", "a=b", "a\"b", "\xc3\xa4", "#x"};
    char longest[CORE_POOL_NAME_BYTES + 1];

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_int(set_pool(wrong[i], 0, 1, 0), -EINVAL);
    memset(longest, 'x', sizeof longest);
    longest[CORE_POOL_NAME_BYTES] = '\0';
    check_int(set_pool(longest, 0, 1, 0), -EINVAL);
    longest[CORE_POOL_NAME_BYTES - 1] = '\0';
    check_int(set_pool(longest, 0, 1, 0), 0);
    check_int(set_pool("chat", 5, 4, 0), -EINVAL);
    struct record record = RECORD(POOL_SET, .flags = CORE_POOL_SM, .mode = 101);
    check_int(apply(named(record, "chat")), -EINVAL);
    record = RECORD(POOL_SET, .flags = CORE_POOL_CLASS, .kind = POOL_CLASS_COUNT);
    check_int(apply(named(record, "chat")), -EINVAL);
    check(core_find_pool_name(core, "chat") == NULL);
}

TAP_TEST(too_many_pools_are_enospc)
{
    char name[16];

    for (unsigned i = 1; i < CORE_MAX_POOLS; i++) {
        snprintf(name, sizeof name, "p%u", i);
        require(set_pool(name, 0, 0, 0) == 0);
    }
    check_int(set_pool("more", 0, 0, 0), -ENOSPC);
    check_int(set_pool("p1", 0, 1, 0), 0);
}

TAP_TEST(beyond_the_max_is_edquot_and_beyond_the_device_enomem)
{
    require(set_pool("chat", 0, 4, 0) == 0);
    uint64_t ctl = open_ctl(make_in("weights", "chat"), P1);
    FREE(3);
    check_int(acquire_reserving(ctl, 5 * GRAIN, P1, LOCK_FOREVER), -EDQUOT);
    check_int(out.pool, core_find_pool_name(core, "chat")->id);
    check_int(acquire_reserving(ctl, 4 * GRAIN, P1, 0), -ENOMEM);
    check_int(acquire_reserving(ctl, 3 * GRAIN, P1, 0), 0);
    uint64_t session = out.session;
    check_int(used_of("chat"), 3);
    check_int(make_bytes(session, 2), -EDQUOT);
    check_int(make_bytes(session, 1), 0);
    check_int(used_of("chat"), 4);
}

TAP_TEST(what_is_being_made_becomes_the_layouts_and_counts_once)
{
    uint64_t memory = 77;

    require(set_pool("chat", 0, 4, 0) == 0);
    uint64_t store = make_in("weights", "chat");
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    require(make_bytes(session, 4) == 0);
    struct record add = RECORD(ALLOC_ADD, .session = session, .count = 1, .size_bytes = GRAIN,
                               .aligned_bytes = 4 * GRAIN, .memories = &memory, .memory_count = 1,
                               .offset = 5 * GRAIN);
    check_int(apply(add), -EINVAL);
    add.offset = 4 * GRAIN;
    check_int(apply(add), 0);
    check_int(used_of("chat"), 4);
    check_int(make_bytes(session, 1), -EDQUOT);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(used_of("chat"), 0);
    check_int(core_find_pool_name(core, "chat")->resident, 0);
}

TAP_TEST(what_a_pool_has_not_used_of_its_min_is_no_other_pools)
{
    require(set_pool("chat", 6, 0, 0) == 0);
    uint64_t own = open_ctl(make_in("weights", "chat"), P1);
    uint64_t other = open_ctl(make_store("other"), P2);
    FREE(10);
    check_int(acquire_reserving(other, 5 * GRAIN, P2, 0), -EDQUOT);
    check_int(acquire_reserving(other, 4 * GRAIN, P2, 0), 0);
    FREE(6);
    check_int(acquire_reserving(own, 6 * GRAIN, P1, 0), 0);
}

TAP_TEST(slots_count_the_stores_that_use_memory)
{
    require(set_pool("adapters", 0, 0, 2) == 0);
    uint64_t one = make_in("one", "adapters"), two = make_in("two", "adapters");
    uint64_t three = make_in("three", "adapters");
    uint64_t first = must_open(one, LOCK_WISH_RW, P1);
    require(make_bytes(first, 1) == 0);
    require(make_bytes(must_open(two, LOCK_WISH_RW, P2), 1) == 0);
    uint64_t third = must_open(three, LOCK_WISH_RW, P3);
    check_int(make_bytes(third, 1), -EDQUOT);
    check_int(make_bytes(first, 2), 0);
    check_int(of_session(RECORD_SESSION_END, first), 0);
    check_int(make_bytes(third, 1), 0);
}

TAP_TEST(a_limit_that_is_lowered_below_the_use_takes_nothing)
{
    require(set_pool("chat", 0, 8, 0) == 0);
    uint64_t store = make_committed("weights", NULL);
    require(join_pool(store, "chat") == 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    require(make_bytes(session, 3) == 0);
    check_int(used_of("chat"), 4);
    check_int(set_pool("chat", 0, 1, 0), 0);
    check_int(used_of("chat"), 4);
    check_int(make_bytes(session, 4), -EDQUOT);
    check_int(make_bytes(session, 2), 0);
    check_int(state(store), LOCK_STATE_RW);
}

TAP_TEST(a_store_takes_what_it_uses_to_another_pool_that_has_room)
{
    require(set_pool("narrow", 0, 1, 0) == 0);
    require(set_pool("wide", 0, 9, 0) == 0);
    uint64_t store = make_in("weights", "wide");
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    require(make_bytes(session, 2) == 0);
    check_int(join_pool(store, "narrow"), -EDQUOT);
    check_int(used_of("wide"), 2);
    require(make_bytes(session, 1) == 0);
    check_int(join_pool(store, "narrow"), 0);
    check_int(used_of("wide"), 0);
    check_int(used_of("narrow"), 1);
}

TAP_TEST(who_waits_for_its_pool_is_granted_when_that_has_room)
{
    require(set_pool("chat", 0, 4, 0) == 0);
    uint64_t one = open_ctl(make_in("one", "chat"), P1);
    uint64_t two = open_ctl(make_in("two", "chat"), P2);
    require(acquire_reserving(one, 3 * GRAIN, P1, 0) == 0);
    uint64_t session = out.session, waiter = must_queue(two, 2);
    check_int(pass(1), 0);
    check(!granted(waiter));
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(granted(waiter));
}

TAP_TEST(who_waits_for_its_pool_holds_nobody_off_but_in_that)
{
    require(set_pool("chat", 0, 4, 0) == 0);
    uint64_t one = open_ctl(make_in("one", "chat"), P1);
    uint64_t two = open_ctl(make_in("two", "chat"), P2);
    uint64_t three = open_ctl(make_in("three", "chat"), P3);
    uint64_t other = open_ctl(make_store("other"), P3);
    require(acquire_reserving(one, 3 * GRAIN, P1, 0) == 0);
    must_queue(two, 2);
    check_int(acquire_reserving(other, 5 * GRAIN, P3, 0), 0);
    check_int(acquire_reserving(three, 1 * GRAIN, P3, 0), -EAGAIN);
}

TAP_TEST(what_is_guaranteed_waits_behind_nobody)
{
    require(set_pool("chat", 4, 0, 0) == 0);
    uint64_t own = open_ctl(make_in("weights", "chat"), P1);
    uint64_t other = open_ctl(make_store("other"), P2);
    FREE(6);
    must_queue(other, 5);
    check_int(acquire_reserving(own, 4 * GRAIN, P1, 0), 0);
}

/* ---- promotions in progress ----------------------------------------------------------------- */

static void begin_move(uint64_t store, enum core_place to)
{
    require(apply(RECORD(MOVE_BEGIN, .store = store, .kind = (uint32_t)to)) == 0);
}

static int end_move(uint64_t store)
{
    static uint64_t memory = 1000;

    memory++;
    return apply(RECORD(MOVE_END, .store = store,
                        .count = core_find_store(core, store)->places.move.id, .memories = &memory,
                        .memory_count = 1));
}

/* Of one grain, beside the device. */
static uint64_t make_displaced(const char *name, const char *pool)
{
    uint64_t store = make_committed(name, NULL);

    begin_move(store, CORE_PLACE_HOST);
    require(end_move(store) == 0);
    require(join_pool(store, pool) == 0);
    return store;
}

TAP_TEST(what_comes_to_the_device_leaves_others_of_its_pool_less_from_its_begin)
{
    require(set_pool("chat", 0, 3, 0) == 0);
    uint64_t coming = make_displaced("coming", "chat"), ctl = open_ctl(make_in("w", "chat"), P1);
    begin_move(coming, CORE_PLACE_DEVICE);
    check_int(acquire_reserving(ctl, 3 * GRAIN, P1, 0), -EDQUOT);
    check_int(acquire_reserving(ctl, 2 * GRAIN, P1, 0), 0);
    check_int(make_bytes(out.session, 1), -EDQUOT);
    check_int(end_move(coming), 0);
    check_int(used_of("chat"), 3);
    check_int(core_find_pool_name(core, "chat")->coming_bytes, 0);
}

TAP_TEST(what_does_not_come_after_all_is_others_again)
{
    require(set_pool("chat", 0, 3, 0) == 0);
    uint64_t coming = make_displaced("coming", "chat"), ctl = open_ctl(make_in("w", "chat"), P1);
    begin_move(coming, CORE_PLACE_DEVICE);
    check_int(apply(RECORD(MOVE_CANCEL, .store = coming)), 0);
    check_int(acquire_reserving(ctl, 3 * GRAIN, P1, 0), 0);
}

TAP_TEST(a_slot_is_taken_from_the_begin_of_the_way_to_the_device)
{
    require(set_pool("adapters", 0, 0, 1) == 0);
    uint64_t coming = make_displaced("coming", "adapters");
    uint64_t session = must_open(make_in("w", "adapters"), LOCK_WISH_RW, P1);
    begin_move(coming, CORE_PLACE_DEVICE);
    check_int(make_bytes(session, 1), -EDQUOT);
    check_int(end_move(coming), 0);
    check_int(core_find_pool_name(core, "adapters")->resident, 1);
}

TAP_TEST(a_store_takes_what_comes_of_it_to_another_pool_that_has_room)
{
    require(set_pool("wide", 0, 9, 0) == 0);
    require(set_pool("full", 0, 1, 0) == 0);
    uint64_t store = make_displaced("weights", "wide");
    require(make_bytes(must_open(make_in("other", "full"), LOCK_WISH_RW, P1), 1) == 0);
    begin_move(store, CORE_PLACE_DEVICE);
    check_int(join_pool(store, "full"), -EDQUOT);
    check_int(join_pool(store, "default"), 0);
    check_int(core_find_pool_name(core, "wide")->coming, 0);
    check_int(core_find_pool_name(core, "default")->coming_bytes, GRAIN);
}

TAP_TEST(what_comes_fills_its_pools_min_and_costs_others_nothing_twice)
{
    require(set_pool("chat", 1, 0, 0) == 0);
    uint64_t coming = make_displaced("coming", "chat"), ctl = open_ctl(make_store("other"), P1);
    FREE(2);
    check_int(acquire_reserving(ctl, 2 * GRAIN, P1, 0), -EDQUOT);
    begin_move(coming, CORE_PLACE_DEVICE);
    FREE(1);
    check_int(acquire_reserving(ctl, 1 * GRAIN, P1, 0), 0);
}

TAP_TEST(a_writer_that_replaces_what_comes_has_the_room_of_that)
{
    require(set_pool("chat", 0, 3, 0) == 0);
    uint64_t coming = make_displaced("coming", "chat");
    begin_move(coming, CORE_PLACE_DEVICE);
    struct record acquire =
        RECORD(ACQUIRE, .file = open_ctl(coming, P1), .wish = LOCK_WISH_RW, .size_bytes = 3 * GRAIN,
               .flags = CORE_OPEN_REPLACE, .process = P1);
    check_int(apply(acquire), 0);
    check(out.session != 0);
    check_int(core_find_store(core, coming)->places.move.id, 0);
    check_int(used_of("chat"), 3);
}

TAP_TEST(what_comes_is_counted_anew_from_a_states_bytes)
{
    mirror_is_reborn = true;
    require(set_pool("chat", 2, 8, 3) == 0);
    begin_move(make_displaced("coming", "chat"), CORE_PLACE_DEVICE);
    struct core *back = reborn(core);
    check_int(core_find_pool_name(back, "chat")->coming, 1);
    check_int(core_find_pool_name(back, "chat")->coming_bytes, GRAIN);
    check_int(back->pools.unfilled_bytes, core->pools.unfilled_bytes);
    core_free(back);
    mirror_is_reborn = false;
}

/* ---- holds ---------------------------------------------------------------------------------- */

TAP_TEST(last_use_is_the_end_of_the_last_hold)
{
    uint64_t store = start_committed(NULL);
    uint64_t loaded_ms = use_of(store)->last_used_ms;
    check(loaded_ms == 1700000000000u + now);
    pass(50);
    uint64_t one = must_open(store, LOCK_WISH_RO, P1), two = must_open(store, LOCK_WISH_RO, P2);
    check_int(use_of(store)->holds, 2);
    pass(100);
    check_int(of_session(RECORD_SESSION_END, one), 0);
    check_int(use_of(store)->last_used_ms, loaded_ms);
    pass(100);
    check_int(of_session(RECORD_SESSION_END, two), 0);
    check_int(use_of(store)->last_used_ms, loaded_ms + 250);
    check_int(use_of(store)->holds, 0);
}

TAP_TEST(who_reads_bytes_by_their_path_holds_nothing_until_it_is_handed_descriptors)
{
    uint64_t serial, store = start_committed(&serial);
    struct record open = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RO, P1);
    open.serial = serial;
    require(apply(open) == 0);
    uint64_t file = out.file;
    check_int(use_of(store)->holds, 0);
    struct record ticket = RECORD(TICKET_ADD, .file = file);
    ticket.bytes16[0] = 1;
    check_int(apply(ticket), 0);
    check_int(use_of(store)->holds, 1);
    pass(10);
    check_int(close_file(file), 0);
    check_int(use_of(store)->holds, 0);
    check_int(use_of(store)->last_used_ms, 1700000000000u + now);
}

TAP_TEST(a_pin_is_set_and_taken_off_and_told_each_time_that_it_changes)
{
    uint64_t store = make_store("weights"), before = core->next_event;
    struct record pin = RECORD(STORE_PIN, .store = store, .flags = CORE_PIN_ON, .uid = OWNER);
    check_int(apply(pin), 0);
    check(use_of(store)->pinned);
    check_int(core_find_event(core, before)->type, CORE_EVENT_PINNED);
    check_int(core_find_event(core, before)->uid, OWNER);
    check_int(apply(pin), 0);
    check_int(core->next_event, before + 1);
    pin.flags = 0;
    check_int(apply(pin), 0);
    check(!use_of(store)->pinned);
    check_int(core_find_event(core, before + 1)->type, CORE_EVENT_UNPINNED);
    pin.store = 4711;
    check_int(apply(pin), -ENOENT);
}

TAP_TEST(a_budget_that_was_met_is_told_by_its_name)
{
    uint64_t store = start_store();
    struct record record = RECORD(OVER_QUOTA, .store = store, .uid = OWNER);
    check_int(apply(named(record, "chat")), 0);
    check_str(core_find_event(core, core->next_event - 1)->pool, "chat");
    check_int(apply(named(record, "no name")), -EINVAL);
}

/* ---- bytes ---------------------------------------------------------------------------------- */

TAP_TEST(pools_and_use_come_back_from_a_states_bytes)
{
    mirror_is_reborn = true;
    require(set_pool("chat", 2, 8, 3) == 0);
    struct record class = RECORD(POOL_SET, .flags = CORE_POOL_CLASS | CORE_POOL_SM,
                                 .kind = POOL_CLASS_CRITICAL, .mode = 60);
    require(apply(named(class, "chat")) == 0);
    require(set_pool("gone", 1, 0, 0) == 0 && remove_pool("gone") == 0);
    uint64_t store = make_committed("weights", NULL);
    require(join_pool(store, "chat") == 0);
    require(make_bytes(must_open(store, LOCK_WISH_RW, P1), 2) == 0);
    struct core *back = reborn(core);
    const struct core_pool *pool = core_find_pool_name(back, "chat");
    check_int(pool->used_bytes, 3 * GRAIN);
    check_int(pool->resident, 1);
    check_int(pool->class, POOL_CLASS_CRITICAL);
    check_int(pool->sm_percent, 60);
    check_int(core_find_store(back, store)->use.holds, 1);
    check_int(core_find_store(back, store)->use.last_used_ms, use_of(store)->last_used_ms);
    check_int(back->pools.unfilled_bytes, core->pools.unfilled_bytes);
    core_free(back);
    mirror_is_reborn = false;
}
