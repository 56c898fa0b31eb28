/* SPDX-License-Identifier: Apache-2.0 */
/* The device's health: suspect memory goes to no new reader, and a lost device holds none. */
#include "core_fixture.h"

static int note(uint32_t flags, uint64_t store, const char *why)
{
    return apply(named(RECORD(HEALTH, .flags = flags, .store = store), why));
}

static int suspect(void)
{
    return note(CORE_NOTE_SUSPECT, 0, "Xid 48");
}

/* A writer frees all memory and commits another layout. */
static void load_anew(uint64_t store)
{
    uint64_t session = must_open(store, LOCK_WISH_RW, P3);

    require(of_session(RECORD_CLEAR, session) == 0);
    require(add_memory(session, "new") == 0);
    require(commit(session) == 0);
}

TAP_TEST(a_suspect_store_refuses_readers_by_any_way_and_lets_a_writer_in)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t ctl = open_ctl(store, P1);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RO, P1);

    record.serial = serial;
    check_int(suspect(), 0);
    check_int(last_event(), CORE_EVENT_SUSPECT);
    check_int(core_get_health(core), CORE_HEALTH_SUSPECT);
    check_str(core->health_reason, "Xid 48");
    check_int(open_lock(store, LOCK_WISH_RO, P1), -EIO);
    check_int(open_lock(store, LOCK_WISH_AUTO, P1), -EIO);
    check_int(acquire(ctl, LOCK_WISH_RO, P1, LOCK_FOREVER), -EIO);
    check_int(acquire(ctl, LOCK_WISH_AUTO, P1, 0), -EIO);
    check_int(apply(record), -EIO);
    must_open(store, LOCK_WISH_RW, P1);
}

TAP_TEST(readers_that_there_are_go_on_and_are_joined)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RO, P1);

    check_int(suspect(), 0);
    check_int(state(store), LOCK_STATE_RO);
    check_int(open_file(store, CORE_KIND_LOCK, 0, CORE_OPEN_READ, session, P1), 0);
    check_int(open_lock(store, LOCK_WISH_RO, P2), -EIO);
}

TAP_TEST(a_reader_that_waits_for_a_writer_is_told_at_its_turn)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    uint64_t before = must_wait(store, LOCK_WISH_RO, P2);

    check_int(suspect(), 0);
    uint64_t after = must_wait(store, LOCK_WISH_AUTO, P3);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(refused(before), -EIO);
    check_int(refused(after), -EIO);
    check_int(core->waiters.count, 0);
}

TAP_TEST(a_reader_that_waits_for_a_load_anew_gets_it)
{
    uint64_t store = start_committed(NULL);

    check_int(suspect(), 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    uint64_t waiter = must_wait(store, LOCK_WISH_RO, P2);
    require(of_session(RECORD_CLEAR, session) == 0);
    require(add_memory(session, "new") == 0);
    check_int(commit(session), 0);
    check(granted(waiter));
    check_int(core_get_health(core), CORE_HEALTH_OK);
    check_str(core->health_reason, "");
}

TAP_TEST(a_kept_place_that_would_be_granted_is_told_too)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    uint64_t waiter = must_wait(store, LOCK_WISH_RO, P2);

    check_int(wait_end(waiter, EINTR, CORE_WAIT_KEEP), 0);
    check_int(suspect(), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(open_lock(store, LOCK_WISH_RO, P2), -EIO);
}

TAP_TEST(a_store_is_clean_when_the_last_memory_of_that_time_is_gone)
{
    uint64_t store = start_committed(NULL);
    uint64_t other = make_committed("other", NULL);

    check_int(suspect(), 0);
    uint64_t later = make_committed("later", NULL); /* was not there then */
    must_open(later, LOCK_WISH_RO, P1);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    require(add_memory(session, "more") == 0);
    check_int(commit(session), 0); /* the old one is still among them */
    check_int(open_lock(store, LOCK_WISH_RO, P2), -EIO);
    load_anew(store);
    must_open(store, LOCK_WISH_RO, P2);
    check_int(core_get_health(core), CORE_HEALTH_SUSPECT);
    check_int(apply(RECORD(STORE_REMOVE, .store = other)), 0);
    check_int(last_event(), CORE_EVENT_HEALTHY);
    check_int(core_get_health(core), CORE_HEALTH_OK);
}

TAP_TEST(what_a_writer_loads_at_that_time_is_suspect_too)
{
    uint64_t store, session = start_writer(&store);

    require(add_memory(session, "a") == 0);
    check_int(suspect(), 0);
    check_int(commit(session), 0);
    check_int(open_lock(store, LOCK_WISH_RO, P2), -EIO);
    load_anew(store);
    must_open(store, LOCK_WISH_RO, P2);
}

TAP_TEST(doubt_where_there_is_no_memory_is_none)
{
    start_store();
    uint64_t events = core->next_event;

    check_int(suspect(), 0);
    check_int(core_get_health(core), CORE_HEALTH_OK);
    check_str(core->health_reason, "");
    check_int(core->next_event, events);
}

TAP_TEST(the_same_news_again_changes_nothing_but_the_reason)
{
    start_committed(NULL);
    check_int(suspect(), 0);
    uint64_t events = core->next_event;

    for (int i = 0; i < 100; i++)
        check_int(note(CORE_NOTE_SUSPECT, 0, "Xid 95"), 0);
    check_int(core->next_event, events);
    check_int(core->suspect, 1);
    check_str(core->health_reason, "Xid 95");
}

TAP_TEST(trust_is_given_to_one_store_or_to_all)
{
    uint64_t one = make_committed("one", NULL), two = make_committed("two", NULL);
    uint64_t three = make_committed("three", NULL);

    check_int(suspect(), 0);
    check_int(note(CORE_NOTE_TRUST, 4711, ""), -ENOENT);
    check_int(note(CORE_NOTE_TRUST, one, ""), 0);
    check_int(last_event(), CORE_EVENT_TRUSTED);
    must_open(one, LOCK_WISH_RO, P1);
    check_int(open_lock(two, LOCK_WISH_RO, P1), -EIO);
    check_int(note(CORE_NOTE_TRUST, 0, ""), 0);
    must_open(two, LOCK_WISH_RO, P1);
    must_open(three, LOCK_WISH_RO, P1);
    check_int(core_get_health(core), CORE_HEALTH_OK);
    check_int(note(CORE_NOTE_TRUST, 0, ""), 0);
    check_int(note(CORE_NOTE_TRUST | CORE_NOTE_LOST, 0, ""), -EINVAL);
    check_int(note(0, 0, ""), -EINVAL);
}

TAP_TEST(a_rollback_to_what_is_suspect_leaves_it_suspect)
{
    uint64_t store = start_committed(NULL);

    check_int(suspect(), 0);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    require(of_session(RECORD_CLEAR, session) == 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(out.rolled_back);
    check_int(open_lock(store, LOCK_WISH_RO, P1), -EIO);
}

TAP_TEST(a_lost_device_grants_nothing_and_empties_stores_with_their_last_session)
{
    uint64_t one = make_committed("one", NULL), two = make_committed("two", NULL);
    uint64_t reader = must_open(two, LOCK_WISH_RO, P1);
    uint64_t waiter = must_wait(two, LOCK_WISH_RW, P2);

    check_int(suspect(), 0);
    check_int(note(CORE_NOTE_LOST, 0, "Xid 79"), 0);
    check_int(core_get_health(core), CORE_HEALTH_LOST);
    check_str(core->health_reason, "Xid 79");
    check_int(refused(waiter), -ENODEV);
    check(freed(1) && !freed(2));
    check_int(state(one), LOCK_STATE_EMPTY);
    check_int(of_session(RECORD_SESSION_END, reader), 0);
    check(freed(2));
    check_int(state(two), LOCK_STATE_EMPTY);
    check_int(core->suspect, 0);
    check_str(core->health_reason, "Xid 79");
    check_int(open_lock(one, LOCK_WISH_RW, P1), -ENODEV);
    check_int(open_lock(one, LOCK_WISH_RO, P1), -ENODEV);
    check_int(acquire(open_ctl(one, P1), LOCK_WISH_AUTO, P1, LOCK_FOREVER), -ENODEV);
    check_int(core_find_store(core, two)->generation, 1);
}

TAP_TEST(on_a_lost_device_nothing_is_committed_and_loss_is_final)
{
    uint64_t store, session = start_writer(&store);

    require(add_memory(session, "a") == 0);
    check_int(note(CORE_NOTE_LOST, 0, "gone"), 0);
    check_int(commit(session), -ENODEV);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
    check(freed(1));
    uint64_t events = core->next_event;
    check_int(note(CORE_NOTE_LOST, 0, "again"), 0);
    check_int(suspect(), 0);
    check_int(note(CORE_NOTE_TRUST, 0, ""), -ENODEV);
    check_str(core->health_reason, "gone");
    check_int(core->next_event, events);
    check_int(apply(named(RECORD(STORE_CREATE), "more")), 0);
}

TAP_TEST(a_long_reason_is_cut)
{
    char why[1000];

    start_committed(NULL);
    memset(why, 'x', sizeof why - 1);
    why[sizeof why - 1] = '\0';
    check_int(note(CORE_NOTE_SUSPECT, 0, why), 0);
    check_int(strlen(core->health_reason), CORE_REASON_BYTES - 1);
}
