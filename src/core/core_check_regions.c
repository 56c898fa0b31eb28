/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants of the regions: each has the members of its kind and the counted references. */
#include "core/core_check.h"

#include <errno.h>

/* A region has a descriptor, an allocation, or only a handle. */
static int check_object(const struct check *check, const struct region *region)
{
    bool of_allocation = region->file != 0;

    if ((region->store != 0) != of_allocation || (region->serial != 0) != of_allocation)
        return core_wrong(check, "it has only a part of the members of an allocation");
    if (region->kind == REGION_CUDA && (of_allocation || region->memory != 0))
        return core_wrong(check, "it is CUDA's and has an allocation or memory");
    if (region->kind != REGION_CUDA &&
        (!core_is_zero(region->raw_handle, sizeof region->raw_handle) || region->device_id != 0))
        return core_wrong(check, "it is not CUDA's and has a handle or a device");
    if (region->kind == REGION_SYSTEM && (region->memory != 0) == of_allocation)
        return core_wrong(check, "it needs either memory or an allocation");
    if (region->writable && region->memory == 0)
        return core_wrong(check, "it is writable without memory");
    return region->memory != 0 && core_memory(check->core, region->memory)
               ? core_wrong(check, "a store also has its memory")
               : 0;
}

static int check_lock(const struct check *check, const struct region *region)
{
    const struct core *core = check->core;
    const struct core_file *file = core_file(core, region->file);
    const struct core_session *session = file ? core_session(core, file->session) : NULL;

    if (region->file == 0)
        return 0;
    if (!file || file->kind != CORE_KIND_CTL || file->serial != region->id ||
        file->store != region->store)
        return core_wrong(check, "the file of its lock is gone");
    if (!session || session->mode != LOCK_MODE_RO || session->opener != file->id ||
        !session->exclusive)
        return core_wrong(check, "its lock is gone");
    const struct layout_allocation *allocation = core_find_region_allocation(core, region);
    if (!allocation || allocation->memory == LAYOUT_NO_MEMORY ||
        region->offset + region->byte_size > allocation->size_bytes)
        return core_wrong(check, "its allocation is gone, has no memory or is too short");
    return 0;
}

/* Also compares its memory with the memory of the regions before it. */
static int check_region(struct check *check, const void *item)
{
    const struct region *region = item;
    const struct core *core = check->core;

    if (region_check_name(region->name, region->name_bytes) < 0 ||
        region_check_key(region->kind, region->key, region->key_bytes) < 0)
        return core_wrong(check, "its name or its key is invalid");
    if (regions_find_name(&core->regions, region->uid, region->name, region->name_bytes) != region)
        return core_wrong(check, "a lookup by its name does not find it");
    if ((region->kind != REGION_SYSTEM && region->kind != REGION_CUDA) ||
        !region_is_range(region->offset, region->byte_size))
        return core_wrong(check, "its kind or its range is invalid");
    if (region->references != core_count_references(core, region->id))
        return core_wrong(check, "its count of references is wrong");
    if (region->draining && region->references == 0)
        return core_wrong(check, "it drains without references");
    for (size_t i = 0; i < check->index && region->memory != 0; i++) {
        if (((const struct region *)core->regions.items.items[i])->memory == region->memory)
            return core_wrong(check, "another region has its memory");
    }
    int error = check_object(check, region);
    return error < 0 ? error : check_lock(check, region);
}

int core_check_regions(struct check *check)
{
    const struct core *core = check->core;

    if (core->regions.items.count > CORE_MAX_REGIONS)
        return failure_set(check->failure, -EINVAL, "there are more than %u regions",
                           CORE_MAX_REGIONS);
    return core_check_each(check, "region", &core->regions.items, core->next_id, check_region);
}
