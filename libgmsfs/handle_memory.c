/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a handle: of one device and one kind, as long as addresses are reserved. */
#include "internal.h"

#include <errno.h>
#include <string.h>

/* Reserved addresses belong to a device. */
int gfs_set_memory(struct gmsfs_store *handle, const struct gfs_memory *memory)
{
    const struct gfs_memory *old = &handle->memory;
    struct gfs_wishes wishes;

    if (old->kind == memory->kind && old->granularity_bytes == memory->granularity_bytes &&
        memcmp(old->uuid, memory->uuid, sizeof old->uuid) == 0)
        return 0;
    if (handle->map.reservation_count || handle->copy_count || handle->space_count)
        return -EXDEV;
    gfs_memory_close(&handle->memory);
    wishes = old->wishes;
    handle->memory = *memory;
    handle->memory.wishes = wishes;
    return 0;
}

static int gfs_set_memory_kind(struct gmsfs_store *handle, const struct gfs_memory_kind *kind)
{
    struct gfs_memory memory;

    gfs_memory_init(&memory, kind, handle->memory.uuid, handle->memory.granularity_bytes);
    return gfs_set_memory(handle, &memory);
}

int gfs_choose_memory(struct gmsfs_store *handle)
{
    int anywhere = handle->connect_flags & GMSFS_CONNECT_ANY && handle->mode == GMSFS_MODE_RO;
    struct gmsfs_ioc_info info;

    if (!anywhere && !handle->is_beside)
        return 0;
    memset(&info, 0, sizeof info);
    int error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
    if (error)
        return error;
    anywhere = anywhere && info.residency && !(info.residency & GMSFS_RESIDENCY_DEVICE);
    const struct gfs_memory_kind *kind =
        gfs_memory_find_kind(anywhere ? GMSFS_MEMORY_HOST : info.memory);
    if (kind && gfs_set_memory_kind(handle, kind) == 0)
        handle->is_beside = anywhere;
    return 0;
}

int gfs_follow_memory(struct gmsfs_store *handle, int error)
{
    if (error != -EXDEV || gfs_enter(handle) != 0)
        return 0;
    const struct gfs_memory_kind *before = handle->memory.kind;
    gfs_choose_memory(handle);
    error = handle->memory.kind != before;
    gfs_leave(handle);
    return error;
}
