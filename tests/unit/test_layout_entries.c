/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a layout: their order and bounds, and puts that are refused. test_layout_random.c
 * holds puts, lookups and removals against a model. */
#include "layout_fixture.h"

TAP_TEST(keys_are_ordered_as_unsigned_bytes_shorter_first)
{
    auto_layout *layout = layout_with(0);
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
}

TAP_TEST(a_bad_put_is_refused_and_changes_nothing)
{
    auto_layout *layout = layout_with(1);
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
}

TAP_TEST(put_many_is_all_or_nothing_and_names_the_culprit)
{
    auto_layout *layout = layout_with(1);
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
}

TAP_TEST(put_many_skips_unknown_slots_when_told)
{
    auto_layout *layout = layout_with(1);
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
}

TAP_TEST(put_rows_numbers_them_and_counts_those_that_are_not_skipped)
{
    auto_layout *layout = layout_with(2);
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
    auto_layout *layout = layout_with(0);
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
}
