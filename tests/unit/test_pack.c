/* SPDX-License-Identifier: Apache-2.0 */
/* The packing of tensors into allocations. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "model/pack.h"
#include "tap.h"

#define MIB (1ull << 20)

static uint64_t random_state = 88172645463325252ull;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

TAP_TEST(no_items_need_no_allocation)
{
    struct pack_plan plan;

    check_int(pack_plan(NULL, 0, MIB, &plan), 0);
    check_int(plan.allocation_count, 0);
    check_int(plan.total_bytes, 0);
    pack_free(&plan);
}

TAP_TEST(small_items_share_one_allocation_at_aligned_offsets)
{
    const struct pack_item items[] = {{0, 100, 10}, {0, 110, 513}, {0, 623, 512}};
    struct pack_plan plan;

    require(pack_plan(items, 3, MIB, &plan) == 0);
    check_int(plan.allocation_count, 1);
    check_int(plan.places[0].offset_bytes, 0);
    check_int(plan.places[1].offset_bytes, 512);
    check_int(plan.places[2].offset_bytes, 1536);
    check_int(plan.allocation_bytes[0], 2048);
    check_int(plan.total_bytes, 2048);
    pack_free(&plan);
}

TAP_TEST(items_are_placed_by_file_then_offset_not_by_array_order)
{
    const struct pack_item items[] = {{1, 0, 512}, {0, 512, 512}, {0, 0, 512}};
    struct pack_plan plan;

    require(pack_plan(items, 3, MIB, &plan) == 0);
    check_int(plan.places[2].offset_bytes, 0);
    check_int(plan.places[1].offset_bytes, 512);
    check_int(plan.places[0].offset_bytes, 1024);
    pack_free(&plan);
}

TAP_TEST(a_full_chunk_starts_the_next_allocation)
{
    const struct pack_item items[] = {{0, 0, 1024}, {0, 1024, 1024}, {0, 2048, 1}};
    struct pack_plan plan;

    require(pack_plan(items, 3, 2048, &plan) == 0);
    check_int(plan.allocation_count, 2);
    check_int(plan.places[1].allocation, 0);
    check_int(plan.places[2].allocation, 1);
    check_int(plan.places[2].offset_bytes, 0);
    check_int(plan.allocation_bytes[0], 2048);
    check_int(plan.allocation_bytes[1], 1);
    pack_free(&plan);
}

TAP_TEST(an_item_that_only_alignment_pushes_out_starts_the_next_allocation)
{
    const struct pack_item items[] = {{0, 0, 1}, {0, 1, 1023}};
    struct pack_plan plan;

    require(pack_plan(items, 2, 1024, &plan) == 0);
    check_int(plan.allocation_count, 2);
    pack_free(&plan);
}

TAP_TEST(an_item_larger_than_a_chunk_has_its_own_allocation)
{
    const struct pack_item items[] = {{0, 0, 100}, {0, 100, 5000}, {0, 5100, 100}};
    struct pack_plan plan;

    require(pack_plan(items, 3, 1024, &plan) == 0);
    check_int(plan.allocation_count, 2);
    check_int(plan.places[1].allocation, 1);
    check_int(plan.places[1].offset_bytes, 0);
    check_int(plan.allocation_bytes[1], 5000);
    check_int(plan.places[2].allocation, 0);
    check_int(plan.places[2].offset_bytes, 512);
    pack_free(&plan);
}

TAP_TEST(items_larger_than_a_chunk_are_numbered_after_sixteen_chunks)
{
    enum {
        ITEMS = 20
    };
    struct pack_item items[ITEMS];
    struct pack_plan plan;

    for (uint32_t i = 0; i < ITEMS; i++)
        items[i] = (struct pack_item){0, i * 5000, i == 0 || i == ITEMS - 1 ? 5000 : 1024};
    require(pack_plan(items, ITEMS, 1024, &plan) == 0);
    check_int(plan.allocation_count, ITEMS);
    check_int(plan.places[1].allocation, 0);
    check_int(plan.places[PACK_CHUNKS_BEFORE_LARGE].allocation, PACK_CHUNKS_BEFORE_LARGE - 1);
    check_int(plan.places[0].allocation, PACK_CHUNKS_BEFORE_LARGE);
    check_int(plan.allocation_bytes[PACK_CHUNKS_BEFORE_LARGE], 5000);
    check_int(plan.places[ITEMS - 1].allocation, PACK_CHUNKS_BEFORE_LARGE + 1);
    check_int(plan.places[PACK_CHUNKS_BEFORE_LARGE + 1].allocation, PACK_CHUNKS_BEFORE_LARGE + 2);
    pack_free(&plan);
}

TAP_TEST(an_item_of_exactly_a_chunk_fits)
{
    const struct pack_item items[] = {{0, 0, 1024}};
    struct pack_plan plan;

    require(pack_plan(items, 1, 1024, &plan) == 0);
    check_int(plan.allocation_count, 1);
    check_int(plan.allocation_bytes[0], 1024);
    pack_free(&plan);
}

TAP_TEST(an_empty_item_lies_inside_its_allocation)
{
    const struct pack_item items[] = {{0, 0, 512}, {0, 512, 0}, {0, 512, 0}};
    struct pack_plan plan;

    require(pack_plan(items, 3, MIB, &plan) == 0);
    check_int(plan.places[1].offset_bytes, 512);
    check_int(plan.places[2].offset_bytes, 1024);
    check(plan.places[2].offset_bytes < plan.allocation_bytes[0]);
    pack_free(&plan);
}

TAP_TEST(a_chunk_size_of_zero_is_invalid)
{
    const struct pack_item item = {0, 0, 1};
    struct pack_plan plan;

    check_int(pack_plan(&item, 1, 0, &plan), -EINVAL);
    check(plan.places == NULL);
}

TAP_TEST(sizes_that_overflow_are_refused)
{
    const struct pack_item huge[] = {{0, 0, UINT64_MAX / 2}, {0, 1, UINT64_MAX / 2}};
    const struct pack_item whole = {0, 0, UINT64_MAX};
    const struct pack_item edge[] = {{0, 0, UINT64_MAX / 2 - 512}, {0, 1, 512}, {0, 2, 1}};
    struct pack_plan plan;

    check_int(pack_plan(huge, 2, MIB, &plan), -EOVERFLOW);
    check_int(pack_plan(&whole, 1, UINT64_MAX, &plan), -EOVERFLOW);
    check_int(pack_plan(edge, 3, UINT64_MAX, &plan), -EOVERFLOW);
    check(plan.places == NULL && plan.allocation_bytes == NULL);
}

/* Laws of any plan: aligned, inside, nothing overlaps, chunks kept. */
static void check_plan(const struct pack_item *items, size_t count, uint64_t chunk_bytes,
                       const struct pack_plan *plan)
{
    uint64_t total = 0;

    for (size_t i = 0; i < count; i++) {
        const struct pack_place *place = &plan->places[i];

        require(place->allocation < plan->allocation_count);
        require(place->offset_bytes % PACK_ALIGNMENT_BYTES == 0);
        require(place->offset_bytes < plan->allocation_bytes[place->allocation]);
        require(items[i].size_bytes <=
                plan->allocation_bytes[place->allocation] - place->offset_bytes);
        for (size_t j = 0; j < i; j++) {
            const struct pack_place *other = &plan->places[j];

            if (other->allocation == place->allocation)
                require(other->offset_bytes + items[j].size_bytes <= place->offset_bytes ||
                        place->offset_bytes + items[i].size_bytes <= other->offset_bytes);
        }
        if (plan->allocation_bytes[place->allocation] > chunk_bytes)
            require(plan->allocation_bytes[place->allocation] == items[i].size_bytes);
    }
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        total += plan->allocation_bytes[i];
    require(total == plan->total_bytes);
}

TAP_TEST(the_chunk_chosen_is_a_power_of_two_that_follows_the_model)
{
    check_int(pack_choose_chunk(0), 64 * MIB);
    check_int(pack_choose_chunk(4096ull * MIB), 64 * MIB);
    check_int(pack_choose_chunk(4096ull * MIB + 64), 128 * MIB);
    check_int(pack_choose_chunk(16384ull * MIB), 256 * MIB);
    check_int(pack_choose_chunk(UINT64_MAX), 2048ull * MIB);
}

TAP_TEST(random_plans_are_aligned_inside_disjoint_and_deterministic)
{
    for (int round = 0; round < 2000; round++) {
        struct pack_item items[40];
        size_t count = 1 + random_next() % 40;
        uint64_t chunk_bytes = 1 + random_next() % 20000;
        uint64_t offset = 0;
        struct pack_plan plan;
        struct pack_plan again;

        for (size_t i = 0; i < count; i++) {
            uint64_t size_bytes = random_next() % 8 == 0 ? 0 : random_next() % 8000;

            items[i] = (struct pack_item){(uint32_t)(i / 10), offset, size_bytes};
            offset += items[i].size_bytes;
        }
        require(pack_plan(items, count, chunk_bytes, &plan) == 0);
        check_plan(items, count, chunk_bytes, &plan);
        require(pack_plan(items, count, chunk_bytes, &again) == 0);
        check_bytes(again.places, count * sizeof(*again.places), plan.places,
                    count * sizeof(*plan.places));
        pack_free(&plan);
        pack_free(&again);
    }
}
