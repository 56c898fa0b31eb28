/* SPDX-License-Identifier: Apache-2.0 */
/* Immutable layouts: their bytes never change, and the next writer begins with nothing. */
#include "core_fixture.h"

#include "core/core_internal.h"

static int commit_with(uint64_t session, uint32_t flags)
{
    return apply(RECORD(COMMIT, .session = session, .flags = flags));
}

/* A store with one allocation "w" in an immutable layout and no session. */
static uint64_t make_immutable(const char *name, uint64_t *serial)
{
    uint64_t store = make_store(name), session = must_open(store, LOCK_WISH_RW, P3);

    require(add_memory(session, "w") == 0);
    *serial = out.serial;
    require(commit_with(session, CORE_COMMIT_IMMUTABLE) == 0);
    return store;
}

static const struct layout *layout_of(uint64_t store)
{
    return core_get_layout(core, core_find_store(core, store));
}

static int open_allocation(uint64_t store, uint64_t serial, enum lock_wish wish)
{
    return apply(RECORD(LOCK_OPEN, .store = store, .kind = CORE_KIND_ALLOCATION, .serial = serial,
                        .flags = wish == LOCK_WISH_RO ? CORE_OPEN_READ : RW, .wish = wish,
                        .process = P1, .bytes16 = {99}));
}

TAP_TEST(a_commit_makes_its_layout_immutable_if_it_says_so)
{
    uint64_t serial, store;

    check(!layout_is_immutable(layout_of(make_committed("plain", NULL))));
    store = make_immutable("weights", &serial);
    check(layout_is_immutable(layout_of(store)));
    check_int(state(store), LOCK_STATE_COMMITTED);
}

TAP_TEST(a_sealed_layout_cannot_be_immutable)
{
    uint64_t session = must_open(make_store("kv_cache"), LOCK_WISH_RW, P1);

    check_int(commit_with(session, CORE_COMMIT_IMMUTABLE | CORE_COMMIT_SEAL), -EINVAL);
}

TAP_TEST(a_writer_of_an_immutable_layout_begins_with_nothing_and_it_stays)
{
    uint64_t serial, store, session, slots;

    store = make_immutable("weights", &serial);
    slots = layout_next_slot(layout_of(store));
    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(layout_count_allocations(layout_of(store)), 0);
    check_int(layout_next_slot(layout_of(store)), slots);
    check_int(remove_allocation(session, serial), -ENOENT);
    require(add_memory(session, "w") == 0);
    check(out.serial != serial);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(out.rolled_back, 1);
    check_int(count_effects(EFFECT_FREE_MEMORY), 1);
    check(layout_is_immutable(layout_of(store)));
    check(layout_find_serial(layout_of(store), serial) != NULL);
}

TAP_TEST(a_plain_commit_replaces_an_immutable_layout_by_a_plain_one)
{
    uint64_t serial, store;

    store = make_immutable("weights", &serial);
    check_int(commit(must_open(store, LOCK_WISH_RW, P1)), 0);
    check_int(layout_count_allocations(layout_of(store)), 0);
    check(!layout_is_immutable(layout_of(store)));
    check(freed(1));
}

TAP_TEST(an_allocation_of_an_immutable_layout_is_opened_for_reading_alone)
{
    uint64_t serial, store;

    store = make_immutable("weights", &serial);
    check_int(open_allocation(store, serial, LOCK_WISH_DATA), -EPERM);
    check_int(open_allocation(store, serial, LOCK_WISH_RW), -EPERM);
    check_int(open_allocation(store, serial, LOCK_WISH_RO), 0);
}

TAP_TEST(an_allocation_that_became_immutable_while_its_writer_waited_is_refused)
{
    uint64_t serial, store, session, waiter;

    store = start_committed(&serial);
    session = must_open(store, LOCK_WISH_RW, P1);
    require(apply(RECORD(LOCK_OPEN, .store = store, .kind = CORE_KIND_ALLOCATION, .serial = serial,
                         .flags = RW | CORE_OPEN_GRACE, .wish = LOCK_WISH_DATA, .process = P2,
                         .bytes16 = {98}, .deadline_ms = now + 1000)) == 0);
    waiter = out.waiter;
    require(waiter != 0);
    require(commit_with(session, CORE_COMMIT_IMMUTABLE) == 0);
    check_int(refused(waiter), -EPERM);
}

TAP_TEST(the_unchanged_layout_of_a_plain_store_can_become_immutable)
{
    uint64_t serial, store;

    store = start_committed(&serial);
    check_int(commit_with(must_open(store, LOCK_WISH_RW, P1), CORE_COMMIT_IMMUTABLE), 0);
    check(layout_is_immutable(layout_of(store)));
    check(layout_find_serial(layout_of(store), serial) != NULL);
}

static void move_to(uint64_t store, enum core_place place)
{
    uint64_t memory = next_memory++;

    require(apply(RECORD(MOVE_BEGIN, .store = store, .kind = place)) == 0);
    if (out.id == 0)
        return;
    require(apply(RECORD(MOVE_END, .store = store, .count = out.id, .memories = &memory,
                         .memory_count = 1)) == 0);
}

TAP_TEST(a_layout_stays_immutable_in_every_tier)
{
    uint64_t serial, store;

    store = make_immutable("weights", &serial);
    move_to(store, CORE_PLACE_HOST);
    check(layout_is_immutable(layout_of(store)));
    move_to(store, CORE_PLACE_DISK);
    check(layout_is_immutable(layout_of(store)));
    move_to(store, CORE_PLACE_DEVICE);
    check(layout_is_immutable(layout_of(store)));
    move_to(store, CORE_PLACE_NONE);
    check(layout_is_immutable(layout_of(store)));
}

TAP_TEST(a_writer_of_an_immutable_layout_needs_it_in_no_tier)
{
    uint64_t serial, store;

    must_wait(make_demoted("plain"), LOCK_WISH_RW, P2);
    store = make_immutable("weights", &serial);
    move_to(store, CORE_PLACE_HOST);
    must_open(store, LOCK_WISH_RW, P1);
}

TAP_TEST(a_state_that_could_change_an_immutable_layout_is_noticed)
{
    uint64_t serial, store;
    struct failure failure = {0};
    struct core_store *of;

    store = make_immutable("weights", &serial);
    must_open(store, LOCK_WISH_RW, P1);
    of = core_store(core, store);
    LIE(of->working, NULL);
    layout_set_immutable(of->working);
    check_int(core_check(core, &failure), -EINVAL);
}
