/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed layouts: a shape that outlives its writer, and the next writer of its bytes. */
#include "core_fixture.h"

static int seal(uint64_t session)
{
    return apply(RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_SEAL));
}

static int lend(uint64_t session, struct core_process process)
{
    return apply(RECORD(LEND, .session = session, .process = process));
}

static int exits(struct core_process process)
{
    return apply(RECORD(EXIT, .process = process));
}

/* A store with one sealed allocation and no session; `writer` had its descriptor. */
static uint64_t make_sealed(struct core_process writer)
{
    uint64_t store = make_store("kv_cache");
    uint64_t session = must_open(store, LOCK_WISH_RW, writer), file = out.file;

    require(add_memory(session, "") == 0);
    require(lend(session, writer) == 0);
    require(seal(session) == 0);
    require(close_file(file) == 0);
    return store;
}

static enum lock_mode mode_of(uint64_t session)
{
    const struct core_session *found = core_find_session(core, session);

    return found ? found->mode : LOCK_MODE_NONE;
}

TAP_TEST(sealing_keeps_the_session_and_narrows_it_to_the_bytes)
{
    uint64_t store = make_store("kv_cache"), session = must_open(store, LOCK_WISH_RW, P1);

    require(add_memory(session, "") == 0);
    check_int(seal(session), 0);
    check_int(out.mode, LOCK_MODE_RW_DATA);
    check_int(out.generation, 1);
    check_int(mode_of(session), LOCK_MODE_RW_DATA);
    check_int(state(store), LOCK_STATE_RW);
    check_int(last_event(), CORE_EVENT_SEALED);
    check_int(add_memory(session, ""), -ENOLCK);
    check_int(put_entry(session, "k", LAYOUT_UNBOUND, 0), -ENOLCK);
    check_int(of_session(RECORD_CLEAR, session), -ENOLCK);
    check_int(commit(session), -ENOLCK);
    check_int(seal(session), -ENOLCK);
}

TAP_TEST(an_end_of_rw_data_keeps_everything_however_it_comes)
{
    uint64_t store = make_sealed(P1);
    uint64_t session;

    check_int(state(store), LOCK_STATE_LAYOUT_COMMITTED);
    check_int(last_event(), CORE_EVENT_RW_DATA_DISCONNECTED);
    session = must_open(store, LOCK_WISH_DATA, P1);
    check_int(mode_of(session), LOCK_MODE_RW_DATA);
    check_int(last_event(), CORE_EVENT_RW_DATA_CONNECTED);
    check_int(apply(RECORD(SESSION_END, .session = session, .flags = CORE_END_REVOKED)), 0);
    check_int(state(store), LOCK_STATE_LAYOUT_COMMITTED);
    check_int(layout_count_allocations(core_find_store(core, store)->fixed), 1);
    check_int(count_effects(EFFECT_FREE_MEMORY), 0);
}

TAP_TEST(data_is_a_whole_writer_where_nothing_is_sealed)
{
    uint64_t empty = make_store("empty"), committed = make_committed("weights", NULL);

    check_int(mode_of(must_open(empty, LOCK_WISH_DATA, P1)), LOCK_MODE_RW);
    check_int(mode_of(must_open(committed, LOCK_WISH_DATA, P1)), LOCK_MODE_RW);
}

TAP_TEST(a_whole_writer_begins_with_nothing_where_something_is_sealed)
{
    uint64_t store = make_sealed(P1);

    check_int(mode_of(must_open(store, LOCK_WISH_RW, P2)), LOCK_MODE_RW);
    check_int(count_effects(EFFECT_FREE_MEMORY), 1);
    check(core_find_store(core, store)->fixed == NULL);
    check(!core_is_writer(core, P1));
    check_int(last_event(), CORE_EVENT_RW_CONNECTED);
}

TAP_TEST(readers_wait_for_a_commit_where_something_is_only_sealed)
{
    uint64_t store = make_sealed(P1);

    must_wait(store, LOCK_WISH_RO, P2);
    check_int(mode_of(must_open(store, LOCK_WISH_AUTO, P3)), LOCK_MODE_RW);
}

TAP_TEST(the_bytes_are_handed_on_only_when_who_could_write_them_has_exited)
{
    uint64_t store = make_sealed(P1), waiter = must_wait(store, LOCK_WISH_DATA, P2);

    check_int(pass(PATIENCE_MS), 0);
    check(answer_to(waiter) == NULL);
    check_int(exits(P3), 0);
    check(answer_to(waiter) == NULL);
    check_int(exits(P1), 0);
    check(granted(waiter));
    check_int(mode_of(answer_to(waiter)->session), LOCK_MODE_RW_DATA);
    check(core_find_store(core, store)->writers == NULL); /* no memory is left of them */
}

TAP_TEST(who_may_not_wait_for_an_exit_is_told_to_come_again)
{
    uint64_t store = make_sealed(P1), ctl = open_ctl(store, P2);

    check_int(acquire(ctl, LOCK_WISH_DATA, P2, 0), -EAGAIN);
    check_int(exits(P1), 0);
    check_int(acquire(ctl, LOCK_WISH_DATA, P2, 0), 0);
}

TAP_TEST(the_process_itself_may_take_up_its_bytes_again)
{
    uint64_t store = make_sealed(P1);

    check_int(mode_of(must_open(store, LOCK_WISH_DATA, P1)), LOCK_MODE_RW_DATA);
}

TAP_TEST(who_waits_for_an_exit_holds_off_all_who_come_later)
{
    uint64_t store = make_sealed(P1), waiter = must_wait(store, LOCK_WISH_DATA, P2), rw;

    mirror_is_reborn = true; /* sleep is not part of the state */
    rw = must_wait(store, LOCK_WISH_RW, P3);
    check_int(acquire(open_ctl(store, P3), LOCK_WISH_RW, P3, 0), -EAGAIN);
    check_int(open_lock(store, LOCK_WISH_AUTO, P3), 0);
    check_int(out.session, 0);
    check_int(exits(P1), 0);
    check(granted(waiter));
    check_int(mode_of(answer_to(waiter)->session), LOCK_MODE_RW_DATA);
    check(answer_to(rw) == NULL);
    check_int(layout_count_allocations(core_find_store(core, store)->fixed), 1);
    mirror_is_reborn = false;
}

TAP_TEST(who_waits_for_an_exit_is_passed_when_its_patience_is_over)
{
    uint64_t store = make_sealed(P1), waiter = must_wait(store, LOCK_WISH_DATA, P2), rw;

    rw = must_wait(store, LOCK_WISH_RW, P3);
    check_int(core_next_moment(core, now), now + PATIENCE_MS);
    check_int(pass(PATIENCE_MS - 1), 0);
    check(answer_to(rw) == NULL);
    check_int(pass(1), 0);
    check(granted(rw));
    check(answer_to(waiter) == NULL);
    check(core_find_store(core, store)->fixed == NULL);
}

TAP_TEST(who_waits_for_an_exit_is_passed_by_who_came_before)
{
    uint64_t store = make_store("kv_cache"), session = must_open(store, LOCK_WISH_RW, P1), rw;
    uint64_t waiter, file = out.file;

    require(lend(session, P1) == 0);
    require(seal(session) == 0);
    rw = must_wait(store, LOCK_WISH_RW, P3);
    waiter = must_wait(store, LOCK_WISH_DATA, P2);
    require(close_file(file) == 0);
    check(granted(rw));
    check(answer_to(waiter) == NULL);
}

TAP_TEST(an_adopter_is_a_writer_that_its_successor_waits_for)
{
    uint64_t store = make_sealed(P1), session, file, waiter;

    check_int(exits(P1), 0);
    session = must_open(store, LOCK_WISH_DATA, P2);
    file = out.file;
    check_int(lend(session, P2), 0);
    check_int(out.count, 1);
    check_int(lend(session, P2), 0);
    check_int(out.count, 0);
    require(close_file(file) == 0);
    waiter = must_wait(store, LOCK_WISH_DATA, P3);
    check_int(exits(P2), 0);
    check(granted(waiter));
}

TAP_TEST(what_a_process_out_of_sight_can_write_is_not_sealed)
{
    uint64_t store = make_store("kv_cache"), session = must_open(store, LOCK_WISH_RW, P1);

    require(add_memory(session, "") == 0);
    check_int(lend(session, (struct core_process){0}), 0);
    check_int(seal(session), -EOPNOTSUPP);
    check_int(commit(session), 0);
}

TAP_TEST(a_process_out_of_sight_is_lent_nothing_of_what_is_sealed)
{
    uint64_t session = must_open(make_sealed(P1), LOCK_WISH_DATA, P1);

    check_int(lend(session, (struct core_process){0}), -EOPNOTSUPP);
    check_int(lend(session, P1), 0);
}

TAP_TEST(a_layout_that_could_not_be_committed_is_not_sealed)
{
    uint64_t store = make_store("kv_cache"), session = must_open(store, LOCK_WISH_RW, P1);

    require(apply(RECORD(ALLOC_ADD, .session = session, .count = 1)) == 0);
    check_int(seal(session), -EINVAL);
    check(core_find_store(core, store)->last_error[0] != '\0');
    check_int(mode_of(session), LOCK_MODE_RW);
}

TAP_TEST(what_was_committed_can_be_sealed_and_is_committed_no_more)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1), file = out.file;

    check_int(seal(session), 0);
    require(close_file(file) == 0);
    check_int(state(store), LOCK_STATE_LAYOUT_COMMITTED);
    must_wait(store, LOCK_WISH_RO, P2);
}

TAP_TEST(damaged_bytes_are_not_handed_on)
{
    uint64_t store = make_sealed(P1);

    require(apply(named(RECORD(HEALTH, .flags = CORE_NOTE_SUSPECT), "why")) == 0);
    check_int(open_lock(store, LOCK_WISH_DATA, P1), -EIO);
    check_int(mode_of(must_open(store, LOCK_WISH_RW, P1)), LOCK_MODE_RW);
}

TAP_TEST(an_acquire_may_begin_with_nothing)
{
    uint64_t store = make_committed("weights", NULL), ctl = open_ctl(store, P1);
    struct record record = RECORD(ACQUIRE, .file = ctl, .wish = LOCK_WISH_RW, .process = P1,
                                  .flags = CORE_OPEN_FRESH, .deadline_ms = now);

    check_int(apply(record), 0);
    check_int(count_effects(EFFECT_FREE_MEMORY), 1);
    check_int(core_find_event(core, core->next_event - 2)->type, CORE_EVENT_CLEARED);
    check_int(core_find_event(core, core->next_event - 2)->allocations, 1);
    check_int(of_session(RECORD_SESSION_END, out.session), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
}

/* ---- the fence of a checkpoint -------------------------------------------------------------- */

static int fence(uint32_t flags, const char *name, const char *other, uint8_t token)
{
    struct record record = RECORD(FENCE, .flags = flags, .tag = other, .tag_bytes = strlen(other));

    record.bytes16[5] = token;
    return apply(named(record, name));
}

static int resolve(uint32_t flags, uint8_t token)
{
    return fence(flags, "", "", token);
}

static int create(const char *name)
{
    return apply(named(RECORD(STORE_CREATE, .mode = 0755), name));
}

static int rename_store(uint64_t store, const char *name, uint32_t flags)
{
    return apply(named(RECORD(STORE_RENAME, .store = store, .flags = flags), name));
}

TAP_TEST(nobody_gets_a_session_behind_a_fence_and_other_stores_go_on)
{
    uint64_t weights = make_committed("weights", NULL), kv = make_store("kv_cache");
    uint64_t other = make_committed("other", NULL);

    check_int(fence(CORE_FENCE_ON, "weights", "kv_cache", 1), 0);
    check_int(open_lock(weights, LOCK_WISH_RO, P1), -ENODEV);
    check_int(acquire(open_ctl(kv, P1), LOCK_WISH_RW, P1, LOCK_FOREVER), -ENODEV);
    must_open(other, LOCK_WISH_RO, P1);
    check_int(of_session(RECORD_STORE_REMOVE, 0), -ENOENT);
    check_int(apply(RECORD(STORE_REMOVE, .store = kv)), -EBUSY);
    check_int(rename_store(weights, "w", 0), -EBUSY);
    check_int(resolve(CORE_FENCE_COMPLETE, 1), 0);
    must_open(weights, LOCK_WISH_RO, P1);
}

TAP_TEST(a_store_that_comes_later_gets_no_name_that_is_fenced)
{
    start_committed(NULL);
    uint64_t other = make_committed("other", NULL);

    check_int(fence(CORE_FENCE_ON, "weights", "kv_cache", 1), 0);
    check_int(create("kv_cache"), -EBUSY);
    check_int(create("weights"), -EEXIST);
    check_int(rename_store(other, "kv_cache", 0), -EBUSY);
    check_int(rename_store(other, "weights", RENAME_EXCHANGE), -EBUSY);
    check_int(rename_store(other, "next", 0), 0);
    check_int(create("third"), 0);
    check_int(resolve(CORE_FENCE_ABORT, 1), 0);
    check_int(create("kv_cache"), 0);
}

TAP_TEST(a_fence_is_around_two_names_that_stores_may_have)
{
    start_committed(NULL);
    check_int(fence(CORE_FENCE_ON, "weights", "weights", 1), -EINVAL);
    check_int(fence(CORE_FENCE_ON, "", "weights", 1), -EINVAL);
    check_int(fence(CORE_FENCE_ON, "weights", "a/b", 1), -EINVAL);
    check_int(fence(CORE_FENCE_ON, "weights", "events", 1), -EPERM);
    check_int(fence(CORE_FENCE_ON, "kv_cache", "weights", 1), -ENOENT);
    check_int(fence(CORE_FENCE_ON, "weights", "kv_cache", 1), 0);
}

TAP_TEST(a_fence_is_resolved_by_its_token_alone_and_again_in_the_same_way_only)
{
    start_committed(NULL);
    check_int(resolve(CORE_FENCE_ABORT, 1), -ESTALE);
    check_int(fence(CORE_FENCE_ON, "weights", "", 1), 0);
    check_int(fence(CORE_FENCE_ON, "weights", "", 2), -EBUSY);
    check_int(resolve(CORE_FENCE_ABORT, 2), -EINVAL);
    check_int(resolve(CORE_FENCE_ABORT, 1), 0);
    check_int(resolve(CORE_FENCE_ABORT, 1), 0);
    check_int(resolve(CORE_FENCE_COMPLETE, 1), -ESTALE);
    check_int(resolve(CORE_FENCE_ABORT | CORE_FENCE_COMPLETE, 1), -EINVAL);
}

TAP_TEST(who_waits_to_read_does_not_hold_a_fence_up_and_is_turned_away)
{
    uint64_t kv = make_store("kv_cache"), waiter = must_wait(kv, LOCK_WISH_RO, P1);

    check_int(fence(CORE_FENCE_ON, "kv_cache", "", 1), 0);
    check_int(refused(waiter), -ENODEV);
}

TAP_TEST(what_is_fenced_is_not_drained_and_what_is_drained_not_fenced)
{
    uint64_t store = start_committed(NULL);

    check_int(fence(CORE_FENCE_ON, "weights", "", 1), 0);
    check_int(apply(RECORD(DRAIN, .flags = CORE_DRAIN_ON)), -EBUSY);
    core->draining = true;
    check_int(core_check(core, &(struct failure){0}), -EINVAL);
    core->draining = false;
    check_int(apply(RECORD(DRAIN, .flags = CORE_DRAIN_DROP)), -EINVAL);
    check_int(apply(RECORD(DRAIN)), 0);
    check_int(state(store), LOCK_STATE_COMMITTED);
    check_int(resolve(CORE_FENCE_COMPLETE, 1), 0);
    check_int(apply(RECORD(DRAIN, .flags = CORE_DRAIN_ON)), 0);
    check_int(fence(CORE_FENCE_ON, "weights", "", 2), -ENODEV);
    check_int(apply(RECORD(DRAIN)), 0);
    check_int(fence(CORE_FENCE_ON, "weights", "", 2), 0);
}

TAP_TEST(a_store_in_use_is_not_fenced)
{
    uint64_t store = make_committed("weights", NULL), kv = make_store("kv_cache");

    must_open(store, LOCK_WISH_RO, P1);
    check_int(fence(CORE_FENCE_ON, "weights", "kv_cache", 1), -EBUSY);
    must_open(kv, LOCK_WISH_RW, P1);
    must_wait(kv, LOCK_WISH_RW, P2);
    check_int(fence(CORE_FENCE_ON, "kv_cache", "", 1), -EBUSY);
    check_int(fence(CORE_FENCE_ON, "nobody", "", 1), -ENOENT);
}
