/* SPDX-License-Identifier: Apache-2.0 */
/* Commits, rollbacks and GIVE_UP of a writer, and the memory that they free. */
#include "core_fixture.h"

TAP_TEST(commit_publishes_the_canonical_encoding_and_its_hash)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    check_int(commit(session), 0);
    check_int(out.generation, 1);
    const struct core_store *seen = core_find_store(core, store);
    uint8_t *bytes, hash[16];
    size_t size;
    require(layout_encode(seen->fixed, &bytes, &size) == 0);
    layout_hash(bytes, size, hash);
    check_bytes(seen->encoding->bytes, seen->encoding->size, bytes, size);
    check_bytes(seen->hash, 16, hash, 16);
    check_int(state(store), LOCK_STATE_COMMITTED);
    check(core_find_session(core, session) == NULL);
    check(core_is_fixed_memory(core, seen, 1));
    free(bytes);
}

TAP_TEST(an_unchanged_commit_keeps_the_hash_and_raises_the_generation)
{
    uint64_t store = start_committed(NULL);
    uint8_t hash[16];
    memcpy(hash, core_find_store(core, store)->hash, sizeof hash);
    check_int(commit(must_open(store, LOCK_WISH_RW, P1)), 0);
    check_int(out.generation, 2);
    check_bytes(core_find_store(core, store)->hash, 16, hash, 16);
    check_int(count_effects(EFFECT_FREE_MEMORY), 0);
}

TAP_TEST(the_generation_never_goes_back_through_empty)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(of_session(RECORD_TOUCH, session), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(state(store), LOCK_STATE_EMPTY);
    check_int(core_find_store(core, store)->generation, 1);
    check_int(commit(must_open(store, LOCK_WISH_RW, P1)), 0);
    check_int(out.generation, 2);
}

TAP_TEST(a_writer_may_stay_as_a_reader)
{
    uint64_t store, session = start_writer(&store);
    uint64_t reader = must_wait(store, LOCK_WISH_RO, P2);
    check_int(add_memory(session, "one"), 0);
    check_int(apply(RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_STAY)), 0);
    check_int(out.mode, LOCK_MODE_RO);
    check_int(state(store), LOCK_STATE_RO);
    check(granted(reader));
    check_int(core_find_session(core, session)->mode, LOCK_MODE_RO);
    check_int(add_memory(session, "two"), -ENOLCK);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(last_event(), CORE_EVENT_RO_DISCONNECTED);
    check_int(state(store), LOCK_STATE_RO);
}

TAP_TEST(a_group_is_stored_with_the_layout_that_carried_it)
{
    uint64_t store = start_store();
    struct record record = RECORD(COMMIT, .flags = CORE_COMMIT_GROUP);
    memset(record.bytes16, 7, sizeof record.bytes16);
    record.session = must_open(store, LOCK_WISH_RW, P1);
    check_int(apply(record), 0);
    check_bytes(core_find_store(core, store)->group, 16, record.bytes16, 16);
    record.session = must_open(store, LOCK_WISH_RW, P1);
    record.flags = 0;
    check_int(apply(record), 0);
    check_int(core_find_store(core, store)->group[0], 0);
}

TAP_TEST(an_invalid_commit_names_the_culprit_and_changes_nothing_else)
{
    uint64_t store, session = start_writer(&store);
    check_int(apply(named(RECORD(ALLOC_ADD, .session = session, .count = 1), "hollow")), 0);
    uint64_t hollow = out.serial;
    check_int(commit(session), -EINVAL);
    check(strstr(core_find_store(core, store)->last_error, "hollow") != NULL);
    check_int(state(store), LOCK_STATE_RW);
    check_int(core_find_store(core, store)->generation, 0);
    check_int(set_memory(session, hollow, 20, 100, 0), 0);
    check_int(put_entry(session, "outside", slot_of(hollow), GRAIN), 0);
    check_int(commit(session), -EINVAL);
    check(strstr(core_find_store(core, store)->last_error, "outside") != NULL);
    check_int(put_entry(session, "outside", slot_of(hollow), GRAIN - 1), 0);
    check_int(commit(session), 0);
    check_str(core_find_store(core, store)->last_error, "");
}

/* ---- rollback ------------------------------------------------------------------------------- */

TAP_TEST(an_abort_rolls_back_what_did_not_touch_committed_bytes)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(remove_allocation(session, serial), 0);
    check(!freed(1)); /* only the committed layout still holds it */
    check_int(core_count_given_up_bytes(core, core_find_store(core, store)), GRAIN);
    check_int(add_memory(session, "new"), 0);
    check(!core_is_fixed_memory(core, core_find_store(core, store), 2));
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(out.rolled_back);
    check(freed(2) && !freed(1));
    check_int(state(store), LOCK_STATE_COMMITTED);
    check_int(last_event(), CORE_EVENT_ROLLED_BACK);
    check(core_find_allocation(core, serial, NULL) != NULL);
}

TAP_TEST(an_abort_after_a_touch_leads_to_empty)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(of_session(RECORD_TOUCH, session), 0);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(!out.rolled_back);
    check(freed(1));
    check_int(state(store), LOCK_STATE_EMPTY);
    check_int(last_event(), CORE_EVENT_ABORTED);
    check(core_find_store(core, store)->encoding == NULL);
    must_wait(store, LOCK_WISH_RO, P2);
}

TAP_TEST(giving_up_frees_what_only_a_rollback_would_need)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(add_memory(session, "new"), 0);
    check_int(remove_allocation(session, serial), 0);
    check_int(of_session(RECORD_GIVE_UP, session), 0);
    check(freed(1) && !freed(2));
    check_int(core_count_given_up_bytes(core, core_find_store(core, store)), 0);
    check_int(commit(session), 0);
    check_int(out.generation, 2);
    check(core_find_allocation(core, serial, NULL) == NULL);
}

TAP_TEST(giving_up_before_any_change_keeps_what_the_writer_sees)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check(core_is_fixed_memory(core, core_find_store(core, store), 1));
    check_int(of_session(RECORD_GIVE_UP, session), 0);
    check(!freed(1));
    check(!core_is_fixed_memory(core, core_find_store(core, store), 1));
    check(core_find_allocation(core, serial, NULL) != NULL);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(freed(1));
    check_int(state(store), LOCK_STATE_EMPTY);
}

TAP_TEST(clear_empties_the_working_copy_and_commit_frees_the_old)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(add_memory(session, "new"), 0);
    check_int(of_session(RECORD_CLEAR, session), 0);
    check(freed(2) && !freed(1));
    check_int(add_memory(session, "newer"), 0);
    check_int(out.slot, 2); /* slots are not used again within a layout */
    check_int(out.rank, 0);
    check_int(commit(session), 0);
    check(freed(1));
    check_int(core->memories.count, 1);
}

static int add_hollow(uint64_t session, const char *name)
{
    return apply(named(RECORD(ALLOC_ADD, .session = session, .count = 1), name));
}

TAP_TEST(a_commit_can_be_tried_without_being_made)
{
    uint64_t store = start_committed(NULL);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    uint64_t generation = core_find_store(core, store)->generation;
    struct record check =
        RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_CHECK | CORE_COMMIT_STAY);

    check_int(apply(check), 0);
    check_int(state(store), LOCK_STATE_RW);
    check_int(core_find_store(core, store)->generation, generation);
    require(add_hollow(session, "hollow") == 0);
    check_int(apply(check), -EINVAL);
    check(strstr(core_find_store(core, store)->last_error, "hollow") != NULL);
    check_int(state(store), LOCK_STATE_RW);
    check.flags = 8;
    check_int(apply(check), -EINVAL);
}

TAP_TEST(a_commit_that_the_caller_refuses_notes_why_and_changes_nothing_else)
{
    uint64_t store = make_store("weights"), session = must_open(store, LOCK_WISH_RW, P1);
    struct record refusal = RECORD(COMMIT, .session = session, .count = EBUSY);

    require(add_memory(session, "w") == 0);
    check_int(apply(named(refusal, "its memory is mapped")), -EBUSY);
    check_int(out.noted, 1);
    check_str(core_find_store(core, store)->last_error, "its memory is mapped");
    check_int(state(store), LOCK_STATE_RW);
    refusal.count = 0;
    check_int(apply(named(refusal, "without an errno")), -EINVAL);
    check_int(commit(session), 0);
    check_str(core_find_store(core, store)->last_error, "");
}

TAP_TEST(what_is_still_spooled_passes_a_check)
{
    uint64_t store, session = start_writer(&store);
    struct record check = RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_CHECK);

    require(add_hollow(session, "spool") == 0);
    check_int(apply(RECORD(ALLOC_MEMORY, .session = session, .serial = out.serial, .memory = 99,
                           .size_bytes = 1, .aligned_bytes = GRAIN, .flags = CORE_MEMORY_SPOOL)),
              0);
    check_int(apply(check), 0);
    check.flags = 0;
    check_int(apply(check), -EINVAL);
}
