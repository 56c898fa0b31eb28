/* SPDX-License-Identifier: Apache-2.0 */
#include "pack.h"

#include "base/scope.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PACK_MAX_BYTES (UINT64_MAX / 2)

/* An item with its index, which decides between items at one place (empty ones). */
struct ordered {
    struct pack_item item;
    size_t number;
};

static int order_compare(const void *left, const void *right)
{
    const struct ordered *l = left;
    const struct ordered *r = right;

    if (l->item.file != r->item.file)
        return l->item.file < r->item.file ? -1 : 1;
    if (l->item.file_offset_bytes != r->item.file_offset_bytes)
        return l->item.file_offset_bytes < r->item.file_offset_bytes ? -1 : 1;
    if (l->item.size_bytes != r->item.size_bytes)
        return l->item.size_bytes < r->item.size_bytes ? -1 : 1;
    return (l->number > r->number) - (l->number < r->number);
}

static uint64_t align_up(uint64_t bytes)
{
    return (bytes + PACK_ALIGNMENT_BYTES - 1) / PACK_ALIGNMENT_BYTES * PACK_ALIGNMENT_BYTES;
}

/* Starts an allocation; the array has room for one per item. */
static int begin_allocation(struct pack_plan *plan, uint32_t *index)
{
    if (plan->allocation_count == UINT32_MAX)
        return -EOVERFLOW;
    *index = plan->allocation_count++;
    plan->allocation_bytes[*index] = 0;
    return 0;
}

/* `open_chunk`: allocation for small items; UINT32_MAX before the first. */
static int place_item(struct pack_plan *plan, const struct ordered *ordered, uint64_t chunk_bytes,
                      uint32_t *open_chunk)
{
    uint64_t size_bytes = ordered->item.size_bytes > 0 ? ordered->item.size_bytes : 1;
    struct pack_place *place = &plan->places[ordered->number];
    bool own = size_bytes > chunk_bytes;
    uint64_t start = 0;
    int error = 0;

    if (plan->total_bytes > PACK_MAX_BYTES - PACK_ALIGNMENT_BYTES ||
        size_bytes > PACK_MAX_BYTES - PACK_ALIGNMENT_BYTES - plan->total_bytes)
        return -EOVERFLOW;
    if (!own && *open_chunk != UINT32_MAX)
        start = align_up(plan->allocation_bytes[*open_chunk]);
    if (own) {
        error = begin_allocation(plan, &place->allocation);
    } else {
        if (*open_chunk == UINT32_MAX || start > chunk_bytes || size_bytes > chunk_bytes - start) {
            start = 0;
            error = begin_allocation(plan, open_chunk);
        }
        place->allocation = *open_chunk;
    }
    if (error != 0)
        return error;
    place->offset_bytes = start;
    plan->total_bytes += start + size_bytes - plan->allocation_bytes[place->allocation];
    plan->allocation_bytes[place->allocation] = start + size_bytes;
    return 0;
}

/* Chooses the number of each allocation. */
static void choose_numbers(const struct pack_plan *plan, uint64_t chunk_bytes, uint32_t *numbers)
{
    uint32_t chunks = 0, number = 0, at = 0;

    for (; at < plan->allocation_count && chunks < PACK_CHUNKS_BEFORE_LARGE; at++)
        if (plan->allocation_bytes[at] <= chunk_bytes) {
            numbers[at] = number++;
            chunks++;
        }
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        if (plan->allocation_bytes[i] > chunk_bytes)
            numbers[i] = number++;
    for (; at < plan->allocation_count; at++)
        if (plan->allocation_bytes[at] <= chunk_bytes)
            numbers[at] = number++;
}

static int number_anew(struct pack_plan *plan, uint64_t chunk_bytes)
{
    SCOPED_FREE uint32_t *numbers = calloc(plan->allocation_count, sizeof(*numbers));
    uint64_t *bytes = calloc(plan->allocation_count, sizeof(*bytes));

    if (numbers == NULL || bytes == NULL) {
        free(bytes);
        return -ENOMEM;
    }
    choose_numbers(plan, chunk_bytes, numbers);
    for (size_t i = 0; i < plan->place_count; i++)
        plan->places[i].allocation = numbers[plan->places[i].allocation];
    for (uint32_t i = 0; i < plan->allocation_count; i++)
        bytes[numbers[i]] = plan->allocation_bytes[i];
    free(plan->allocation_bytes);
    plan->allocation_bytes = bytes;
    return 0;
}

int pack_plan(const struct pack_item *items, size_t count, uint64_t chunk_bytes,
              struct pack_plan *plan)
{
    struct ordered *order = NULL;
    uint32_t open_chunk = UINT32_MAX;
    int error = 0;

    memset(plan, 0, sizeof(*plan));
    if (chunk_bytes == 0)
        return -EINVAL;
    if (count == 0)
        return 0;
    order = calloc(count, sizeof(*order));
    plan->places = calloc(count, sizeof(*plan->places));
    plan->allocation_bytes = calloc(count, sizeof(*plan->allocation_bytes));
    plan->place_count = count;
    if (order == NULL || plan->places == NULL || plan->allocation_bytes == NULL) {
        error = -ENOMEM;
        goto out;
    }
    for (size_t i = 0; i < count; i++)
        order[i] = (struct ordered){items[i], i};
    qsort(order, count, sizeof(*order), order_compare);
    for (size_t i = 0; i < count && error == 0; i++)
        error = place_item(plan, &order[i], chunk_bytes, &open_chunk);
    if (error == 0)
        error = number_anew(plan, chunk_bytes);
out:
    free(order);
    if (error != 0)
        pack_free(plan);
    return error;
}

uint64_t pack_choose_chunk(uint64_t model_bytes)
{
    uint64_t chunk_bytes = PACK_LEAST_CHUNK_BYTES;

    while (chunk_bytes < PACK_MOST_CHUNK_BYTES && chunk_bytes < model_bytes / PACK_CHUNKS)
        chunk_bytes *= 2;
    return chunk_bytes;
}

void pack_free(struct pack_plan *plan)
{
    free(plan->places);
    free(plan->allocation_bytes);
    memset(plan, 0, sizeof(*plan));
}
