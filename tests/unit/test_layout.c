/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations of a layout, and layouts as a whole. test_layout_random.c holds their lookups, ranks
 * and removals against a model. */
#include "layout_fixture.h"

#define MIB (1ull << 20)

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

TAP_TEST(automatic_names_follow_the_slot_and_skip_taken_ones)
{
    auto_layout *layout = layout_with(1);

    check_str(layout_at_rank(layout, 0)->name, "a000000");
    check_int(add(layout, 200, "a000002"), 1);
    check_int(add(layout, 201, "a000003"), 2);
    check_int(add(layout, 202, NULL), 4);
    check_str(layout_at_rank(layout, 3)->name, "a000004");
    check_int(layout_next_slot(layout), 5);
}

TAP_TEST(a_bad_addition_is_refused_and_changes_nothing)
{
    auto_layout *layout = layout_with(1);
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
}

TAP_TEST(allocations_are_bounded)
{
    auto_layout *layout = layout_with(LAYOUT_MAX_ALLOCATIONS);

    check_int(layout_add(layout, 1000000, NULL, "", NULL), -ENOSPC);
    check_int(layout_remove(layout, 5, NULL), 0);
    check_int(layout_add(layout, 1000000, NULL, "", NULL), 0);
    check_int(layout_at_rank(layout, LAYOUT_MAX_ALLOCATIONS - 1)->slot, LAYOUT_MAX_ALLOCATIONS);
}

TAP_TEST(rename_keeps_everything_but_the_name)
{
    auto_layout *layout = layout_with(3);
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
    check(layout_find_name(layout, "a00000") == NULL);
    check(layout_find_serial(layout, 99) == NULL);
    check(layout_find_serial(layout, 104) == NULL);
    check_int(layout_rename(layout, 1, "zlast"), 0);
    check(layout_find_name(layout, "zlast") == layout_at_rank(layout, 1));
}

TAP_TEST(rename_to_a_taken_bad_or_its_own_name)
{
    auto_layout *layout = layout_with(2);

    check_int(layout_rename(layout, 0, "a000001"), -EEXIST);
    check_int(layout_rename(layout, 0, "a000000"), 0);
    check_int(layout_rename(layout, 0, "."), -EINVAL);
    check_int(layout_rename(layout, 9, "x"), -ENOENT);
    check_int(layout_remove(layout, 9, NULL), -ENOENT);
    check_str(layout_at_rank(layout, 0)->name, "a000000");
}

TAP_TEST(a_tag_is_set_in_both_orders_and_checked)
{
    auto_layout *layout = layout_with(2);

    check_int(layout_set_tag(layout, 1, "kv-cache"), 0);
    check_str(layout_find_name(layout, "a000001")->tag, "kv-cache");
    check_str(layout_find_slot(layout, 1, NULL)->tag, "kv-cache");
    check_int(layout_set_tag(layout, 1, "\xc0\x80"), -EINVAL);
    check_int(layout_set_tag(layout, 2, ""), -ENOENT);
    check_str(layout_find_slot(layout, 1, NULL)->tag, "kv-cache");
}

TAP_TEST(memory_counts_in_the_total_and_can_be_taken_away)
{
    auto_layout *layout = layout_with(3);

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
}

TAP_TEST(memory_smaller_than_its_size_or_beyond_counting_is_refused)
{
    auto_layout *layout = layout_with(2);

    check_int(layout_set_memory(layout, 0, 1, 2, 1, false), -EINVAL);
    check_int(layout_set_memory(layout, 0, 1, UINT64_MAX, UINT64_MAX, false), 0);
    check_int(layout_set_memory(layout, 1, 2, 1, 1, false), -EINVAL);
    check_int(layout_at_rank(layout, 1)->memory, LAYOUT_NO_MEMORY);
}

TAP_TEST(a_mark_of_immutable_is_copied_and_not_encoded)
{
    struct layout *layout = layout_with(2), *clone, *next = layout_new();
    uint8_t *bytes[2];
    size_t sizes[2];

    require(next && layout_encode(layout, &bytes[0], &sizes[0]) == 0);
    check(!layout_is_immutable(layout));
    layout_set_immutable(layout);
    check(layout_is_immutable(layout));
    clone = layout_clone(layout);
    require(clone && layout_encode(clone, &bytes[1], &sizes[1]) == 0);
    check(layout_is_immutable(clone));
    check_bytes(bytes[1], sizes[1], bytes[0], sizes[0]);
    layout_succeed(next, layout);
    check(!layout_is_immutable(next));
    check_int(layout_next_slot(next), layout_next_slot(layout));
    check(layout_count_changes(next) > layout_count_changes(layout));
    free(bytes[0]);
    free(bytes[1]);
    layout_free(clone);
    layout_free(next);
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
    auto_layout *layout = layout_with(1);
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
}

TAP_TEST(check_refuses_the_name_of_a_temporary_file)
{
    auto_layout *layout = layout_new();
    char message[256] = "";

    check_int(layout_add(layout, 1, ".big.XyZ019", NULL, NULL), 0);
    check_int(layout_set_memory(layout, 0, 1, 16, MIB, false), 0);
    check_int(layout_check(layout, false, message, sizeof message), -EINVAL);
    check(strstr(message, ".big.XyZ019 has the name of a temporary file") != NULL);
    check_int(layout_rename(layout, 0, "big"), 0);
    check_int(layout_check(layout, false, message, sizeof message), 0);
    check_int(layout_rename(layout, 0, ".big"), -EINVAL);
}

static bool has(struct layout_times times, int64_t access_ns, int64_t change_ns)
{
    return times.access_ns == access_ns && times.change_ns == change_ns;
}

TAP_TEST(times_are_kept_by_all_but_what_makes_them_untrue)
{
    static const struct layout_times set = {-1, 5}, of_directory = {6, 7};
    struct layout *layout = layout_with(2), *clone;

    check(!layout_has_times(&layout_at_rank(layout, 0)->times));
    check_int(layout_set_memory(layout, 0, 1, 16, MIB, true), 0);
    check_int(layout_set_times(layout, 0, &set), 0);
    check_int(layout_set_times(layout, LAYOUT_UNBOUND, &of_directory), 0);
    check_int(layout_set_times(layout, 9, &set), -ENOENT);
    check_int(layout_set_memory(layout, 0, 1, 17, MIB, false), 0); /* the spool is final */
    check_int(layout_set_tag(layout, 0, "tag"), 0);
    clone = layout_clone(layout);
    check(has(layout_at_rank(clone, 0)->times, -1, 5));
    check(has(layout_get_times(clone), 6, 7));
    check_int(layout_rename(clone, 0, "other"), 0);
    check(has(layout_at_rank(clone, 0)->times, -1, 5));
    check(has(layout_get_times(clone), LAYOUT_NO_TIME, LAYOUT_NO_TIME));
    check_int(layout_set_memory(clone, 0, LAYOUT_NO_MEMORY, 0, 0, false), 0);
    check(!layout_has_times(&layout_at_rank(clone, 0)->times));
    check_int(layout_remove(layout, 1, NULL), 0);
    check(has(layout_get_times(layout), LAYOUT_NO_TIME, LAYOUT_NO_TIME));
    layout_free(clone);
    layout_free(layout);
}
