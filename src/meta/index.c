/* SPDX-License-Identifier: Apache-2.0 */
/* Searches an index, and clones and clears it; index_edit.c changes it. */
#include "index_chunk.h"

#include "base/array.h"
#include "layout_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREFETCHED 8u

/* ---- searching ----------------------------------------------------------------------------- */

static int compare_serials(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

static int compare_entry(const struct layout_index *index, const struct layout_entry *entry,
                         const struct index_target *target)
{
    if (index->by_serial)
        return compare_serials(entry->serial, target->serial);
    return layout_compare_keys(entry->key, entry->key_bytes, target->key, target->key_bytes);
}

/* Compares the first entry of a chunk without reading the chunk. */
static int compare_chunk(const struct layout_index *index, size_t chunk,
                         const struct index_target *target)
{
    const struct index_chunk_ref *ref = &index->chunks[chunk];

    return index->by_serial ? compare_serials(ref->first_serial, target->serial)
                            : compare_entry(index, ref->first, target);
}

/* Returns the number of chunks that begin at or below the target, given that the first `low` do and
 * none from `high` on. */
static size_t bisect_chunks(const struct layout_index *index, const struct index_target *target,
                            size_t low, size_t high)
{
    ARRAY_SEARCH(low, high, compare_chunk(index, low, target) <= 0);
    return low;
}

/* Searches a chunk with entries below the target before `low`, and above it from `high` on. */
static struct layout_entry *bisect_entries(const struct layout_index *index,
                                           const struct index_target *target,
                                           struct index_place *place, size_t low, size_t high)
{
    struct layout_entry *const *entries = index->chunks[place->chunk].chunk->entries;

    ARRAY_SEARCH(low, high, compare_entry(index, entries[low], target) < 0);
    place->offset = (uint32_t)low;
    return low < high && compare_entry(index, entries[low], target) == 0 ? entries[low] : NULL;
}

static struct layout_entry *find_in_chunk(const struct layout_index *index,
                                          const struct index_target *target,
                                          struct index_place *place)
{
    const struct index_chunk_ref *ref = &index->chunks[place->chunk];
    uint64_t distance = target->serial - ref->first_serial;

    if (!index->by_serial || distance >= ref->count)
        return bisect_entries(index, target, place, 0, ref->count);
    /* The offset is at most the distance of the serials, and equal to it if none is missing
     * between. */
    struct layout_entry *guess = ref->chunk->entries[distance];
    place->offset = (uint32_t)distance;
    if (guess->serial == target->serial)
        return guess;
    return bisect_entries(index, target, place, 0, (size_t)distance);
}

struct layout_entry *layout_index_find(const struct layout_index *index,
                                       const struct index_target *target, struct index_place *place)
{
    size_t chunks = bisect_chunks(index, target, 0, index->chunk_count);

    *place = (struct index_place){0, 0};
    if (chunks == 0)
        return NULL;
    place->chunk = (uint32_t)chunks - 1;
    return find_in_chunk(index, target, place);
}

/* Searches the place's chunk: the entry there is below the target, the chunk's last is not. */
static struct layout_entry *find_near(const struct layout_index *index,
                                      const struct index_target *target, struct index_place *place)
{
    struct layout_entry *const *entries = index->chunks[place->chunk].chunk->entries;
    size_t low = place->offset + 1, high = index->chunks[place->chunk].count, stride = 1;

    while (low + stride < high && compare_entry(index, entries[low + stride - 1], target) < 0) {
        low += stride;
        stride *= 2;
    }
    if (low + stride < high)
        high = low + stride;
    return bisect_entries(index, target, place, low, high);
}

/* Searches from the place's chunk on, with entries that are all below the target. */
static struct layout_entry *find_further(const struct layout_index *index,
                                         const struct index_target *target,
                                         struct index_place *place)
{
    size_t low = place->chunk + 1, high = index->chunk_count, stride = 1;

    while (low + stride <= high && compare_chunk(index, low + stride - 1, target) <= 0) {
        low += stride;
        stride *= 2;
    }
    if (low + stride <= high)
        high = low + stride - 1;
    low = bisect_chunks(index, target, low, high) - 1;
    if (low == place->chunk) {
        place->offset = (uint32_t)index->chunks[low].count;
        return NULL;
    }
    place->chunk = (uint32_t)low;
    return find_in_chunk(index, target, place);
}

struct layout_entry *layout_index_search(const struct layout_index *index,
                                         const struct index_target *target,
                                         struct index_place *place)
{
    struct layout_entry *here = layout_index_at(index, *place);

    if (index->chunk_count == 0)
        return NULL;
    if (!here)
        return find_further(index, target, place);
    int order = compare_entry(index, here, target);
    if (order >= 0)
        return order == 0 ? here : NULL;
    const struct index_chunk_ref *ref = &index->chunks[place->chunk];
    if (compare_entry(index, ref->chunk->entries[ref->count - 1], target) >= 0)
        return find_near(index, target, place);
    return find_further(index, target, place);
}

struct layout_entry *layout_index_at(const struct layout_index *index, struct index_place place)
{
    if (place.chunk >= index->chunk_count || place.offset >= index->chunks[place.chunk].count)
        return NULL;
    return index->chunks[place.chunk].chunk->entries[place.offset];
}

struct layout_entry *const *layout_index_entries(const struct layout_index *index, size_t chunk)
{
    return index->chunks[chunk].chunk->entries;
}

/* ---- as a whole ---------------------------------------------------------------------------- */

int layout_index_reserve(struct layout_index *index, size_t count)
{
    size_t capacity = index->chunk_capacity + index->chunk_capacity / 2;
    struct index_chunk_ref *chunks;

    if (count <= index->chunk_capacity)
        return 0;
    if (capacity < count)
        capacity = count;
    chunks = realloc(index->chunks, capacity * sizeof *chunks);
    if (!chunks)
        return -ENOMEM;
    index->chunks = chunks;
    index->chunk_capacity = capacity;
    return 0;
}

int layout_index_clone(struct layout_index *copy, const struct layout_index *index)
{
    size_t count = index->chunk_count;

    if (layout_index_reserve(copy, count) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (i + PREFETCHED < count)
            __builtin_prefetch(index->chunks[i + PREFETCHED].chunk, 1);
        atomic_fetch_add_explicit(&index->chunks[i].chunk->refs, 1, memory_order_relaxed);
        copy->chunks[i] = index->chunks[i];
    }
    copy->chunk_count = count;
    return 0;
}

/* From the end: the newest chunks lie last in the heap, which then shrinks in steps. In the
 * other order the heap would be returned to the system as one piece, which blocks malloc in
 * every thread. */
void layout_index_clear(struct layout_index *index)
{
    for (size_t i = index->chunk_count; i > 0; i--) {
        if (i > PREFETCHED)
            __builtin_prefetch(index->chunks[i - 1 - PREFETCHED].chunk, 1);
        index_chunk_release(index, &index->chunks[i - 1]);
    }
    index->chunk_count = 0;
}
