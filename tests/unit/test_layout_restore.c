/* SPDX-License-Identifier: Apache-2.0 */
/* A layout is restored exactly, or the values are refused. */
#include "auto_layout.h"

#include <errno.h>
#include <stdlib.h>

static struct layout_put make_put(const char *key, uint64_t slot, uint64_t serial)
{
    return (struct layout_put){.key = key,
                               .key_bytes = strlen(key),
                               .slot = slot,
                               .offset = 3,
                               .value = "value",
                               .value_bytes = 5,
                               .serial = serial};
}

static struct layout_restored make_allocation(uint64_t slot, const char *name)
{
    return (struct layout_restored){.serial = 10 + slot,
                                    .slot = slot,
                                    .memory = 100 + slot,
                                    .size_bytes = 1000,
                                    .aligned_bytes = 4096,
                                    .name = name,
                                    .name_bytes = strlen(name),
                                    .tag = "tag",
                                    .tag_bytes = 3,
                                    .wire_id = name,
                                    .wire_id_bytes = strlen(name)};
}

/* With a gap, a renamed allocation, one without memory, a spool, some with wire ids, and entries
 * with serials in another order than their keys. */
static struct layout *make_layout(void)
{
    struct layout *layout = layout_new();
    const struct layout_put puts[] = {make_put("m", 2, 50), make_put("b", LAYOUT_UNBOUND, 51),
                                      make_put("z", 0, 52), make_put("a\0b", 4, 53)};
    static const char *const wire_ids[] = {"wire-b", "wire-c", NULL, NULL, "wire-a"};

    require(layout != NULL);
    for (uint64_t serial = 10; serial < 15; serial++)
        require(layout_add_with_wire_id(layout, serial, NULL, serial % 2 ? "odd" : NULL,
                                        wire_ids[serial - 10], NULL) == 0);
    require(layout_set_memory(layout, 0, 7, 1000, 4096, false) == 0);
    require(layout_set_memory(layout, 2, 8, 5, 8192, true) == 0);
    require(layout_rename(layout, 4, "weights.first") == 0);
    require(layout_remove(layout, 3, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        require(layout_put(layout, &puts[i]) == 0);
    require(layout_delete(layout, "b", 1) == 0);
    return layout;
}

static struct layout *restore(const struct layout *from)
{
    struct layout *layout = NULL;
    struct layout_put puts[8];
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    size_t count = 0, culprit;

    require(layout_restore(layout_next_slot(from), layout_count_changes(from), &layout) == 0);
    for (size_t rank = 0; rank < layout_count_allocations(from); rank++) {
        const struct layout_allocation *old = layout_at_rank(from, rank);
        const struct layout_restored allocation = {.serial = old->serial,
                                                   .slot = old->slot,
                                                   .memory = old->memory,
                                                   .size_bytes = old->size_bytes,
                                                   .aligned_bytes = old->aligned_bytes,
                                                   .spool = old->spool,
                                                   .name = old->name,
                                                   .name_bytes = strlen(old->name),
                                                   .tag = old->tag,
                                                   .tag_bytes = strlen(old->tag),
                                                   .wire_id = old->wire_id,
                                                   .wire_id_bytes =
                                                       old->wire_id ? strlen(old->wire_id) : 0};
        require(layout_restore_allocation(layout, &allocation) == 0);
    }
    layout_cursor_first(&cursor, from);
    while ((entry = layout_cursor_next(&cursor)))
        puts[count++] =
            (struct layout_put){entry->key,   entry->key_bytes,   entry->slot,  entry->offset,
                                entry->value, entry->value_bytes, entry->serial};
    require(layout_restore_entries(layout, puts, count, &culprit) == 0);
    return layout;
}

TAP_TEST(a_restored_layout_is_what_it_was)
{
    struct layout *old = make_layout(), *layout = restore(old);
    const struct layout_entry *entry, *other;
    struct layout_cursor cursor, others;
    uint64_t slot, other_slot;

    check_int(layout_next_slot(layout), layout_next_slot(old));
    check_int(layout_count_changes(layout), layout_count_changes(old));
    check_int(layout_total_bytes(layout), layout_total_bytes(old));
    check_int(layout_entry_bytes(layout), layout_entry_bytes(old));
    require(layout_count_allocations(layout) == 4);
    for (size_t rank = 0; rank < 4; rank++) {
        const struct layout_allocation *a = layout_at_rank(layout, rank);
        const struct layout_allocation *b = layout_at_rank(old, rank);
        check(a->serial == b->serial && a->slot == b->slot && a->memory == b->memory);
        check(a->size_bytes == b->size_bytes && a->aligned_bytes == b->aligned_bytes);
        check(a->spool == b->spool && a->bound_entries == b->bound_entries);
        check_str(a->name, b->name);
        check_str(a->tag, b->tag);
        check(layout_find_name(layout, b->name) == a);
        check((a->wire_id != NULL) == (b->wire_id != NULL));
        check(!b->wire_id || layout_find_wire_id(layout, b->wire_id) == a);
    }
    layout_cursor_first(&cursor, layout);
    layout_cursor_first(&others, old);
    while ((other = layout_cursor_next(&others)) && (entry = layout_cursor_next(&cursor))) {
        check_bytes(entry->key, entry->key_bytes, other->key, other->key_bytes);
        check_bytes(entry->value, entry->value_bytes, other->value, other->value_bytes);
        check(entry->slot == other->slot && entry->offset == other->offset);
        check(layout_find_entry_serial(layout, other->serial) == entry);
    }
    check(other == NULL && layout_cursor_next(&cursor) == NULL);
    require(layout_add(layout, 99, NULL, "", &slot) == 0);
    require(layout_add(old, 99, NULL, "", &other_slot) == 0);
    check_int(slot, other_slot);
    layout_free(old);
    layout_free(layout);
}

static struct layout *restore_empty(uint64_t next_slot)
{
    struct layout *layout = NULL;

    require(layout_restore(next_slot, 0, &layout) == 0);
    return layout;
}

/* With one allocation, in slot 3. */
static struct layout *restore_first(void)
{
    struct layout *layout = restore_empty(8);
    const struct layout_restored first = make_allocation(3, "first");

    require(layout_restore_allocation(layout, &first) == 0);
    return layout;
}

TAP_TEST(slots_that_nobody_can_have_counted_are_refused)
{
    auto_layout *layout = NULL;

    check_int(layout_restore(UINT64_MAX, 0, &layout), -EINVAL);
    check_int(layout_restore(UINT64_MAX - 1, 0, &layout), -EINVAL);
    check(layout == NULL);
    check_int(layout_restore(INT64_MAX, UINT64_MAX, &layout), 0);
    check_int(layout_count_changes(layout), UINT64_MAX);
}

/* Changes of the second of two allocations, which could be restored alone. */
static void check_refused(struct layout_restored allocation, int line)
{
    struct layout *layout = restore_first();

    if (!check_int(layout_restore_allocation(layout, &allocation), -EINVAL))
        fprintf(stderr, "# of line %d\n", line);
    check_int(layout_count_allocations(layout), 1);
    check_int(layout_total_bytes(layout), 4096);
    layout_free(layout);
}

#define CHECK_REFUSED(change)                                          \
    do {                                                               \
        struct layout_restored allocation = make_allocation(5, "two"); \
        change;                                                        \
        check_refused(allocation, __LINE__);                           \
    } while (0)

TAP_TEST(an_allocation_that_could_not_be_there_is_refused)
{
    static char long_text[257];

    memset(long_text, 'x', sizeof long_text);
    CHECK_REFUSED(allocation.slot = 3);
    CHECK_REFUSED(allocation.slot = 2);
    CHECK_REFUSED(allocation.slot = 8); /* next_slot */
    CHECK_REFUSED(allocation.slot = UINT64_MAX);
    CHECK_REFUSED(allocation.serial = 13);
    CHECK_REFUSED(allocation.serial = 1);
    CHECK_REFUSED(allocation.aligned_bytes = 999);
    CHECK_REFUSED(allocation.aligned_bytes = UINT64_MAX);
    CHECK_REFUSED((allocation.memory = LAYOUT_NO_MEMORY, allocation.size_bytes = 0,
                   allocation.aligned_bytes = 0, allocation.spool = true));
    CHECK_REFUSED((allocation.name = "first", allocation.name_bytes = 5));
    CHECK_REFUSED(allocation.name_bytes = 0);
    CHECK_REFUSED((allocation.name = "a/b", allocation.name_bytes = 3));
    CHECK_REFUSED((allocation.name = ".", allocation.name_bytes = 1));
    CHECK_REFUSED((allocation.name = "a\0b", allocation.name_bytes = 3));
    CHECK_REFUSED((allocation.name = "\xff", allocation.name_bytes = 1));
    CHECK_REFUSED((allocation.name = long_text, allocation.name_bytes = 256));
    CHECK_REFUSED((allocation.name = long_text, allocation.name_bytes = SIZE_MAX));
    CHECK_REFUSED((allocation.tag = "a\0b", allocation.tag_bytes = 3));
    CHECK_REFUSED((allocation.tag = "\xc3", allocation.tag_bytes = 1));
    CHECK_REFUSED((allocation.tag = long_text, allocation.tag_bytes = 256));
    CHECK_REFUSED((allocation.wire_id = "first", allocation.wire_id_bytes = 5));
    CHECK_REFUSED((allocation.wire_id = "a\0b", allocation.wire_id_bytes = 3));
    CHECK_REFUSED((allocation.wire_id = "\xc3", allocation.wire_id_bytes = 1));
    CHECK_REFUSED((allocation.wire_id = long_text, allocation.wire_id_bytes = 256));
    CHECK_REFUSED((allocation.wire_id = long_text, allocation.wire_id_bytes = SIZE_MAX));
}

TAP_TEST(texts_of_the_longest_kind_are_restored)
{
    static char name[255], tag[LAYOUT_MAX_TAG_BYTES], wire_id[LAYOUT_MAX_WIRE_ID_BYTES];
    struct layout *layout = restore_empty(1);
    struct layout_restored allocation = make_allocation(0, "");

    memset(name, 'n', sizeof name);
    memset(tag, 't', sizeof tag);
    memset(wire_id, 'w', sizeof wire_id);
    allocation.name = name;
    allocation.name_bytes = sizeof name;
    allocation.tag = tag;
    allocation.tag_bytes = sizeof tag;
    allocation.wire_id = wire_id;
    allocation.wire_id_bytes = sizeof wire_id;
    check_int(layout_restore_allocation(layout, &allocation), 0);
    check_int(strlen(layout_at_rank(layout, 0)->name), 255);
    check_int(strlen(layout_at_rank(layout, 0)->tag), 255);
    check_int(strlen(layout_at_rank(layout, 0)->wire_id), 255);
    layout_free(layout);
    layout = restore_empty(1);
    allocation.tag = NULL;
    allocation.tag_bytes = 0;
    allocation.wire_id = NULL;
    allocation.wire_id_bytes = 0;
    check_int(layout_restore_allocation(layout, &allocation), 0);
    check_str(layout_at_rank(layout, 0)->tag, "");
    check(layout_at_rank(layout, 0)->wire_id == NULL);
    layout_free(layout);
}

static void check_entries(const struct layout_put *puts, size_t count, size_t culprit, int line)
{
    struct layout *layout = restore_first();
    size_t found = SIZE_MAX;

    if (!check_int(layout_restore_entries(layout, puts, count, &found), -EINVAL) ||
        !check_int(found, culprit))
        fprintf(stderr, "# of line %d\n", line);
    check_int(layout_count_entries(layout), 0);
    check_int(layout_at_rank(layout, 0)->bound_entries, 0);
    layout_free(layout);
}

#define CHECK_ENTRIES(culprit, change)                                                       \
    do {                                                                                     \
        struct layout_put puts[] = {make_put("a", LAYOUT_UNBOUND, 30), make_put("b", 3, 20), \
                                    make_put("c", 3, 40)};                                   \
        change;                                                                              \
        check_entries(puts, 3, culprit, __LINE__);                                           \
    } while (0)

TAP_TEST(entries_that_could_not_be_there_are_refused)
{
    static char value[LAYOUT_MAX_VALUE_BYTES + 1], key[257];

    memset(key, 'b', sizeof key);
    CHECK_ENTRIES(1, puts[1].key = "a"); /* twice */
    CHECK_ENTRIES(1, puts[0].key = "bb");
    CHECK_ENTRIES(2, puts[2].key = "aa");
    CHECK_ENTRIES(1, puts[1].slot = 4);
    CHECK_ENTRIES(2, puts[2].serial = 20);
    CHECK_ENTRIES(0, puts[0].key_bytes = 0);
    CHECK_ENTRIES(2, puts[2].key = "\xff");
    CHECK_ENTRIES(1, (puts[1].key = key, puts[1].key_bytes = 256));
    CHECK_ENTRIES(2, (puts[2].value = value, puts[2].value_bytes = sizeof value));
}

TAP_TEST(entries_are_restored_once_and_behind_all_allocations)
{
    auto_layout *layout = restore_first();
    const struct layout_restored second = make_allocation(4, "second");
    const struct layout_put a = make_put("a", 3, 30), b = make_put("b", 3, 31);
    size_t culprit;

    check_int(layout_restore_entries(layout, NULL, 0, &culprit), 0);
    check_int(layout_restore_entries(layout, &a, 1, &culprit), 0);
    check_int(layout_restore_entries(layout, &b, 1, &culprit), -EINVAL);
    check_int(layout_restore_allocation(layout, &second), -EINVAL);
    check_int(layout_count_entries(layout), 1);
    check_int(layout_at_rank(layout, 0)->bound_entries, 1);
}

TAP_TEST(more_than_a_layout_can_have_is_refused)
{
    struct layout *layout = restore_empty(LAYOUT_MAX_ALLOCATIONS + 1);
    size_t count = LAYOUT_MAX_ENTRIES + 1, culprit;
    struct layout_put *puts = calloc(count, sizeof *puts);
    char(*keys)[12] = calloc(count, sizeof *keys);

    require(puts && keys);
    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], sizeof keys[i], "k%07u", (unsigned)i);
        puts[i] = make_put(keys[i], LAYOUT_UNBOUND, i);
        puts[i].value_bytes = 0;
    }
    check_int(layout_restore_entries(layout, puts, count, &culprit), -EINVAL);
    check_int(culprit, count);
    for (uint64_t slot = 0; slot <= LAYOUT_MAX_ALLOCATIONS; slot++) {
        struct layout_restored allocation = make_allocation(slot, keys[slot]);
        require(layout_restore_allocation(layout, &allocation) ==
                (slot < LAYOUT_MAX_ALLOCATIONS ? 0 : -EINVAL));
    }
    check_int(layout_restore_entries(layout, puts, count - 1, &culprit), 0);
    check_int(layout_count_entries(layout), LAYOUT_MAX_ENTRIES);
    layout_free(layout);
    free(puts);
    free(keys);
}
