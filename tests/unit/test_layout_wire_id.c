/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations that a client knows by ids of its own choosing. */
#include "auto_layout.h"

#include "meta/layout_internal.h"

#include <errno.h>
#include <stdlib.h>

static int add(struct layout *layout, uint64_t serial, const char *wire_id)
{
    return layout_add_with_wire_id(layout, serial, NULL, "tag", wire_id, NULL);
}

/* Slots 0..4, serials 10..14; the second and the fourth have none, and the rest do not rise. */
static struct layout *make_layout(void)
{
    struct layout *layout = layout_new();

    require(layout != NULL);
    require(add(layout, 10, "allocation-m") == 0);
    require(add(layout, 11, NULL) == 0);
    require(add(layout, 12, "allocation-z") == 0);
    require(add(layout, 13, NULL) == 0);
    require(add(layout, 14, "allocation-a") == 0);
    return layout;
}

/* Returns the slot of the allocation with this id. */
static uint64_t slot_of(const struct layout *layout, const char *wire_id)
{
    const struct layout_allocation *allocation = layout_find_wire_id(layout, wire_id);

    if (!allocation)
        return LAYOUT_UNBOUND;
    check_str(allocation->wire_id, wire_id);
    check(layout_find_slot(layout, allocation->slot, NULL) == allocation);
    return allocation->slot;
}

static void check_three(const struct layout *layout)
{
    check_int(slot_of(layout, "allocation-m"), 0);
    check_int(slot_of(layout, "allocation-z"), 2);
    check_int(slot_of(layout, "allocation-a"), 4);
    check(layout_find_slot(layout, 1, NULL)->wire_id == NULL);
    check(layout_find_slot(layout, 3, NULL)->wire_id == NULL);
    check_int(layout_check_wire_ids(layout), 0);
}

TAP_TEST(an_allocation_is_found_by_its_wire_id)
{
    auto_layout *layout = make_layout();

    check_three(layout);
    check_int(slot_of(layout, "allocation-"), LAYOUT_UNBOUND);
    check_int(slot_of(layout, "allocation-zz"), LAYOUT_UNBOUND);
    check_int(slot_of(layout, ""), LAYOUT_UNBOUND);
    check_str(layout_find_wire_id(layout, "allocation-a")->name, "a000004");
    check_str(layout_find_wire_id(layout, "allocation-a")->tag, "tag");
}

TAP_TEST(a_wire_id_that_is_taken_or_bad_is_refused_and_changes_nothing)
{
    auto_layout *layout = make_layout();
    char text[LAYOUT_MAX_WIRE_ID_BYTES + 2];
    uint64_t slot = 77;

    memset(text, 'w', sizeof text);
    text[LAYOUT_MAX_WIRE_ID_BYTES + 1] = '\0';
    check_int(layout_add_with_wire_id(layout, 20, "n", "", "allocation-z", &slot), -EEXIST);
    check_int(layout_add_with_wire_id(layout, 20, "n", "", "", &slot), -EINVAL);
    check_int(layout_add_with_wire_id(layout, 20, "n", "", text, &slot), -EINVAL);
    check_int(layout_add_with_wire_id(layout, 20, "n", "", "id\xc3", &slot), -EINVAL);
    check_int(layout_add_with_wire_id(layout, 20, "a000000", "", "free", &slot), -EEXIST);
    check_int(slot, 77);
    check_int(layout_count_allocations(layout), 5);
    check_int(layout_next_slot(layout), 5);
    check_int(slot_of(layout, "free"), LAYOUT_UNBOUND);
    check(layout_find_name(layout, "n") == NULL);
    check_three(layout);
    text[LAYOUT_MAX_WIRE_ID_BYTES] = '\0';
    check_int(layout_add_with_wire_id(layout, 20, "n", "", text, &slot), 0);
    check_int(slot_of(layout, text), slot);
    check_int(add(layout, 21, "a/b %\xc3\xa4"), 0); /* it is no file's name */
}

TAP_TEST(what_changes_in_an_allocation_leaves_it_its_wire_id)
{
    auto_layout *layout = make_layout();

    check_int(layout_rename(layout, 0, "zebra"), 0);
    check_int(layout_rename(layout, 1, "yak"), 0);
    check_int(layout_set_tag(layout, 4, "a longer tag than it was"), 0);
    check_int(layout_set_tag(layout, 3, ""), 0);
    check_int(layout_set_memory(layout, 2, 7, 1, 4096, false), 0);
    check_three(layout);
    check_str(layout_find_wire_id(layout, "allocation-m")->name, "zebra");
    check_str(layout_find_wire_id(layout, "allocation-a")->tag, "a longer tag than it was");
    check_int(layout_find_wire_id(layout, "allocation-z")->memory, 7);
}

TAP_TEST(a_wire_id_is_free_again_when_its_allocation_is_gone)
{
    auto_layout *layout = make_layout();

    check_int(layout_remove(layout, 2, NULL), 0);
    check_int(layout_remove(layout, 1, NULL), 0);
    check_int(slot_of(layout, "allocation-z"), LAYOUT_UNBOUND);
    check_int(slot_of(layout, "allocation-m"), 0);
    check_int(slot_of(layout, "allocation-a"), 4);
    check_int(layout_check_wire_ids(layout), 0);
    check_int(add(layout, 20, "allocation-z"), 0);
    check_int(slot_of(layout, "allocation-z"), 5);
    check_int(layout_remove(layout, 0, NULL), 0);
    check_int(slot_of(layout, "allocation-m"), LAYOUT_UNBOUND);
    check_int(layout_check_wire_ids(layout), 0);
    check_int(add(layout, 21, "allocation-m"), 0);
    check_int(slot_of(layout, "allocation-m"), 6);
}

TAP_TEST(a_clone_has_wire_ids_of_its_own)
{
    struct layout *layout = make_layout(), *clone;

    clone = layout_clone(layout);
    require(clone != NULL);
    check_three(clone);
    check(layout_find_wire_id(clone, "allocation-a") !=
          layout_find_wire_id(layout, "allocation-a"));
    check_int(layout_remove(clone, 0, NULL), 0);
    check_int(add(clone, 20, "allocation-q"), 0);
    check_int(add(layout, 20, "allocation-r"), 0);
    check_three(layout);
    check_int(slot_of(layout, "allocation-q"), LAYOUT_UNBOUND);
    check_int(slot_of(clone, "allocation-r"), LAYOUT_UNBOUND);
    check_int(layout_check_wire_ids(clone), 0);
    layout_free(layout);
    check_int(slot_of(clone, "allocation-q"), 5);
    layout_free(clone);
}

static void hash_of(const struct layout *layout, uint8_t hash[16])
{
    uint8_t *bytes;
    size_t size;

    require(layout_encode(layout, &bytes, &size) == 0);
    layout_hash(bytes, size, hash);
    free(bytes);
}

TAP_TEST(wire_ids_are_no_part_of_the_layout_and_its_hash)
{
    struct layout *with = make_layout(), *without = layout_new();
    uint8_t hash[16], other[16];

    require(without != NULL);
    for (uint64_t serial = 10; serial < 15; serial++)
        require(add(without, serial, NULL) == 0);
    hash_of(with, hash);
    hash_of(without, other);
    check_bytes(hash, 16, other, 16);
    layout_free(with);
    layout_free(without);
}

TAP_TEST(a_layout_without_wire_ids_has_no_index_of_them)
{
    struct layout *layout = layout_new(), *clone;

    require(layout && add(layout, 10, NULL) == 0);
    check(layout->by_wire_id == NULL);
    check_int(slot_of(layout, "allocation-a"), LAYOUT_UNBOUND);
    clone = layout_clone(layout);
    require(clone != NULL);
    check(clone->by_wire_id == NULL);
    check_int(layout_check_wire_ids(clone), 0);
    layout_free(layout);
    layout_free(clone);
}

/* Each id of one that is in the wrong place, or is none. */
#define CHECK_NOTICED(lvalue, value)                       \
    do {                                                   \
        __typeof__(lvalue) was_ = (lvalue);                \
        (lvalue) = (value);                                \
        check_int(layout_check_wire_ids(layout), -EINVAL); \
        (lvalue) = was_;                                   \
        check_int(layout_check_wire_ids(layout), 0);       \
    } while (0)

TAP_TEST(a_check_notices_wire_ids_that_no_layout_has)
{
    auto_layout *layout = make_layout();
    struct layout_allocation *const *all = layout->by_slot;
    char text[] = "allocation-m";

    CHECK_NOTICED(all[0]->wire_id, NULL);
    CHECK_NOTICED(all[0]->wire_id, all[2]->wire_id);
    CHECK_NOTICED(all[0]->wire_id[11], 'z'); /* as another one's */
    CHECK_NOTICED(all[0]->wire_id[0], 'z');  /* out of order */
    CHECK_NOTICED(all[0]->wire_id[11], '\xff');
    CHECK_NOTICED(all[4]->wire_id[0], '\0');
    CHECK_NOTICED(all[1]->wire_id, text);
    CHECK_NOTICED(layout->wire_id_count, 2);
    CHECK_NOTICED(layout->by_wire_id[0], layout->by_wire_id[1]);
}
