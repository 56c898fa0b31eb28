/* SPDX-License-Identifier: Apache-2.0 */
/* The allocations of a layout by rank, slot, serial and name; by wire id: wire_id.c. */
#include "layout_internal.h"

#include "base/array.h"

#include <string.h>

const struct layout_allocation *layout_at_rank(const struct layout *layout, size_t rank)
{
    return rank < layout->allocation_count ? layout->by_slot[rank] : NULL;
}

size_t layout_slot_lower_bound(const struct layout *layout, uint64_t slot)
{
    size_t at = 0, high = layout->allocation_count;
    uint64_t first = high ? layout->by_slot[0]->slot : 0;

    /* The rank is at most the distance of this slot from the first, and equal to it without
     * gaps. */
    if (slot <= first)
        return 0;
    if (slot - first < high) {
        size_t guess = (size_t)(slot - first);
        if (layout->by_slot[guess]->slot == slot)
            return guess;
        high = guess;
    }
    ARRAY_SEARCH(at, high, layout->by_slot[at]->slot < slot);
    return at;
}

struct layout_allocation *layout_slot(const struct layout *layout, uint64_t slot, size_t *rank)
{
    size_t at = layout_slot_lower_bound(layout, slot);

    if (at == layout->allocation_count || layout->by_slot[at]->slot != slot)
        return NULL;
    if (rank)
        *rank = at;
    return layout->by_slot[at];
}

const struct layout_allocation *layout_find_slot(const struct layout *layout, uint64_t slot,
                                                 size_t *rank)
{
    return layout_slot(layout, slot, rank);
}

const struct layout_allocation *layout_find_serial(const struct layout *layout, uint64_t serial)
{
    size_t at = 0;

    ARRAY_SEARCH(at, layout->allocation_count, layout->by_slot[at]->serial < serial);
    if (at == layout->allocation_count || layout->by_slot[at]->serial != serial)
        return NULL;
    return layout->by_slot[at];
}

size_t layout_name_lower_bound(const struct layout *layout, const char *name)
{
    size_t at = 0;

    ARRAY_SEARCH(at, layout->allocation_count, strcmp(layout->by_name[at]->name, name) < 0);
    return at;
}

const struct layout_allocation *layout_find_name(const struct layout *layout, const char *name)
{
    size_t at = layout_name_lower_bound(layout, name);

    if (at == layout->allocation_count || strcmp(layout->by_name[at]->name, name) != 0)
        return NULL;
    return layout->by_name[at];
}

size_t layout_entry_rank(const struct layout *layout, const struct layout_entry *entry)
{
    struct index_target target = {.key = entry->key, .key_bytes = entry->key_bytes};
    struct index_place place;

    layout_index_find(&layout->by_key, &target, &place);
    size_t rank = place.offset;
    for (size_t i = 0; i < place.chunk; i++)
        rank += layout->by_key.chunks[i].count;
    return rank;
}

const struct layout_entry *layout_entry_at(const struct layout *layout, size_t rank)
{
    const struct layout_index *index = &layout->by_key;
    struct index_place place = {0};

    while (place.chunk < index->chunk_count && rank >= index->chunks[place.chunk].count)
        rank -= index->chunks[place.chunk++].count;
    if (place.chunk == index->chunk_count)
        return NULL;
    place.offset = (uint32_t)rank;
    return layout_index_at(index, place);
}
