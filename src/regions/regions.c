/* SPDX-License-Identifier: Apache-2.0 */
#include "regions/regions.h"

#include "base/array.h"
#include "base/clean.h"
#include "meta/name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int region_check_name(const char *name, size_t bytes)
{
    int error = bytes > REGION_MAX_NAME_BYTES ? -ENAMETOOLONG : name_check_key(name, bytes);

    if (error == 0 && memchr(name, '\0', bytes))
        return -EINVAL;
    return error;
}

int region_check_key(enum region_kind kind, const char *key, size_t bytes)
{
    if (kind == REGION_CUDA)
        return bytes == 0 ? 0 : -EINVAL;
    if (bytes > REGION_MAX_KEY_BYTES)
        return -ENAMETOOLONG;
    if (bytes == 0 || memchr(key, '\0', bytes) || !clean_is_utf8(key, bytes))
        return -EINVAL;
    return 0;
}

bool region_is_range(uint64_t offset, uint64_t byte_size)
{
    return byte_size > 0 && byte_size <= UINT64_MAX - offset;
}

struct region *region_new(const char *name, size_t name_bytes, const char *key, size_t key_bytes)
{
    struct region *region = calloc(1, sizeof *region + name_bytes + key_bytes + 2);

    if (!region)
        return NULL;
    memcpy(region->text, name, name_bytes);
    if (key_bytes > 0)
        memcpy(region->text + name_bytes + 1, key, key_bytes);
    region->name = region->text;
    region->name_bytes = name_bytes;
    region->key = region->text + name_bytes + 1;
    region->key_bytes = key_bytes;
    return region;
}

static int compare_names(const struct region *region, uint32_t uid, const char *name, size_t bytes)
{
    size_t shorter = region->name_bytes < bytes ? region->name_bytes : bytes;

    if (region->uid != uid)
        return region->uid < uid ? -1 : 1;
    int order = shorter > 0 ? memcmp(region->name, name, shorter) : 0;
    if (order != 0 || region->name_bytes == bytes)
        return order;
    return region->name_bytes < bytes ? -1 : 1;
}

/* Counts the regions before this owner and name. */
static size_t count_before(const struct regions *regions, uint32_t uid, const char *name,
                           size_t bytes)
{
    size_t at = 0;

    ARRAY_SEARCH(at, regions->items.count,
                 compare_names(regions->sorted[at], uid, name, bytes) < 0);
    return at;
}

int regions_reserve(struct regions *regions)
{
    struct idvec *items = &regions->items;
    int error = ARRAY_RESERVE(items->items, items->room, items->count + 1);

    return error ? error : ARRAY_RESERVE(regions->sorted, regions->room, items->count + 1);
}

void regions_add(struct regions *regions, struct region *region)
{
    size_t at = count_before(regions, region->uid, region->name, region->name_bytes);

    memmove(regions->sorted + at + 1, regions->sorted + at,
            (regions->items.count - at) * sizeof *regions->sorted);
    regions->sorted[at] = region;
    idvec_append(&regions->items, region);
}

void regions_remove(struct regions *regions, struct region *region)
{
    size_t at = count_before(regions, region->uid, region->name, region->name_bytes);

    idvec_remove(&regions->items, region->id);
    memmove(regions->sorted + at, regions->sorted + at + 1,
            (regions->items.count - at) * sizeof *regions->sorted);
    free(region);
}

void regions_free(struct regions *regions)
{
    idvec_free_items(&regions->items);
    free(regions->sorted);
}

struct region *regions_find(const struct regions *regions, uint64_t id)
{
    return idvec_find(&regions->items, id);
}

struct region *regions_find_name(const struct regions *regions, uint32_t uid, const char *name,
                                 size_t name_bytes)
{
    size_t at = count_before(regions, uid, name, name_bytes);

    if (at == regions->items.count ||
        compare_names(regions->sorted[at], uid, name, name_bytes) != 0)
        return NULL;
    return regions->sorted[at];
}

const struct region *regions_next(const struct regions *regions, uint32_t uid, const char *name,
                                  size_t name_bytes)
{
    size_t at = count_before(regions, uid, name, name_bytes);

    if (at < regions->items.count && compare_names(regions->sorted[at], uid, name, name_bytes) == 0)
        at++;
    if (at == regions->items.count || regions->sorted[at]->uid != uid)
        return NULL;
    return regions->sorted[at];
}

const struct region *regions_from_owner(const struct regions *regions, uint64_t uid)
{
    size_t at =
        uid <= UINT32_MAX ? count_before(regions, (uint32_t)uid, "", 0) : regions->items.count;

    return at < regions->items.count ? regions->sorted[at] : NULL;
}
