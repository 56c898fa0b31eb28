/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a layout: put, found, replaced, removed; one and many. */
#include "layout_fixture.h"

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

    /* The values alone reach the bound, so the keys exceed it; the call fails before copying. */
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
