/* SPDX-License-Identifier: Apache-2.0 */
/* Draining: no new sessions, waiters are refused, and committed layouts are dropped at the end. */
#include "core_fixture.h"

static int drain(uint32_t flags)
{
    return apply(RECORD(DRAIN, .flags = flags));
}

TAP_TEST(a_draining_mount_grants_no_session_by_any_way)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t ctl = open_ctl(store, P1);
    struct record record = lock_open_record(store, CORE_KIND_ALLOCATION, LOCK_WISH_RO, P1);

    record.serial = serial;
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(last_event(), CORE_EVENT_DRAINING);
    check_int(open_lock(store, LOCK_WISH_RO, P1), -ENODEV);
    check_int(open_lock(store, LOCK_WISH_AUTO, P1), -ENODEV);
    check_int(acquire(ctl, LOCK_WISH_RW, P1, LOCK_FOREVER), -ENODEV);
    check_int(apply(record), -ENODEV);
    check_int(drain(0), 0);
    check_int(last_event(), CORE_EVENT_SERVING);
    must_open(store, LOCK_WISH_RO, P1);
}

TAP_TEST(who_waits_is_refused_and_kept_places_are_forgotten)
{
    uint64_t store = start_store();
    uint64_t other = make_store("other");

    must_open(store, LOCK_WISH_RW, P1);
    uint64_t waiter = must_wait(store, LOCK_WISH_RW, P2);
    uint64_t reader = must_wait(other, LOCK_WISH_RO, P2);
    uint64_t away = must_wait(other, LOCK_WISH_RO, P3);
    check_int(wait_end(away, EINTR, CORE_WAIT_KEEP), 0);
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(refused(waiter), -ECANCELED);
    check_int(refused(reader), -ECANCELED);
    check_int(refused(away), -EINTR);
    check_int(core->waiters.count, 0);
}

TAP_TEST(sessions_go_on_and_are_joined_while_a_mount_drains)
{
    uint64_t store, session = start_writer(&store);
    uint64_t token_file = open_ctl(store, P2);
    struct record record = RECORD(JOIN, .file = token_file);

    memcpy(record.bytes16, core_find_session(core, session)->token, 16);
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(apply(record), 0);
    check_int(add_memory(session, "a"), 0);
    check_int(drain(CORE_DRAIN_DROP), -EBUSY);
    check_int(commit(session), 0);
    check_int(drain(CORE_DRAIN_DROP), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
}

TAP_TEST(the_end_drops_what_every_store_has_committed_and_keeps_generations)
{
    uint64_t one = make_committed("one", NULL), two = make_committed("two", NULL);

    check_int(drain(CORE_DRAIN_DROP), -EINVAL); /* only of a mount that drains */
    check_int(state(one), LOCK_STATE_COMMITTED);
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(drain(CORE_DRAIN_DROP), 0);
    check_int(last_event(), CORE_EVENT_DROPPED);
    check(freed(1) && freed(2));
    check_int(state(one), LOCK_STATE_EMPTY);
    check_int(state(two), LOCK_STATE_EMPTY);
    check_int(core_find_store(core, one)->generation, 1);
    check_int(drain(CORE_DRAIN_DROP), 0);
}

TAP_TEST(draining_twice_is_once)
{
    start_store();
    uint64_t events = core->next_event;

    check_int(drain(0), 0);
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(drain(CORE_DRAIN_ON), 0);
    check_int(core->next_event, events + 1);
    check_int(drain(CORE_DRAIN_ON | CORE_DRAIN_DROP), -EINVAL);
}

/* ---- its drainer ----------------------------------------------------------------------------- */

static const uint8_t first[16] = {1}, second[16] = {2}, none[16];

static int drain_as(const uint8_t token[16], struct core_process process, uint32_t uid)
{
    struct record record = RECORD(DRAIN, .flags = CORE_DRAIN_ON, .process = process, .uid = uid);

    memcpy(record.bytes16, token, sizeof record.bytes16);
    return apply(record);
}

TAP_TEST(a_drain_is_found_by_its_token_until_the_mount_serves)
{
    check_int(drain_as(first, P1, 7), 0);
    check(core_is_drainer(core, first) && !core_is_drainer(core, second));
    check_int(core->drainer.process.pid, P1.pid);
    check_int(core->drainer.uid, 7);
    struct core *back = reborn(core);
    check(core_is_drainer(back, first));
    check_int(back->drainer.uid, 7);
    core_free(back);
    check_int(drain(0), 0);
    check(!core_is_drainer(core, first));
    check_int(core->drainer.process.pid, 0);
}

TAP_TEST(who_drains_again_is_the_drainer_from_then_on)
{
    check_int(drain_as(first, P1, 7), 0);
    uint64_t events = core->next_event;
    check_int(drain_as(second, P2, 8), 0);
    check(!core_is_drainer(core, first) && core_is_drainer(core, second));
    check_int(core->drainer.process.pid, P2.pid);
    check_int(core->next_event, events);
}

TAP_TEST(nobody_comes_back_for_a_drain_without_a_token)
{
    check(!core_is_drainer(core, none));
    check_int(drain_as(none, P1, 7), 0);
    check(!core_is_drainer(core, none));
}
