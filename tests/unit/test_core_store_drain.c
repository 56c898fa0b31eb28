/* SPDX-License-Identifier: Apache-2.0 */
/* The drain of one store: requests wait, holders continue and are told, nothing is lost. */
#include "core_fixture.h"

static int drain(uint64_t store, uint64_t deadline_ms)
{
    return apply(
        RECORD(STORE_DRAIN, .store = store, .deadline_ms = deadline_ms, .process = P3, .uid = 7));
}

static int serve(uint64_t store)
{
    return apply(RECORD(STORE_SERVE, .store = store));
}

static int try_lock(uint64_t store, enum lock_wish wish)
{
    struct record record = lock_open_record(store, CORE_KIND_LOCK, wish, P1);

    record.flags |= CORE_OPEN_NONBLOCK;
    return apply(record);
}

TAP_TEST(who_asks_for_a_draining_store_waits_and_is_granted_when_it_serves_again)
{
    uint64_t serial, store = start_committed(&serial);

    check_int(drain(store, 0), 0);
    check_int(last_event(), CORE_EVENT_STORE_DRAINING);
    uint64_t reader = must_wait(store, LOCK_WISH_RO, P1),
             either = must_wait(store, LOCK_WISH_AUTO, P2);
    check_int(core_find_store(core, store)->lock.session_count, 0);
    check_int(serve(store), 0);
    check(granted(reader) && granted(either));
    check_int(state(store), LOCK_STATE_RO);
}

TAP_TEST(a_draining_store_is_brought_for_nobody_until_it_serves_again)
{
    uint64_t store = make_demoted("weights"), reader;
    const struct core_store *found = core_find_store(core, store);

    check_int(drain(store, 0), 0);
    reader = must_wait(store, LOCK_WISH_RO, P1);
    check(!core_wants_promotion(core, found));
    check_int(serve(store), 0);
    check(core_wants_promotion(core, found) && !granted(reader));
}

TAP_TEST(who_may_not_wait_for_a_draining_store_is_told_to_try_again)
{
    uint64_t serial, store = start_committed(&serial);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RO, P1);

    record.serial = serial;
    check_int(drain(store, 0), 0);
    check_int(try_lock(store, LOCK_WISH_RO), -EAGAIN);
    check_int(try_lock(store, LOCK_WISH_RW), -EAGAIN);
    check_int(apply(record), -EAGAIN);
    check_int(acquire(open_ctl(store, P1), LOCK_WISH_RW, P1, 0), -EAGAIN);
}

TAP_TEST(holders_go_on_and_are_joined_and_their_end_lets_nobody_in)
{
    uint64_t store = make_store("weights"), session = must_open(store, LOCK_WISH_RW, P1);
    struct record join = RECORD(JOIN, .file = open_ctl(store, P2));

    memcpy(join.bytes16, core_find_session(core, session)->token, 16);
    check_int(drain(store, 0), 0);
    check_int(apply(join), 0);
    check_int(add_memory(session, "a"), 0);
    uint64_t reader = must_wait(store, LOCK_WISH_RO, P3);
    check_int(commit(session), 0);
    check_int(state(store), LOCK_STATE_COMMITTED); /* nothing is discarded */
    check(!granted(reader));
    check_int(serve(store), 0);
    check(granted(reader));
}

TAP_TEST(a_drain_is_of_its_store_alone)
{
    uint64_t one = make_committed("one", NULL), two = make_committed("two", NULL);

    check_int(drain(one, 0), 0);
    must_open(two, LOCK_WISH_RO, P1);
    must_wait(one, LOCK_WISH_RO, P1);
}

TAP_TEST(holders_are_told_the_deadline_by_event_and_by_what_polls_the_state)
{
    uint64_t store = start_committed(NULL);
    uint64_t version = core_find_store(core, store)->version;

    check_int(drain(store, 5000), 0);
    check_int(core_find_event(core, core->next_event - 1)->deadline_ms, 5000);
    check_int(core_find_store(core, store)->drain.deadline_ms, 5000);
    check_int(core_find_store(core, store)->drain.by.uid, 7);
    check(core_find_store(core, store)->version > version);
    version = core_find_store(core, store)->version;
    check_int(drain(store, 9000), 0); /* another deadline */
    check_int(core_find_store(core, store)->drain.deadline_ms, 9000);
    check(core_find_store(core, store)->version > version);
    version = core_find_store(core, store)->version;
    check_int(serve(store), 0);
    check_int(last_event(), CORE_EVENT_STORE_SERVING);
    check_int(core_find_store(core, store)->drain.deadline_ms, 0);
    check(core_find_store(core, store)->version > version);
}

TAP_TEST(a_waiter_still_meets_its_deadline_and_keeps_its_place_while_a_store_drains)
{
    uint64_t store = start_committed(NULL);
    struct record record = lock_open_record(store, CORE_KIND_LOCK, LOCK_WISH_RO, P1);

    record.deadline_ms = now + 100;
    check_int(drain(store, 0), 0);
    check_int(apply(record), 0);
    uint64_t waiter = out.waiter;
    check_int(pass(200), 0);
    check_int(refused(waiter), -ETIMEDOUT);
}

TAP_TEST(a_drained_store_that_nobody_holds_can_be_renamed_and_removed)
{
    uint64_t store = start_committed(NULL);

    check_int(drain(store, 0), 0);
    check_int(apply(named(RECORD(STORE_RENAME, .store = store), "other")), 0);
    must_wait(store, LOCK_WISH_RO, P1);
    check_int(apply(RECORD(STORE_REMOVE, .store = store)), -EBUSY);
    check_int(serve(store), 0);
    uint64_t empty = make_store("empty");
    check_int(drain(empty, 0), 0);
    check_int(apply(RECORD(STORE_REMOVE, .store = empty)), 0);
    check_int(serve(empty), -ENOENT);
    check_int(drain(empty, 0), -ENOENT);
}

TAP_TEST(serving_what_serves_is_nothing)
{
    uint64_t store = make_store("weights"), events = core->next_event;

    check_int(serve(store), 0);
    check_int(core->next_event, events);
}

TAP_TEST(what_is_set_aside_for_others_does_not_wait_for_a_writer_that_a_drain_holds_off)
{
    uint64_t drained = make_store("drained"), other = make_store("other");

    device_free = 4 * GRAIN;
    check_int(drain(drained, 0), 0);
    struct record first =
        RECORD(ACQUIRE, .file = open_ctl(drained, P1), .wish = LOCK_WISH_RW, .process = P1,
               .size_bytes = 4 * GRAIN, .deadline_ms = LOCK_FOREVER);
    struct record second = first;

    check_int(apply(first), 0);
    check(out.waiter != 0);
    second.file = open_ctl(other, P2);
    second.process = P2;
    check_int(apply(second), 0);
    check(out.session != 0);
}

TAP_TEST(a_drain_comes_back_with_the_state)
{
    uint64_t store = start_committed(NULL);
    auto_free uint8_t *bytes = NULL;
    size_t size;
    struct core *back;
    struct failure failure;

    check_int(drain(store, 5000), 0);
    require(core_encode(core, &bytes, &size) == 0);
    require(core_decode(bytes, size, &back, &failure) == 0);
    check(core_find_store(back, store)->drain.is_on && core_find_store(back, store)->lock.closed);
    check_int(core_find_store(back, store)->drain.deadline_ms, 5000);
    check_int(core_find_store(back, store)->drain.by.process.pid, P3.pid);
    core_free(back);
}

TAP_TEST(a_drain_is_found_by_its_token_until_the_store_serves)
{
    static const uint8_t none[16];
    struct record record = RECORD(STORE_DRAIN, .process = P1, .uid = 7, .bytes16 = {5});

    record.store = start_store();
    check_int(drain(make_store("other"), 0), 0);
    check(core_find_drained(core, record.bytes16) == NULL);
    check(core_find_drained(core, none) == NULL);
    check_int(apply(record), 0);
    check(core_find_drained(core, record.bytes16) == core_find_store(core, record.store));
    struct core *back = reborn(core);
    check(core_find_drained(back, record.bytes16) == core_find_store(back, record.store));
    core_free(back);
    record.bytes16[1] = 6; /* another drainer */
    check_int(apply(record), 0);
    check(core_find_drained(core, (const uint8_t[16]){5}) == NULL);
    check(core_find_drained(core, record.bytes16) != NULL);
    check_int(serve(record.store), 0);
    check(core_find_drained(core, record.bytes16) == NULL);
}
