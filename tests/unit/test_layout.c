/* SPDX-License-Identifier: Apache-2.0 */
#include "tap.h"

#include "meta/layout.h"

#include <errno.h>
#include <stdlib.h>

#define MIB (1ull << 20)

static uint64_t add(struct layout *layout, uint64_t serial, const char *name)
{
    uint64_t slot = UINT64_MAX;

    require(layout_add(layout, serial, name, "tag", &slot) == 0);
    return slot;
}

/* `serials` allocations with automatic names: slots 0.., serials 100.. */
static struct layout *layout_with(size_t allocations)
{
    struct layout *layout = layout_new();

    require(layout != NULL);
    for (size_t i = 0; i < allocations; i++)
        add(layout, 100 + i, NULL);
    return layout;
}

static struct layout_put make_put(const char *key, uint64_t slot, const char *value,
                                  uint64_t serial)
{
    return (struct layout_put){
        .key = key,
        .key_bytes = strlen(key),
        .slot = slot,
        .offset = 7,
        .value = value,
        .value_bytes = strlen(value),
        .serial = serial,
    };
}

static int put(struct layout *layout, const char *key, uint64_t slot, const char *value,
               uint64_t serial)
{
    struct layout_put one = make_put(key, slot, value, serial);

    return layout_put(layout, &one);
}

static const struct layout_entry *find(const struct layout *layout, const char *key)
{
    return layout_find_entry(layout, key, strlen(key));
}

/* By going through all before it. */
static const struct layout_entry *entry_at(const struct layout *layout, size_t index)
{
    struct layout_cursor cursor;

    layout_cursor_first(&cursor, layout);
    while (index-- > 0)
        layout_cursor_next(&cursor);
    return layout_cursor_next(&cursor);
}

static const struct layout_entry *entry_from(const struct layout *layout, const char *key,
                                             size_t key_bytes)
{
    struct layout_cursor cursor;

    layout_cursor_seek(&cursor, layout, key, key_bytes);
    return layout_cursor_next(&cursor);
}

static void check_value(const struct layout_entry *entry, const char *value)
{
    if (check(entry != NULL))
        check_bytes(entry->value, entry->value_bytes, value, strlen(value));
}

TAP_TEST(a_new_layout_is_empty)
{
    struct layout *layout = layout_with(0);

    check_int(layout_count_allocations(layout), 0);
    check_int(layout_count_entries(layout), 0);
    check_int(layout_next_slot(layout), 0);
    check(layout_at_rank(layout, 0) == NULL);
    check(layout_find_slot(layout, 0, NULL) == NULL);
    check(layout_find_slot(layout, LAYOUT_UNBOUND, NULL) == NULL);
    check(layout_find_serial(layout, 0) == NULL);
    check(layout_find_name(layout, "a000000") == NULL);
    check(entry_at(layout, 0) == NULL);
    check(find(layout, "k") == NULL);
    check(layout_find_entry_serial(layout, 0) == NULL);
    layout_free(layout);
    layout_free(NULL);
}

TAP_TEST(allocations_are_found_by_slot_serial_name_and_rank)
{
    struct layout *layout = layout_with(0);
    const struct layout_allocation *allocation;
    size_t rank = 99;

    check_int(add(layout, 10, "zebra"), 0);
    check_int(add(layout, 20, "ape"), 1);
    check_int(add(layout, 35, "lion"), 2);
    allocation = layout_find_slot(layout, 1, &rank);
    require(allocation != NULL);
    check_str(allocation->name, "ape");
    check_str(allocation->tag, "tag");
    check_int(allocation->memory, LAYOUT_NO_MEMORY);
    check_int(rank, 1);
    check(layout_find_serial(layout, 20) == allocation);
    check(layout_find_name(layout, "ape") == allocation);
    check(layout_at_rank(layout, 1) == allocation);
    check(layout_find_serial(layout, 21) == NULL);
    check(layout_find_name(layout, "ap") == NULL);
    check(layout_find_slot(layout, 3, NULL) == NULL);
    layout_free(layout);
}

TAP_TEST(rank_has_no_gaps_where_slots_have)
{
    struct layout *layout = layout_with(10);
    size_t rank;

    check_int(layout_remove(layout, 0, NULL), 0);
    check_int(layout_remove(layout, 4, NULL), 0);
    check_int(layout_remove(layout, 9, NULL), 0);
    check_int(layout_remove(layout, 4, NULL), -ENOENT);
    check_int(layout_count_allocations(layout), 7);
    check(layout_find_slot(layout, 0, NULL) == NULL);
    check(layout_find_slot(layout, 4, NULL) == NULL);
    check(layout_find_slot(layout, 9, NULL) == NULL);
    for (size_t i = 0; i < 7; i++) {
        uint64_t slot = layout_at_rank(layout, i)->slot;
        check_int(slot, i < 3 ? i + 1 : i + 2);
        check(layout_find_slot(layout, slot, &rank) != NULL && rank == i);
        check(layout_find_serial(layout, 100 + slot) == layout_at_rank(layout, i));
    }
    check_int(add(layout, 200, NULL), 10);
    layout_free(layout);
}

TAP_TEST(automatic_names_follow_the_slot_and_skip_taken_ones)
{
    struct layout *layout = layout_with(1);

    check_str(layout_at_rank(layout, 0)->name, "a000000");
    check_int(add(layout, 200, "a000002"), 1);
    check_int(add(layout, 201, "a000003"), 2);
    check_int(add(layout, 202, NULL), 4);
    check_str(layout_at_rank(layout, 3)->name, "a000004");
    check_int(layout_next_slot(layout), 5);
    layout_free(layout);
}

TAP_TEST(a_bad_addition_is_refused_and_changes_nothing)
{
    struct layout *layout = layout_with(1);
    char text[300];
    uint64_t slot = 77;

    memset(text, 't', sizeof text);
    text[256] = '\0';
    check_int(layout_add(layout, 200, "a000000", "", &slot), -EEXIST);
    check_int(layout_add(layout, 100, "same-serial", "", &slot), -EINVAL);
    check_int(layout_add(layout, 200, "a/b", "", &slot), -EINVAL);
    check_int(layout_add(layout, 200, ".dot", "", &slot), -EINVAL);
    check_int(layout_add(layout, 200, text, "", &slot), -ENAMETOOLONG);
    check_int(layout_add(layout, 200, NULL, text, &slot), -EINVAL);
    check_int(layout_add(layout, 200, NULL, "\xff", &slot), -EINVAL);
    check_int(slot, 77);
    check_int(layout_count_allocations(layout), 1);
    check_int(layout_next_slot(layout), 1);
    text[255] = '\0';
    check_int(layout_add(layout, 200, text, text, &slot), 0);
    check_int(layout_add(layout, 201, NULL, NULL, &slot), 0);
    check_str(layout_find_slot(layout, slot, NULL)->tag, "");
    layout_free(layout);
}

TAP_TEST(allocations_are_bounded)
{
    struct layout *layout = layout_with(LAYOUT_MAX_ALLOCATIONS);

    check_int(layout_add(layout, 1000000, NULL, "", NULL), -ENOSPC);
    check_int(layout_remove(layout, 5, NULL), 0);
    check_int(layout_add(layout, 1000000, NULL, "", NULL), 0);
    check_int(layout_at_rank(layout, LAYOUT_MAX_ALLOCATIONS - 1)->slot, LAYOUT_MAX_ALLOCATIONS);
    layout_free(layout);
}

TAP_TEST(rename_keeps_everything_but_the_name)
{
    struct layout *layout = layout_with(3);
    const struct layout_allocation *renamed;

    check_int(layout_set_memory(layout, 1, 5, 10, 2 * MIB, false), 0);
    check_int(layout_rename(layout, 1, "0first"), 0);
    renamed = layout_find_name(layout, "0first");
    require(renamed != NULL);
    check(layout_find_name(layout, "a000001") == NULL);
    check(layout_find_slot(layout, 1, NULL) == renamed);
    check(layout_find_serial(layout, 101) == renamed);
    check_int(renamed->memory, 5);
    check_str(renamed->tag, "tag");
    check(layout_find_name(layout, "a000000") != NULL);
    check(layout_find_name(layout, "a000002") != NULL);
    check_int(layout_rename(layout, 1, "zlast"), 0);
    check(layout_find_name(layout, "zlast") == layout_at_rank(layout, 1));
    layout_free(layout);
}

TAP_TEST(rename_to_a_taken_bad_or_its_own_name)
{
    struct layout *layout = layout_with(2);

    check_int(layout_rename(layout, 0, "a000001"), -EEXIST);
    check_int(layout_rename(layout, 0, "a000000"), 0);
    check_int(layout_rename(layout, 0, "."), -EINVAL);
    check_int(layout_rename(layout, 9, "x"), -ENOENT);
    check_str(layout_at_rank(layout, 0)->name, "a000000");
    layout_free(layout);
}

TAP_TEST(a_tag_is_set_in_both_orders_and_checked)
{
    struct layout *layout = layout_with(2);

    check_int(layout_set_tag(layout, 1, "kv-cache"), 0);
    check_str(layout_find_name(layout, "a000001")->tag, "kv-cache");
    check_str(layout_find_slot(layout, 1, NULL)->tag, "kv-cache");
    check_int(layout_set_tag(layout, 1, "\xc0\x80"), -EINVAL);
    check_int(layout_set_tag(layout, 2, ""), -ENOENT);
    check_str(layout_find_slot(layout, 1, NULL)->tag, "kv-cache");
    layout_free(layout);
}

TAP_TEST(memory_counts_in_the_total_and_can_be_taken_away)
{
    struct layout *layout = layout_with(3);

    check_int(layout_set_memory(layout, 0, 1, 5, 2 * MIB, false), 0);
    check_int(layout_set_memory(layout, 2, 2, 3 * MIB, 4 * MIB, true), 0);
    check_int(layout_total_bytes(layout), 6 * MIB);
    check(layout_at_rank(layout, 2)->spool);
    check_int(layout_set_memory(layout, 2, 3, 5 * MIB, 6 * MIB, false), 0);
    check_int(layout_total_bytes(layout), 8 * MIB);
    check_int(layout_set_memory(layout, 0, LAYOUT_NO_MEMORY, 0, 0, false), 0);
    check_int(layout_total_bytes(layout), 6 * MIB);
    check_int(layout_remove(layout, 2, NULL), 0);
    check_int(layout_total_bytes(layout), 0);
    check_int(layout_set_memory(layout, 2, 3, 1, 1, false), -ENOENT);
    layout_free(layout);
}

TAP_TEST(memory_smaller_than_its_size_or_beyond_counting_is_refused)
{
    struct layout *layout = layout_with(2);

    check_int(layout_set_memory(layout, 0, 1, 2, 1, false), -EINVAL);
    check_int(layout_set_memory(layout, 0, 1, UINT64_MAX, UINT64_MAX, false), 0);
    check_int(layout_set_memory(layout, 1, 2, 1, 1, false), -EINVAL);
    check_int(layout_at_rank(layout, 1)->memory, LAYOUT_NO_MEMORY);
    layout_free(layout);
}

TAP_TEST(an_entry_put_is_found_by_key_serial_and_index)
{
    struct layout *layout = layout_with(1);
    const struct layout_entry *entry;

    check_int(put(layout, "mm", 0, "value", 1000), 0);
    check_int(put(layout, "zz", LAYOUT_UNBOUND, "", 1001), 0);
    check_int(put(layout, "aa", LAYOUT_UNBOUND, "x", 1002), 0);
    entry = find(layout, "mm");
    check_value(entry, "value");
    check_int(entry->offset, 7);
    check_int(entry->slot, 0);
    check_int(entry->serial, 1000);
    check(layout_find_entry_serial(layout, 1000) == entry);
    check(entry_at(layout, 0) == find(layout, "aa"));
    check(entry_at(layout, 1) == entry);
    check(entry_at(layout, 2) == find(layout, "zz"));
    check(entry_at(layout, 3) == NULL);
    check(layout_find_entry_serial(layout, 1003) == NULL);
    check_int(layout_at_rank(layout, 0)->bound_entries, 1);
    check_int(layout_entry_bytes(layout), 6 + 6);
    layout_free(layout);
}

TAP_TEST(keys_are_ordered_as_unsigned_bytes_shorter_first)
{
    struct layout *layout = layout_with(0);
    static const char *const sorted[] = {"a", "a!", "aa", "b", "\xc3\xa4"};

    for (size_t i = 5; i > 0; i--)
        check_int(put(layout, sorted[i - 1], LAYOUT_UNBOUND, "", i), 0);
    for (size_t i = 0; i < 5; i++)
        check(entry_at(layout, i) == find(layout, sorted[i]));
    check(entry_at(layout, 5) == NULL);
    check(entry_from(layout, "", 0) == find(layout, "a"));
    check(entry_from(layout, "a", 1) == find(layout, "a"));
    check(entry_from(layout, "a\0", 2) == find(layout, "a!"));
    check(entry_from(layout, "c", 1) == find(layout, "\xc3\xa4"));
    check(entry_from(layout, "\xff", 1) == NULL);
    layout_free(layout);
}

TAP_TEST(a_replaced_entry_keeps_its_serial_and_moves_its_binding)
{
    struct layout *layout = layout_with(2);

    check_int(put(layout, "k", 0, "old", 1000), 0);
    check_int(put(layout, "k", 1, "newer", 1001), 0);
    check_int(layout_count_entries(layout), 1);
    check_value(find(layout, "k"), "newer");
    check_int(find(layout, "k")->serial, 1000);
    check(layout_find_entry_serial(layout, 1000) == find(layout, "k"));
    check(layout_find_entry_serial(layout, 1001) == NULL);
    check_int(layout_at_rank(layout, 0)->bound_entries, 0);
    check_int(layout_at_rank(layout, 1)->bound_entries, 1);
    check_int(layout_entry_bytes(layout), 6);
    layout_free(layout);
}

TAP_TEST(delete_removes_from_every_order)
{
    struct layout *layout = layout_with(1);

    check_int(put(layout, "a", 0, "1", 1000), 0);
    check_int(put(layout, "b", LAYOUT_UNBOUND, "2", 1001), 0);
    check_int(layout_delete(layout, "x", 1), -ENOENT);
    check_int(layout_delete(layout, "a", 1), 0);
    check_int(layout_delete(layout, "a", 1), -ENOENT);
    check(layout_find_entry_serial(layout, 1000) == NULL);
    check(layout_find_entry_serial(layout, 1001) == find(layout, "b"));
    check_int(layout_at_rank(layout, 0)->bound_entries, 0);
    check_int(layout_entry_bytes(layout), 2);
    layout_free(layout);
}

TAP_TEST(removing_an_allocation_takes_its_entries_along)
{
    struct layout *layout = layout_with(2);
    size_t removed = 99;

    check_int(put(layout, "a", 0, "", 1000), 0);
    check_int(put(layout, "b", 1, "", 1001), 0);
    check_int(put(layout, "c", 0, "", 1002), 0);
    check_int(put(layout, "d", LAYOUT_UNBOUND, "", 1003), 0);
    check_int(layout_remove(layout, 0, &removed), 0);
    check_int(removed, 2);
    check_int(layout_count_entries(layout), 2);
    check(find(layout, "a") == NULL && find(layout, "c") == NULL);
    check(layout_find_entry_serial(layout, 1000) == NULL);
    check(layout_find_entry_serial(layout, 1001) == find(layout, "b"));
    check(layout_find_entry_serial(layout, 1003) == find(layout, "d"));
    check_int(layout_entry_bytes(layout), 2);
    layout_free(layout);
}

TAP_TEST(clear_empties_all_but_the_slot_counter)
{
    struct layout *layout = layout_with(3);

    check_int(put(layout, "a", 0, "", 1000), 0);
    check_int(layout_set_memory(layout, 1, 1, 1, 1, false), 0);
    layout_clear(layout);
    check_int(layout_count_allocations(layout), 0);
    check_int(layout_count_entries(layout), 0);
    check_int(layout_total_bytes(layout), 0);
    check_int(layout_entry_bytes(layout), 0);
    check_int(add(layout, 200, NULL), 3);
    layout_free(layout);
}

TAP_TEST(a_bad_put_is_refused_and_changes_nothing)
{
    struct layout *layout = layout_with(1);
    static char big[LAYOUT_MAX_VALUE_BYTES + 1];
    struct layout_put one = make_put("k", 0, "", 1000);
    char text[300];

    memset(text, 'k', sizeof text);
    text[256] = '\0';
    check_int(put(layout, "k", 1, "", 1000), -EINVAL);
    check_int(put(layout, "", 0, "", 1000), -EINVAL);
    check_int(put(layout, "\xff", 0, "", 1000), -EINVAL);
    check_int(put(layout, text, 0, "", 1000), -ENAMETOOLONG);
    one.value = big;
    one.value_bytes = sizeof big;
    check_int(layout_put(layout, &one), -EINVAL);
    check_int(layout_count_entries(layout), 0);
    check_int(layout_at_rank(layout, 0)->bound_entries, 0);
    one.value_bytes--;
    check_int(layout_put(layout, &one), 0);
    check_int(put(layout, "other", 0, "", 1000), -EINVAL); /* the serial is taken */
    check_int(layout_count_entries(layout), 1);
    layout_free(layout);
}

TAP_TEST(put_many_merges_new_and_replaced_entries)
{
    struct layout *layout = layout_with(2);
    struct layout_put puts[] = {
        make_put("e", 1, "5", 2000), make_put("a", 0, "1", 2001), make_put("b", 1, "2", 2002),
        make_put("z", 0, "9", 2003), make_put("d", 0, "4", 2004),
    };
    size_t culprit;

    check_int(put(layout, "d", 1, "old", 1000), 0);
    check_int(put(layout, "b", 0, "old", 1001), 0);
    check_int(put(layout, "f", 0, "kept", 1002), 0);
    check_int(layout_put_many(layout, puts, 5, false, &culprit), 0);
    require(layout_count_entries(layout) == 6);
    for (size_t i = 0; i < 6; i++)
        check_int(entry_at(layout, i)->key[0], "abdefz"[i]);
    check_int(find(layout, "d")->serial, 1000);
    check_int(find(layout, "b")->serial, 1001);
    check_value(find(layout, "b"), "2");
    check(layout_find_entry_serial(layout, 2001) == find(layout, "a"));
    check(layout_find_entry_serial(layout, 2000) == find(layout, "e"));
    check(layout_find_entry_serial(layout, 1000) == find(layout, "d"));
    check_int(layout_at_rank(layout, 0)->bound_entries, 4);
    check_int(layout_at_rank(layout, 1)->bound_entries, 2);
    check_int(layout_entry_bytes(layout), 6 + 5 + 4);
    layout_free(layout);
}

TAP_TEST(put_many_is_all_or_nothing_and_names_the_culprit)
{
    struct layout *layout = layout_with(1);
    struct layout_put puts[] = {
        make_put("a", 0, "new", 2000),
        make_put("b", 0, "new", 2001),
        make_put("c", 5, "new", 2002),
    };
    size_t culprit = 99;

    check_int(put(layout, "a", LAYOUT_UNBOUND, "old", 1000), 0);
    check_int(layout_put_many(layout, puts, 3, false, &culprit), -EINVAL);
    check_int(culprit, 2);
    check_int(layout_count_entries(layout), 1);
    check_value(find(layout, "a"), "old");
    puts[1].key_bytes = 0;
    check_int(layout_put_many(layout, puts, 3, true, &culprit), -EINVAL);
    check_int(culprit, 1);
    puts[1].key_bytes = 1;
    puts[1].serial = 1000;
    check_int(layout_put_many(layout, puts, 2, false, &culprit), -EINVAL);
    check_int(culprit, 1);
    check_value(find(layout, "a"), "old");
    check_int(layout_at_rank(layout, 0)->bound_entries, 0);
    layout_free(layout);
}

TAP_TEST(put_many_skips_unknown_slots_when_told)
{
    struct layout *layout = layout_with(1);
    struct layout_put puts[] = {
        make_put("a", 3, "", 2000),
        make_put("b", 0, "", 2001),
        make_put("c", LAYOUT_UNBOUND, "", 2002),
    };
    size_t culprit;

    check_int(layout_put_many(layout, puts, 3, true, &culprit), 0);
    check_int(layout_count_entries(layout), 2);
    check(find(layout, "a") == NULL);
    check_int(layout_put_many(layout, puts, 1, true, &culprit), 0);
    check_int(layout_put_many(layout, NULL, 0, true, &culprit), 0);
    check_int(layout_count_entries(layout), 2);
    layout_free(layout);
}

TAP_TEST(put_rows_numbers_them_and_counts_those_that_are_not_skipped)
{
    struct layout *layout = layout_with(2);
    const struct layout_put puts[] = {
        make_put("b", 1, "", 7),        make_put("a", 3, "", 7),
        make_put("old", 0, "new", 7),   make_put("c", LAYOUT_UNBOUND, "", 7),
        make_put("bad/\xff", 0, "", 7),
    };
    size_t culprit = 99, known = 99;

    check_int(put(layout, "old", 1, "", 1000), 0);
    check_int(layout_put_rows(layout, puts, 5, 2000, &known, &culprit), -EINVAL);
    check_int(culprit, 4);
    check_int(layout_count_entries(layout), 1);
    check_int(layout_put_rows(layout, puts, 4, 2000, &known, &culprit), 0);
    check_int(known, 3);
    check_int(layout_count_entries(layout), 3);
    check_int(layout_find_entry(layout, "b", 1)->serial, 2000);
    check_int(layout_find_entry(layout, "c", 1)->serial, 2003);
    check_int(layout_find_entry(layout, "old", 3)->serial, 1000);
    check_int(layout_find_slot(layout, 0, NULL)->bound_entries, 1);
    check_int(layout_find_slot(layout, 1, NULL)->bound_entries, 1);
    culprit = 99;
    check_int(layout_put_rows(layout, puts, 1, 2003, &known, &culprit), 0); /* keeps its own */
    check_int(layout_put_rows(layout, NULL, 0, 3000, &known, &culprit), 0);
    check_int(known, 0);
    layout_free(layout);
}

/* Put together they share blocks; each of them can be the last to go. */
TAP_TEST(entries_that_were_put_together_live_as_long_as_each_is_referred_to)
{
    enum {
        COUNT = 100
    };
    struct layout *layout = layout_with(1), *clone;
    static char keys[COUNT][16];
    struct layout_put puts[COUNT];
    size_t culprit;

    for (int i = 0; i < COUNT; i++) {
        snprintf(keys[i], sizeof keys[i], "k%03d", i);
        puts[i] = make_put(keys[i], 0, keys[i], 1000 + (uint64_t)i);
    }
    check_int(layout_put_many(layout, puts, COUNT, false, &culprit), 0);
    clone = layout_clone(layout);
    require(clone != NULL);
    for (int i = 0; i < COUNT; i += 1 + i % 2) /* leaves some in every block */
        check_int(layout_delete(layout, keys[i], 4), 0);
    layout_free(layout);
    for (int i = 0; i < COUNT; i++) {
        const struct layout_entry *entry = layout_find_entry(clone, keys[i], 4);
        require(entry != NULL);
        check_bytes(entry->value, entry->value_bytes, keys[i], 4);
    }
    for (int i = COUNT - 1; i >= 0; i--)
        check_int(layout_delete(clone, keys[i], 4), 0);
    layout_free(clone);
}

TAP_TEST(put_many_takes_the_last_of_a_repeated_key)
{
    struct layout *layout = layout_with(0);
    struct layout_put puts[] = {
        make_put("k", LAYOUT_UNBOUND, "first", 2000),
        make_put("j", LAYOUT_UNBOUND, "", 2001),
        make_put("k", LAYOUT_UNBOUND, "second", 2002),
        make_put("k", LAYOUT_UNBOUND, "third", 2003),
    };
    size_t culprit;

    check_int(layout_put_many(layout, puts, 4, false, &culprit), 0);
    check_int(layout_count_entries(layout), 2);
    check_value(find(layout, "k"), "third");
    check_int(find(layout, "k")->serial, 2003);
    check_int(layout_entry_bytes(layout), 1 + 6);
    layout_free(layout);
}

TAP_TEST(entries_are_bounded_in_number)
{
    struct layout *layout = layout_with(0);
    size_t count = LAYOUT_MAX_ENTRIES, culprit = 0;
    struct layout_put *puts = calloc(count + 1, sizeof *puts);
    char(*keys)[12] = calloc(count + 1, sizeof *keys);

    require(puts && keys);
    for (size_t i = 0; i <= count; i++) {
        snprintf(keys[i], sizeof keys[i], "k%07u", (unsigned)i);
        puts[i] = make_put(keys[i], LAYOUT_UNBOUND, "", 1000 + i);
    }
    check_int(layout_put_many(layout, puts, count + 1, false, &culprit), -ENOSPC);
    check_int(culprit, count + 1);
    check_int(layout_count_entries(layout), 0);
    check_int(layout_put_many(layout, puts, count, false, &culprit), 0);
    check_int(layout_put(layout, &puts[count]), -ENOSPC);
    check_int(put(layout, "k0000005", LAYOUT_UNBOUND, "replaced", 5), 0);
    check_int(layout_count_entries(layout), count);
    layout_free(layout);
    free(puts);
    free(keys);
}

TAP_TEST(entries_are_bounded_in_bytes)
{
    struct layout *layout = layout_with(0);
    static char value[LAYOUT_MAX_VALUE_BYTES];
    struct layout_put puts[LAYOUT_MAX_ENTRY_BYTES / LAYOUT_MAX_VALUE_BYTES];
    size_t count = sizeof puts / sizeof puts[0], culprit;
    char keys[sizeof puts / sizeof puts[0]][8];

    /* Values alone reach the bound, so the keys are what is too much; it fails before copying. */
    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], sizeof keys[i], "k%05u", (unsigned)i);
        puts[i] = make_put(keys[i], LAYOUT_UNBOUND, "", 1000 + i);
        puts[i].value = value;
        puts[i].value_bytes = sizeof value;
    }
    check_int(layout_put_many(layout, puts, count, false, &culprit), -ENOSPC);
    check_int(culprit, count);
    check_int(layout_entry_bytes(layout), 0);
    layout_free(layout);
}

TAP_TEST(a_clone_and_its_origin_change_alone)
{
    struct layout *origin = layout_with(3), *clone;

    check_int(layout_set_memory(origin, 0, 1, 10, MIB, false), 0);
    check_int(put(origin, "a", 0, "one", 1000), 0);
    check_int(put(origin, "b", 1, "two", 1001), 0);
    clone = layout_clone(origin);
    require(clone != NULL);
    check(find(clone, "a") == find(origin, "a")); /* shared */
    check_int(put(clone, "a", 2, "changed", 1002), 0);
    check_int(layout_remove(clone, 1, NULL), 0);
    check_int(layout_rename(clone, 0, "renamed"), 0);
    check_int(layout_set_memory(clone, 0, LAYOUT_NO_MEMORY, 0, 0, false), 0);
    check_int(add(clone, 500, NULL), 3);

    check_value(find(origin, "a"), "one");
    check_value(find(origin, "b"), "two");
    check_str(layout_at_rank(origin, 0)->name, "a000000");
    check_int(layout_at_rank(origin, 0)->bound_entries, 1);
    check_int(layout_at_rank(origin, 2)->bound_entries, 0);
    check_int(layout_total_bytes(origin), MIB);
    check_int(layout_next_slot(origin), 3);
    layout_free(origin);

    check_value(find(clone, "a"), "changed");
    check(find(clone, "b") == NULL);
    check_int(layout_count_allocations(clone), 3);
    check(layout_find_name(clone, "renamed") == layout_at_rank(clone, 0));
    check_int(layout_find_slot(clone, 2, NULL)->bound_entries, 1);
    check_int(layout_total_bytes(clone), 0);
    layout_free(clone);
}

TAP_TEST(check_demands_final_memory_and_offsets_inside)
{
    struct layout *layout = layout_with(1);
    struct layout_put one = make_put("key/1", 0, "", 1000);
    char message[256] = "";

    check_int(layout_check(layout, false, message, sizeof message), -EINVAL);
    check(strstr(message, "a000000 has no memory") != NULL);
    check_int(layout_set_memory(layout, 0, 1, 16, MIB, true), 0);
    check_int(layout_check(layout, false, message, sizeof message), -EINVAL);
    check(strstr(message, "a000000 is still being written") != NULL);
    check_int(layout_set_memory(layout, 0, 1, 16, MIB, false), 0);
    check_int(layout_check(layout, false, message, sizeof message), 0);
    one.offset = MIB;
    check_int(layout_put(layout, &one), 0);
    check_int(layout_check(layout, false, message, sizeof message), -EINVAL);
    check(strstr(message, "metadata key%2F1 points at byte 1048576 of allocation a000000, "
                          "which takes 1048576 bytes") != NULL);
    check_int(layout_check(layout, false, message, 8), -EINVAL);
    check_int(strlen(message), 7);
    one.offset = MIB - 1; /* behind its size, and still its memory */
    check_int(layout_put(layout, &one), 0);
    check_int(layout_check(layout, false, message, sizeof message), 0);
    one.offset = UINT64_MAX;
    one.slot = LAYOUT_UNBOUND;
    check_int(layout_put(layout, &one), 0);
    check_int(layout_check(layout, false, message, sizeof message), 0);
    layout_free(layout);
}
