/* SPDX-License-Identifier: Apache-2.0 */
/* The program's settings for its device, its private copies, and the size of its memory. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#include "base/array.h"

/* ---- wishes ------------------------------------------------------------------------------- */

int gmsfs_set_streams(gmsfs_t *handle, void *const *streams, size_t count)
{
    void **copy = NULL, **before;

    if ((count && !streams) || count > SIZE_MAX / 2 / sizeof *copy)
        return -EINVAL;
    if (count) {
        copy = malloc(count * sizeof *copy);
        if (!copy)
            return -ENOMEM;
        memcpy(copy, streams, count * sizeof *copy);
    }
    int error = gfs_enter(handle);
    if (error) {
        free(copy);
        return error;
    }
    before = handle->memory.wishes.streams;
    handle->memory.wishes.streams = copy;
    handle->memory.wishes.stream_count = count;
    gfs_leave(handle);
    free(before); /* last: a child of fork() frees the pointer that it finds there */
    return 0;
}

int gmsfs_set_synchronise(gmsfs_t *handle, gmsfs_synchronise_fn synchronise, void *context)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    handle->memory.wishes.synchronise = synchronise;
    handle->memory.wishes.synchronise_context = context;
    gfs_leave(handle);
    return 0;
}

int gmsfs_set_devices(gmsfs_t *handle, const uint8_t (*uuids)[16], size_t count)
{
    if ((count && !uuids) || count > GMSFS_DEVICES_MAX)
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    if (count)
        memcpy(handle->memory.wishes.devices, uuids, count * sizeof *uuids);
    handle->memory.wishes.device_count = count;
    gfs_leave(handle);
    return 0;
}

int gmsfs_device_error(gmsfs_t *handle, char text[GMSFS_DEVICE_ERROR_BYTES])
{
    int error = text ? gfs_enter(handle) : -EINVAL;

    if (error)
        return error;
    memcpy(text, handle->memory.error, GMSFS_DEVICE_ERROR_BYTES);
    gfs_leave(handle);
    return 0;
}

/* ---- private copies ----------------------------------------------------------------------- */

/* Is all of it in live mappings? */
static int private_check_range(const struct gfs_vmap *map, uintptr_t va, uint64_t size_bytes)
{
    while (size_bytes) {
        const struct gfs_mapping *mapping = gfs_vmap_find_mapping(map, va);

        if (!mapping || !mapping->live)
            return -ENOENT;
        uint64_t part_bytes = mapping->aligned_bytes - (va - mapping->va);
        part_bytes = part_bytes < size_bytes ? part_bytes : size_bytes;
        va += part_bytes;
        size_bytes -= part_bytes;
    }
    return 0;
}

static int private_make_room(struct gmsfs_store *handle)
{
    gfs_gate_enter(); /* a child of fork() frees them */
    int error = ARRAY_RESERVE(handle->copies, handle->copy_room, handle->copy_count + 1);
    gfs_gate_leave();
    return error;
}

int gmsfs_copy_private(gmsfs_t *handle, const void *ptr, uint64_t size_bytes, void **out)
{
    GFS_VA_SCOPE(scope);
    struct gfs_copy copy;

    if (!ptr || !out || size_bytes == 0)
        return -EINVAL;
    int error = gfs_va_enter(handle, &scope);
    if (error)
        return error;
    error = private_check_range(&handle->map, (uintptr_t)ptr, size_bytes);
    if (!error)
        error = private_make_room(handle);
    if (!error)
        /* a stream may still be writing it */
        error = gfs_memory_synchronise(&handle->memory);
    if (!error)
        error = gfs_memory_copy(&handle->memory, (uintptr_t)ptr, size_bytes, &copy);
    if (!error) {
        handle->copies[handle->copy_count++] = copy;
        *out = (void *)copy.va;
    }
    return error;
}

int gmsfs_free_private(gmsfs_t *handle, void *ptr)
{
    GFS_VA_SCOPE(scope);
    int error = gfs_va_enter(handle, &scope);
    size_t at = 0;

    if (error)
        return error;
    while (at < handle->copy_count && handle->copies[at].va != (uintptr_t)ptr)
        at++;
    error = at < handle->copy_count ? gfs_memory_synchronise(&handle->memory) : -ENOENT;
    if (!error) {
        gfs_memory_drop_copy(&handle->memory, handle->copies + at);
        handle->copies[at] = handle->copies[--handle->copy_count];
    }
    return error;
}

void gfs_private_drop_all(struct gmsfs_store *handle)
{
    for (size_t i = 0; i < handle->copy_count; i++)
        gfs_memory_drop_copy(&handle->memory, handle->copies + i);
    handle->copy_count = 0;
}

/* ---- how much ----------------------------------------------------------------------------- */

static int private_compare(const void *left, const void *right)
{
    const struct gfs_mapping *a = *(struct gfs_mapping *const *)left;
    const struct gfs_mapping *b = *(struct gfs_mapping *const *)right;

    if (a->ident.epoch != b->ident.epoch)
        return a->ident.epoch < b->ident.epoch ? -1 : 1;
    return (a->slot > b->slot) - (a->slot < b->slot);
}

/* An allocation that is mapped twice is there once. */
static int private_count_shared(const struct gfs_vmap *map, struct gmsfs_memory_info *info)
{
    struct gfs_mapping **live = malloc((map->mapping_count + 1) * sizeof *live);
    size_t count = 0;

    if (!live)
        return -ENOMEM;
    for (size_t i = 0; i < map->mapping_count; i++) {
        if (map->mappings[i].live)
            live[count++] = map->mappings + i;
        else
            info->preserved_bytes += map->mappings[i].aligned_bytes;
    }
    if (count > 1)
        qsort(live, count, sizeof *live, private_compare);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || private_compare(live + i - 1, live + i) != 0)
            info->shared_bytes += live[i]->aligned_bytes;
    free(live);
    return 0;
}

int(gmsfs_memory_info)(gmsfs_t *handle, struct gmsfs_memory_info *out, size_t out_bytes)
{
    struct gmsfs_memory_info info = {0};
    int error = out && !gfs_check_struct(out_bytes) ? gfs_enter(handle) : -EINVAL;

    if (error)
        return error;
    error = private_count_shared(&handle->map, &info);
    for (size_t i = 0; i < handle->copy_count; i++)
        info.private_bytes += handle->copies[i].size_bytes;
    gfs_leave(handle);
    if (!error)
        gfs_give_struct(out, out_bytes, &info, sizeof info);
    return error;
}
