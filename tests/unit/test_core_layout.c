/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of a writer's layout, and the memory that they free. */
#include "core_fixture.h"

#include "core/core_internal.h"

static const struct core_memory *memory_of(uint64_t id)
{
    return core_memory(core, id);
}

/* ---- changes -------------------------------------------------------------------------------- */

TAP_TEST(changes_demand_a_live_writer)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t reader = must_open(store, LOCK_WISH_RO, P1);
    check_int(add_memory(reader, ""), -ENOLCK);
    check_int(put_entry(reader, "k", LAYOUT_UNBOUND, 0), -ENOLCK);
    check_int(remove_allocation(reader, serial), -ENOLCK);
    check_int(of_session(RECORD_CLEAR, reader), -ENOLCK);
    check_int(of_session(RECORD_TOUCH, reader), -ENOLCK);
    check_int(of_session(RECORD_GIVE_UP, reader), -ENOLCK);
    check_int(commit(reader), -ENOLCK);
    check_int(of_session(RECORD_SESSION_END, reader), 0);
    check_int(add_memory(reader, ""), -ESTALE);
    check_int(of_session(RECORD_CLEAR, reader), -ESTALE);
    check_int(commit(reader), -ESTALE);
}

TAP_TEST(the_working_copy_is_made_by_the_first_change_alone)
{
    uint64_t serial, store = start_committed(&serial);
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    const struct core_store *seen = core_find_store(core, store);
    check(seen->working == NULL);
    check_int(remove_allocation(session, serial + 1000), -ENOENT);
    check(seen->working == NULL);
    check_int(put_entry(session, "k", LAYOUT_UNBOUND, 0), 0);
    check(core_find_store(core, store)->working != NULL);
    check_int(memory_of(1)->refs, 2);
    check_int(core_find_allocation(core, serial, NULL)->serial, serial);
}

TAP_TEST(a_batch_has_consecutive_slots_serials_and_names)
{
    uint64_t store, session = start_writer(&store);
    uint64_t memories[3] = {7, 5, 6};
    struct record record =
        named(RECORD(ALLOC_ADD, .session = session, .count = 3, .size_bytes = 10,
                     .aligned_bytes = GRAIN, .memories = memories, .memory_count = 3),
              "chunk98");
    check_int(apply(record), 0);
    uint64_t serial = out.serial;
    check_int(out.slot, 0);
    check_int(out.count, 3);
    check_str(core_find_allocation(core, serial, NULL)->name, "chunk98");
    check_str(core_find_allocation(core, serial + 1, NULL)->name, "chunk99");
    check_str(core_find_allocation(core, serial + 2, NULL)->name, "chunk100");
    check_int(core_find_allocation(core, serial + 2, NULL)->memory, 6);
    check_int(slot_of(serial + 2), 2);
}

TAP_TEST(a_batch_is_all_or_nothing)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "c2"), 0);
    struct record record = named(RECORD(ALLOC_ADD, .session = session, .count = 3), "c0");
    check_int(apply(record), -EEXIST);
    record = named(record, "c");
    check_int(apply(record), -EINVAL); /* no digits to count */
    record = named(record, "");
    record.count = LAYOUT_MAX_ALLOCATIONS + 1;
    check_int(apply(record), -ENOSPC);
    uint64_t twice[2] = {50, 50};
    record.count = 2;
    record.memories = twice;
    record.memory_count = 2;
    record.size_bytes = record.aligned_bytes = GRAIN;
    check_int(apply(record), -EINVAL);
    record.aligned_bytes = UINT64_MAX;
    twice[1] = 51;
    check_int(apply(record), -EINVAL);
    check_int(core->memories.count, 1);
    check_int(layout_count_allocations(core_get_layout(core, core_find_store(core, store))), 1);
}

TAP_TEST(a_batch_by_slot_begins_behind_a_taken_name)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "a000003"), 0);
    check_int(apply(RECORD(ALLOC_ADD, .session = session, .count = 4)), 0);
    uint64_t serial = out.serial;
    check_int(out.slot, 4);
    for (uint64_t i = 0; i < 4; i++)
        check_int(slot_of(serial + i), 4 + i);
    check_str(core_find_allocation(core, serial, NULL)->name, "a000004");
}

static uint64_t serial_of(uint64_t store, const char *wire_id)
{
    const struct layout *layout = core_get_layout(core, core_find_store(core, store));
    const struct layout_allocation *allocation = layout_find_wire_id(layout, wire_id);

    return allocation ? allocation->serial : 0;
}

TAP_TEST(an_allocation_keeps_the_wire_id_that_it_was_added_with)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_wired(session, "", "allocation-1"), 0);
    uint64_t serial = out.serial;
    check_str(core_find_allocation(core, serial, NULL)->name, "a000000");
    check_int(serial_of(store, "allocation-1"), serial);
    check_int(apply(named(RECORD(ALLOC_RENAME, .session = session, .serial = serial), "weights")),
              0);
    check_int(
        apply(RECORD(ALLOC_TAG, .session = session, .serial = serial, .tag = "kv", .tag_bytes = 2)),
        0);
    check_int(commit(session), 0);
    check_int(serial_of(store, "allocation-1"), serial);
    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(set_memory(session, serial, 0, 0, 0), 0);
    check_int(serial_of(store, "allocation-1"), serial);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check(out.rolled_back);
    check_int(serial_of(store, "allocation-1"), serial);
    check_str(core_find_allocation(core, serial, NULL)->name, "weights");
}

TAP_TEST(a_wire_id_is_refused_where_it_is_taken_bad_or_of_many)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_wired(session, "", "allocation-1"), 0);
    check_int(add_wired(session, "", "allocation-1"), -EEXIST);
    check_int(add_wired(session, "", "\xff"), -EINVAL);
    char longer[LAYOUT_MAX_WIRE_ID_BYTES + 2] = "";
    memset(longer, 'x', LAYOUT_MAX_WIRE_ID_BYTES + 1);
    check_int(add_wired(session, "", longer), -EINVAL);
    struct record record = RECORD(ALLOC_ADD, .session = session, .count = 1,
                                  .value = (const uint8_t *)"a\0b", .value_bytes = 3);
    check_int(apply(record), -EINVAL);
    record.value_bytes = 1;
    record.count = 2;
    check_int(apply(record), -EINVAL);
    check_int(core->memories.count, 1);
    record.count = 1;
    check_int(apply(record), 0);
    check_int(serial_of(store, "a"), out.serial);
    longer[LAYOUT_MAX_WIRE_ID_BYTES] = '\0';
    check_int(add_wired(session, "", longer), 0);
}

TAP_TEST(a_wire_id_is_free_for_the_next_layout_and_in_other_stores)
{
    uint64_t store = make_store("weights"), other = make_store("other");
    uint64_t session = must_open(store, LOCK_WISH_RW, P1);
    check_int(add_wired(session, "", "allocation-1"), 0);
    uint64_t serial = out.serial;
    check_int(add_wired(must_open(other, LOCK_WISH_RW, P2), "", "allocation-1"), 0);
    check_int(commit(session), 0);
    session = must_open(store, LOCK_WISH_RW, P1);
    check_int(add_wired(session, "", "allocation-1"), -EEXIST);
    check_int(of_session(RECORD_CLEAR, session), 0);
    check_int(serial_of(store, "allocation-1"), 0);
    check_int(add_wired(session, "", "allocation-1"), 0);
    check(serial_of(store, "allocation-1") > serial);
    check_int(remove_allocation(session, out.serial), 0);
    check_int(add_wired(session, "one", "allocation-1"), 0);
    check_int(add_wired(session, "two", "allocation-2"), 0);
    uint64_t two = out.serial;
    check_int(apply(named(RECORD(ALLOC_RENAME, .session = session, .serial = two), "one")),
              0); /* the other one is gone with its id */
    check_int(serial_of(store, "allocation-1"), 0);
    check_int(serial_of(store, "allocation-2"), two);
    check_int(of_session(RECORD_SESSION_END, session), 0);
    check_int(serial_of(store, "allocation-1"), serial);
}

TAP_TEST(memory_is_given_once)
{
    uint64_t store, session = start_writer(&store);
    check_int(apply(RECORD(ALLOC_ADD, .session = session, .count = 1)), 0);
    uint64_t serial = out.serial;
    check_int(set_memory(session, serial, 10, 0, 0), -EINVAL);
    check_int(set_memory(session, serial, 10, 100, 0), 0);
    check_int(set_memory(session, serial, 11, 100, 0), -EBUSY);
    check_int(set_memory(session, serial, 10, 200, 0), -EBUSY);
    check_int(put_entry(session, "k", slot_of(serial), 0), 0);
    check_int(set_memory(session, serial, 0, 0, 0), 0);
    check(freed(10));
    check_int(core_find_allocation(core, serial, NULL)->bound_entries, 1);
    check_int(set_memory(session, serial, 12, 300, 0), 0);
}

TAP_TEST(memory_of_one_allocation_is_not_given_to_another)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    check_int(apply(RECORD(ALLOC_ADD, .session = session, .count = 1)), 0);
    check_int(set_memory(session, out.serial, 1, 100, 0), -EINVAL);
    check_int(memory_of(1)->refs, 1);
}

TAP_TEST(a_spool_grows_and_ends_and_may_be_replaced)
{
    uint64_t store, session = start_writer(&store);
    check_int(apply(RECORD(ALLOC_ADD, .session = session, .count = 1)), 0);
    uint64_t serial = out.serial;
    check_int(set_memory(session, serial, 10, 0, CORE_MEMORY_SPOOL), 0);
    check_int(set_memory(session, serial, 10, 5000, CORE_MEMORY_SPOOL), 0);
    check_int(layout_total_bytes(core_find_store(core, store)->working), 2 * GRAIN);
    check_int(commit(session), -EINVAL);
    check_int(set_memory(session, serial, 11, 6000, CORE_MEMORY_SPOOL), 0);
    check(freed(10) && !freed(11));
    check_int(set_memory(session, serial, 11, 6000, 0), 0);
    check_int(set_memory(session, serial, 11, 7000, 0), -EBUSY);
    check_int(commit(session), 0);
}

TAP_TEST(rename_replaces_and_noreplace_does_not)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    uint64_t one = out.serial;
    check_int(add_memory(session, "two"), 0);
    uint64_t two = out.serial;
    struct record record = named(
        RECORD(ALLOC_RENAME, .session = session, .serial = one, .flags = 1 /* RENAME_NOREPLACE */),
        "two");
    check_int(apply(record), -EEXIST);
    record.flags = 0;
    check_int(apply(record), 0);
    check(freed(2) && !freed(1));
    check(core_find_allocation(core, two, NULL) == NULL);
    check_str(core_find_allocation(core, one, NULL)->name, "two");
    check_int(apply(record), 0); /* to the name that it has */
    check_int(apply(named(record, "a/b")), -EINVAL);
}

TAP_TEST(tags_are_utf8_of_bounded_length)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    uint64_t one = out.serial;
    struct record record = RECORD(ALLOC_TAG, .session = session, .serial = one);
    record.tag = "weights";
    record.tag_bytes = 7;
    check_int(apply(record), 0);
    check_str(core_find_allocation(core, one, NULL)->tag, "weights");
    record.tag = "\xff";
    record.tag_bytes = 1;
    check_int(apply(record), -EINVAL);
    char longer[256];
    memset(longer, 'x', sizeof longer);
    record.tag = longer;
    record.tag_bytes = sizeof longer;
    check_int(apply(record), -EINVAL);
}

TAP_TEST(removing_an_allocation_removes_its_entries_and_frees_its_memory)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    uint64_t one = out.serial;
    check_int(put_entry(session, "bound", slot_of(one), 0), 0);
    uint64_t entry = out.serial;
    check_int(put_entry(session, "free", LAYOUT_UNBOUND, 0), 0);
    check_int(remove_allocation(session, one), 0);
    check(freed(1));
    check(core_find_entry(core, entry, NULL) == NULL);
    check_int(layout_count_entries(core_find_store(core, store)->working), 1);
}

TAP_TEST(a_renamed_entry_keeps_its_serial_and_replaces_the_other)
{
    uint64_t store, session = start_writer(&store);
    check_int(put_entry(session, "one", LAYOUT_UNBOUND, 3), 0);
    uint64_t one = out.serial;
    check_int(put_entry(session, "two", LAYOUT_UNBOUND, 4), 0);
    uint64_t two = out.serial;
    check(one != two);
    struct record record = named(RECORD(ENTRY_RENAME, .session = session, .serial = one), "two");
    check_int(apply(record), 0);
    check(core_find_entry(core, two, NULL) == NULL);
    check_int(core_find_entry(core, one, NULL)->offset, 3);
    check_int(apply(record), 0);
    check_int(apply(named(record, "")), -EINVAL);
    record.serial = two;
    check_int(apply(record), -ENOENT);
    check_int(apply(named(RECORD(ENTRY_DELETE, .session = session), "one")), -ENOENT);
    check_int(apply(named(RECORD(ENTRY_DELETE, .session = session), "two")), 0);
}

TAP_TEST(many_entries_go_in_as_a_whole_or_not_at_all)
{
    uint64_t store, session = start_writer(&store);
    check_int(add_memory(session, "one"), 0);
    struct layout_put puts[] = {
        {.key = "b", .key_bytes = 1, .slot = 0, .offset = 8, .value = "xy", .value_bytes = 2},
        {.key = "a", .key_bytes = 1, .slot = LAYOUT_UNBOUND},
        {.key = "c", .key_bytes = 1, .slot = 99},
    };
    struct record record = RECORD(ENTRY_PUT_MANY, .session = session);
    uint8_t *bytes;
    require(record_rows_encode(puts, 3, &bytes, &record.value_bytes) == 0);
    record.value = bytes;
    check_int(apply(record), 0);
    check_int(out.count, 2); /* the unknown slot is skipped */
    free(bytes);
    puts[1].key = "\xff";
    require(record_rows_encode(puts, 3, &bytes, &record.value_bytes) == 0);
    record.value = bytes;
    check_int(apply(record), -EINVAL);
    check_int(out.count, 1); /* the culprit */
    record.value_bytes--;
    check_int(apply(record), -EINVAL);
    free(bytes);
    check_int(layout_count_entries(core_find_store(core, store)->working), 2);
}
