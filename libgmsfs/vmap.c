/* SPDX-License-Identifier: Apache-2.0 */
#include "vmap.h"

#include "base/array.h"

#include <stdlib.h>
#include <string.h>

void gfs_vmap_free(struct gfs_vmap *map)
{
    for (size_t i = 0; i < map->mapping_count; i++)
        free(map->mappings[i].tag);
    free(map->mappings);
    free(map->reservations);
    memset(map, 0, sizeof *map);
}

int gfs_vmap_make_room(struct gfs_vmap *map, size_t reservations, size_t mappings)
{
    if (reservations > SIZE_MAX - map->reservation_count ||
        mappings > SIZE_MAX - map->mapping_count)
        return -ENOMEM;
    int error = ARRAY_RESERVE(map->reservations, map->reservation_room,
                              map->reservation_count + reservations);
    return error ? error
                 : ARRAY_RESERVE(map->mappings, map->mapping_room, map->mapping_count + mappings);
}

/* How many reservations begin at or below `address`. */
static size_t vmap_reservations_below(const struct gfs_vmap *map, uintptr_t address)
{
    size_t at = 0;

    ARRAY_SEARCH(at, map->reservation_count, map->reservations[at].base <= address);
    return at;
}

static size_t vmap_mappings_below(const struct gfs_vmap *map, uintptr_t address)
{
    size_t at = 0;

    ARRAY_SEARCH(at, map->mapping_count, map->mappings[at].va <= address);
    return at;
}

void gfs_vmap_add_reservation(struct gfs_vmap *map, const struct gfs_reservation *reservation)
{
    size_t at = vmap_reservations_below(map, reservation->base);
    struct gfs_reservation *place = map->reservations + at;

    memmove(place + 1, place, (map->reservation_count - at) * sizeof *place);
    *place = *reservation;
    map->reservation_count++;
}

void gfs_vmap_remove_reservation(struct gfs_vmap *map, struct gfs_reservation *reservation)
{
    size_t after = map->reservation_count - (size_t)(reservation - map->reservations) - 1;

    memmove(reservation, reservation + 1, after * sizeof *reservation);
    map->reservation_count--;
}

static void vmap_reverse(struct gfs_mapping *mappings, size_t count)
{
    for (size_t low = 0, high = count; low + 1 < high; low++) {
        struct gfs_mapping kept = mappings[low];
        mappings[low] = mappings[--high];
        mappings[high] = kept;
    }
}

/* Exchanges two blocks that are side by side. */
static void vmap_exchange(struct gfs_mapping *mappings, size_t first, size_t second)
{
    if (first == 0)
        return;
    vmap_reverse(mappings, first);
    vmap_reverse(mappings + first, second);
    vmap_reverse(mappings, first + second);
}

struct gfs_mapping *gfs_vmap_behind(const struct gfs_vmap *map)
{
    return map->mappings + map->mapping_count;
}

void gfs_vmap_add_mappings(struct gfs_vmap *map, const struct gfs_mapping *mappings, size_t count)
{
    if (count == 0)
        return;
    uintptr_t va = mappings[0].va;
    size_t at = vmap_mappings_below(map, va), above = map->mapping_count - at;
    struct gfs_mapping *place = map->mappings + at;
    if (mappings == gfs_vmap_behind(map)) {
        vmap_exchange(place, above, count);
    } else {
        memmove(place + count, place, above * sizeof *place);
        memcpy(place, mappings, count * sizeof *place);
    }
    map->mapping_count += count;
    struct gfs_reservation *reservation = gfs_vmap_find_reservation(map, va);
    if (reservation)
        reservation->mappings += count;
}

struct gfs_reservation *gfs_vmap_remove_mapping(struct gfs_vmap *map, struct gfs_mapping *mapping)
{
    struct gfs_reservation *reservation = gfs_vmap_find_reservation(map, mapping->va);
    size_t after = map->mapping_count - (size_t)(mapping - map->mappings) - 1;

    free(mapping->tag);
    memmove(mapping, mapping + 1, after * sizeof *mapping);
    map->mapping_count--;
    if (reservation)
        reservation->mappings--;
    return reservation;
}

struct gfs_reservation *gfs_vmap_find_reservation(const struct gfs_vmap *map, uintptr_t address)
{
    size_t below = vmap_reservations_below(map, address);
    struct gfs_reservation *found = below ? map->reservations + below - 1 : NULL;

    return found && address - found->base < found->size_bytes ? found : NULL;
}

struct gfs_mapping *gfs_vmap_find_mapping(const struct gfs_vmap *map, uintptr_t address)
{
    size_t below = vmap_mappings_below(map, address);
    struct gfs_mapping *found = below ? map->mappings + below - 1 : NULL;

    return found && address - found->va < found->aligned_bytes ? found : NULL;
}

int gfs_vmap_overlaps(const struct gfs_vmap *map, uintptr_t va, uint64_t size_bytes)
{
    size_t below = vmap_mappings_below(map, va);

    if (gfs_vmap_find_mapping(map, va))
        return 1;
    return below < map->mapping_count && map->mappings[below].va - va < size_bytes;
}

int gfs_vmap_next_run(const struct gfs_vmap *map, size_t *at, gfs_vmap_match_fn *match,
                      const void *context, uintptr_t *va, uint64_t *size_bytes)
{
    const struct gfs_reservation *reservation = NULL;
    uint64_t devices = 0;
    size_t i = *at;

    while (i < map->mapping_count && !match(map->mappings + i, context))
        i++;
    *size_bytes = 0;
    for (; i < map->mapping_count && match(map->mappings + i, context); i++) {
        const struct gfs_mapping *mapping = map->mappings + i;
        if (*size_bytes == 0) {
            *va = mapping->va;
            devices = mapping->devices;
            reservation = gfs_vmap_find_reservation(map, mapping->va);
        }
        /* The end of a reservation may be the beginning of another, by chance. */
        if (mapping->va != *va + *size_bytes || mapping->devices != devices ||
            (reservation && mapping->va - reservation->base >= reservation->size_bytes))
            break;
        *size_bytes += mapping->aligned_bytes;
    }
    *at = i;
    return *size_bytes != 0;
}
