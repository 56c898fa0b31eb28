/* SPDX-License-Identifier: Apache-2.0 */
/* The id of a store's contents: it is there while the bytes that were summed are the store's. */
#include "core_fixture.h"

#include "core/core_internal.h"

/* Notes an id of the store's present contents. */
static int note(uint64_t store, uint8_t id)
{
    const struct core_store *found = core_find_store(core, store);

    return apply(RECORD(CONTENTS, .store = store, .count = found->generation,
                        .offset = found->grants_rw, .bytes16 = {id}));
}

static uint64_t contents_of(uint64_t store)
{
    return core_find_store(core, store)->contents;
}

static uint64_t make_noted(const char *name)
{
    uint64_t store = make_committed(name, NULL);

    require(note(store, 7) == 0);
    return store;
}

TAP_TEST(an_id_has_a_number_that_is_never_used_again)
{
    uint64_t store, number;

    store = make_noted("weights");
    number = contents_of(store);
    check(core_find_contents(core, number) == core_find_store(core, store));
    check_int(note(store, 7), 0); /* the same once more */
    check_int(contents_of(store), number);
    check_int(note(store, 8), 0);
    check_int(contents_of(store), number + 1);
    check(core_find_contents(core, number) == NULL);
    check(core_find_contents(core, 0) == NULL);
    check(contents_of(make_noted("others")) > number + 1);
}

TAP_TEST(sums_of_other_contents_give_no_id)
{
    const struct core_store *found;
    struct record record = RECORD(CONTENTS, .bytes16 = {7});

    record.store = start_committed(NULL);
    found = core_find_store(core, record.store);
    record.count = found->generation + 1;
    record.offset = found->grants_rw;
    check_int(apply(record), -ESTALE);
    record.count = found->generation;
    record.offset = found->grants_rw - 1;
    check_int(apply(record), -ESTALE);
    record.store = 4711;
    check_int(apply(record), -ESTALE);
    check_int(note(make_store("empty"), 7), -ESTALE);
    check_int(contents_of(found->id), 0);
}

TAP_TEST(a_writer_hides_the_id_and_takes_it_away_when_it_may_change_bytes)
{
    uint64_t store, session, number;

    store = make_noted("weights");
    number = contents_of(store);
    session = must_open(store, LOCK_WISH_RW, P1);
    check(core_find_contents(core, number) == NULL);
    check_int(note(store, 8), -ESTALE);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(core_find_contents(core, number) != NULL);
    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(of_session(RECORD_TOUCH, session), 0);
    check_int(contents_of(store), 0);
}

TAP_TEST(a_commit_of_the_same_layout_is_another_generation)
{
    uint64_t store, session;

    store = make_noted("weights");
    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(of_session(RECORD_COMMIT, session), 0);
    check_int(contents_of(store), 0);
}

TAP_TEST(the_id_outlives_moves_and_a_rename_and_ends_with_the_bytes)
{
    uint64_t store, number, memory;
    struct record move = RECORD(MOVE_BEGIN, .kind = CORE_PLACE_HOST);

    store = make_noted("weights");
    number = contents_of(store);
    require(apply(named(RECORD(STORE_RENAME, .store = store), "other")) == 0);
    move.store = store;
    memory = next_memory++;
    require(apply(move) == 0);
    require(apply(RECORD(MOVE_END, .store = store, .count = out.id, .memories = &memory,
                         .memory_count = 1)) == 0);
    check(core_find_contents(core, number) != NULL);
    move.kind = CORE_PLACE_NONE;
    require(apply(move) == 0);
    check_int(contents_of(store), 0);
    check_int(note(store, 7), -ESTALE);
}

TAP_TEST(suspect_memory_has_no_id)
{
    uint64_t store;

    store = make_noted("weights");
    require(apply(named(RECORD(HEALTH, .flags = CORE_NOTE_SUSPECT), "Xid 48")) == 0);
    check_int(contents_of(store), 0);
    check_int(note(store, 7), -ESTALE);
    require(apply(RECORD(HEALTH, .flags = CORE_NOTE_TRUST, .store = store)) == 0);
    check_int(note(store, 7), 0);
}

TAP_TEST(sealed_bytes_have_no_id)
{
    uint64_t store, session;

    store = make_store("kv_cache");
    session = must_open(store, LOCK_WISH_RW, P1);
    require(add_memory(session, "kv") == 0);
    require(apply(RECORD(COMMIT, .session = session, .flags = CORE_COMMIT_SEAL)) == 0);
    check_int(note(store, 7), -ESTALE);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(note(store, 7), -ESTALE);
}
