/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of the regions: each has the members of its kind and the counted references. */
#include "core/core_internal.h"

#include <errno.h>

#define WRONG(region, text) core_wrong(failure, "region", (region)->id, text)

/* A region has a descriptor, an allocation, or only a handle. */
static int check_object(const struct core *core, const struct region *region,
                        struct failure *failure)
{
    bool of_allocation = region->file != 0;

    if ((region->store != 0) != of_allocation || (region->serial != 0) != of_allocation)
        return WRONG(region, "it has only a part of the members of an allocation");
    if (region->kind == REGION_CUDA && (of_allocation || region->memory != 0))
        return WRONG(region, "it is CUDA's and has an allocation or memory");
    if (region->kind != REGION_CUDA &&
        (!core_is_zero(region->raw_handle, sizeof region->raw_handle) || region->device_id != 0))
        return WRONG(region, "it is not CUDA's and has a handle or a device");
    if (region->kind == REGION_SYSTEM && (region->memory != 0) == of_allocation)
        return WRONG(region, "it needs either memory or an allocation");
    if (region->writable && region->memory == 0)
        return WRONG(region, "it is writable without memory");
    return region->memory != 0 && core_memory(core, region->memory)
               ? WRONG(region, "a store also has its memory")
               : 0;
}

static int check_lock(const struct core *core, const struct region *region, struct failure *failure)
{
    const struct core_file *file = core_file(core, region->file);
    const struct core_session *session = file ? core_session(core, file->session) : NULL;
    const struct layout_allocation *allocation;

    if (region->file == 0)
        return 0;
    if (!file || file->kind != CORE_KIND_CTL || file->serial != region->id ||
        file->store != region->store)
        return WRONG(region, "the file of its lock is gone");
    if (!session || session->mode != LOCK_MODE_RO || session->opener != file->id ||
        !session->exclusive)
        return WRONG(region, "its lock is gone");
    allocation = core_find_region_allocation(core, region);
    if (!allocation || allocation->memory == LAYOUT_NO_MEMORY ||
        region->offset + region->byte_size > allocation->size_bytes)
        return WRONG(region, "its allocation is gone, has no memory or is too short");
    return 0;
}

static int check_region(const struct core *core, const struct region *region,
                        struct failure *failure)
{
    int error;

    if (region_check_name(region->name, region->name_bytes) < 0 ||
        region_check_key(region->kind, region->key, region->key_bytes) < 0)
        return WRONG(region, "its name or its key is invalid");
    if (regions_find_name(&core->regions, region->uid, region->name, region->name_bytes) != region)
        return WRONG(region, "a lookup by its name does not find it");
    if ((region->kind != REGION_SYSTEM && region->kind != REGION_CUDA) ||
        !region_is_range(region->offset, region->byte_size))
        return WRONG(region, "its kind or its range is invalid");
    if (region->references != core_count_references(core, region->id))
        return WRONG(region, "its count of references is wrong");
    if (region->draining && region->references == 0)
        return WRONG(region, "it drains without references");
    error = check_object(core, region, failure);
    return error < 0 ? error : check_lock(core, region, failure);
}

static int check_memories(const struct idvec *items, struct failure *failure)
{
    for (size_t i = 0; i < items->count; i++) {
        const struct region *region = items->items[i];

        for (size_t j = 0; j < i && region->memory != 0; j++) {
            if (((const struct region *)items->items[j])->memory == region->memory)
                return WRONG(region, "another region has its memory");
        }
    }
    return 0;
}

int core_check_regions(const struct core *core, struct failure *failure)
{
    const struct idvec *items = &core->regions.items;
    int error = check_memories(items, failure);

    if (error == 0 && items->count > CORE_MAX_REGIONS)
        error = failure_set(failure, -EINVAL, "there are more than %u regions", CORE_MAX_REGIONS);
    for (size_t i = 0; i < items->count && error == 0; i++)
        error = check_region(core, items->items[i], failure);
    return error;
}
