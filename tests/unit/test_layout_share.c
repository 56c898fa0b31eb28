/* SPDX-License-Identifier: Apache-2.0 */
/* Sharing between layouts: chunks of their indexes, and the layout itself. */
#include "auto_layout.h"

#include "meta/layout_internal.h"

#include <errno.h>
#include <stdlib.h>

#define COUNT (20 * INDEX_CHUNK_ENTRIES)

static char keys[COUNT][16];

static struct layout_put make_put(size_t number, uint64_t serial)
{
    return (struct layout_put){.key = keys[number],
                               .key_bytes = strlen(keys[number]),
                               .slot = LAYOUT_UNBOUND,
                               .serial = serial};
}

/* Each `step`th of the keys, in one go. */
static struct layout *make_layout(size_t step)
{
    static struct layout_put puts[COUNT];
    struct layout *layout = layout_new();
    size_t count = 0, culprit;

    for (size_t i = 0; i < COUNT; i++)
        snprintf(keys[i], sizeof keys[i], "k%05u", (unsigned)i);
    for (size_t i = 0; i < COUNT; i += step, count++)
        puts[count] = make_put(i, 1000 + i);
    require(layout != NULL);
    require(layout_put_many(layout, puts, count, false, &culprit) == 0);
    return layout;
}

/* Chunks of one that the other has not. */
static size_t count_own(const struct layout_index *index, const struct layout_index *other)
{
    size_t own = 0;

    for (size_t i = 0; i < index->chunk_count; i++) {
        bool shared = false;
        for (size_t k = 0; k < other->chunk_count; k++)
            shared |= other->chunks[k].chunk == index->chunks[i].chunk;
        own += !shared;
    }
    return own;
}

static void check_own(const struct layout *layout, const struct layout *other, size_t by_key,
                      size_t by_serial)
{
    check_int(count_own(&layout->by_key, &other->by_key), by_key);
    check_int(count_own(&layout->by_serial, &other->by_serial), by_serial);
}

TAP_TEST(a_change_copies_only_the_chunks_that_it_touches)
{
    struct layout *layout = make_layout(1), *clone = layout_clone(layout);
    struct layout_put put = make_put(5, 1);

    require(clone != NULL);
    check_int(layout->by_key.chunk_count, COUNT / INDEX_CHUNK_ENTRIES);
    check_own(clone, layout, 0, 0);
    check_int(layout_put(clone, &put), 0); /* replaces */
    check_own(clone, layout, 1, 1);
    check_int(layout_delete(clone, keys[COUNT / 2], strlen(keys[COUNT / 2])), 0);
    check_own(clone, layout, 2, 2);
    put.key = "new";
    put.key_bytes = 3;
    check_int(layout_put(clone, &put), 0); /* the first chunk by serial, the last by key is full */
    check_int(count_own(&layout->by_key, &clone->by_key), 3);
    check_int(layout_count_entries(layout), COUNT);
    check_int(layout_count_entries(clone), COUNT);
    check(layout_find_entry(layout, "new", 3) == NULL);
    layout_free(layout);
    layout_free(clone);
}

TAP_TEST(what_comes_in_order_fills_its_chunks)
{
    struct layout *layout = make_layout(1), *slowly = layout_new();

    require(slowly != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        struct layout_put put = make_put(i, 1000 + i);
        require(layout_put(slowly, &put) == 0);
    }
    check_int(layout->by_key.chunk_count, COUNT / INDEX_CHUNK_ENTRIES);
    check_int(layout->by_serial.chunk_count, COUNT / INDEX_CHUNK_ENTRIES);
    check_int(slowly->by_key.chunk_count, COUNT / INDEX_CHUNK_ENTRIES);
    check_int(slowly->by_serial.chunk_count, COUNT / INDEX_CHUNK_ENTRIES);
    layout_free(layout);
    layout_free(slowly);
}

static void check_few_chunks(const struct layout_index *index, size_t entries)
{
    if (!check(index->chunk_count <= 1 + 8 * entries / INDEX_CHUNK_ENTRIES))
        fprintf(stderr, "# %zu chunks for %zu entries\n", index->chunk_count, entries);
}

TAP_TEST(a_layout_that_lost_most_of_its_entries_keeps_few_chunks)
{
    struct layout *layout = make_layout(1), *clone = layout_clone(layout);
    size_t left = COUNT;

    require(clone != NULL);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 50 == 0)
            continue;
        require(layout_delete(clone, keys[i], strlen(keys[i])) == 0);
        left--;
        check_few_chunks(&clone->by_key, left);
        check_few_chunks(&clone->by_serial, left);
    }
    check_int(layout_count_entries(clone), left);
    check_int(layout_count_entries(layout), COUNT);
    layout_free(layout);
    for (size_t i = 0; i < COUNT; i += 50)
        check(layout_find_entry_serial(clone, 1000 + i) ==
              layout_find_entry(clone, keys[i], strlen(keys[i])));
    layout_free(clone);
}

TAP_TEST(removing_an_allocation_leaves_few_chunks_too)
{
    auto_layout *layout = make_layout(50);
    size_t left = layout_count_entries(layout), count = 0, culprit, removed;
    static struct layout_put puts[COUNT];
    uint64_t slot;

    require(layout_add(layout, 1, NULL, NULL, &slot) == 0);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 50) {
            puts[count] = make_put(i, 100000 - i);
            puts[count++].slot = slot;
        }
    }
    require(layout_put_many(layout, puts, count, false, &culprit) == 0);
    check_int(layout_count_entries(layout), COUNT);
    require(layout_remove(layout, slot, &removed) == 0);
    check_int(removed, count);
    check_int(layout_count_entries(layout), left);
    check_few_chunks(&layout->by_key, left);
    check_few_chunks(&layout->by_serial, left);
}

/* ---- holders ------------------------------------------------------------------------------- */

TAP_TEST(a_layout_lives_as_long_as_somebody_holds_it)
{
    struct layout *layout = make_layout(100), *held = layout_ref(layout), *clone;

    check(held == layout);
    check(layout_is_shared(layout));
    clone = layout_clone(layout); /* a holder that wants to change it */
    require(clone != NULL);
    check(!layout_is_shared(clone));
    layout_free(layout);
    check(!layout_is_shared(held));
    check_int(layout_count_entries(held), COUNT / 100 + (COUNT % 100 != 0));
    check(layout_find_entry(held, keys[100], 6) == layout_find_entry(clone, keys[100], 6));
    check_int(layout_delete(held, keys[100], 6), 0); /* it has no other holder now */
    check(layout_find_entry(clone, keys[100], 6) != NULL);
    layout_free(held);
    layout_free(clone);
}

static size_t dropped_bytes;

static void count_dropped(void *at, size_t bytes)
{
    memset(at, 0xdb, bytes);
    dropped_bytes += bytes;
}

TAP_TEST(pages_of_a_large_value_are_dropped_with_its_last_holder)
{
    enum {
        LARGE_BYTES = 64 << 10
    };
    static uint8_t value[LARGE_BYTES];
    struct layout *layout = make_layout(1), *clone;
    struct layout_put put = make_put(7, 1007);

    put.value = value;
    put.value_bytes = sizeof value;
    require(layout_put(layout, &put) == 0);
    clone = layout_clone(layout);
    require(clone != NULL);
    layout_drop_pages_by(count_dropped);
    layout_free(layout);
    check_int(dropped_bytes, 0);
    check(memcmp(layout_find_entry(clone, keys[7], 6)->value, value, sizeof value) == 0);
    layout_free(clone);
    check_int(dropped_bytes, sizeof value);
    layout_drop_pages_by(NULL);
}

TAP_TEST(what_has_no_memory_is_no_spool)
{
    auto_layout *layout = layout_new();
    uint64_t slot;

    require(layout && layout_add(layout, 1, NULL, NULL, &slot) == 0);
    check_int(layout_set_memory(layout, slot, 7, 1, 2, true), 0);
    check(layout_at_rank(layout, 0)->spool);
    check_int(layout_set_memory(layout, slot, LAYOUT_NO_MEMORY, 1, 2, true), 0);
    check(!layout_at_rank(layout, 0)->spool);
}
