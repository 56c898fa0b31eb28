/* SPDX-License-Identifier: Apache-2.0 */
/* What a handle maps: memory of one device and one kind, for as long as anything is reserved. */
#include "internal.h"

#include <errno.h>
#include <string.h>

/* What is reserved belongs to a device. */
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

int gfs_set_memory_kind(struct gmsfs_store *handle, const struct gfs_memory_kind *kind)
{
    struct gfs_memory memory;

    gfs_memory_init(&memory, kind, handle->memory.uuid, handle->memory.granularity_bytes);
    return gfs_set_memory(handle, &memory);
}
