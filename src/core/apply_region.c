/* SPDX-License-Identifier: Apache-2.0 */
/* Regions: registration, references by open files, unregistration, and the end with their lock. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t text_bytes(const struct region *region)
{
    return region->name_bytes + region->key_bytes;
}

/* ---- their end ------------------------------------------------------------------------------ */

/* The effect releases its descriptor and closes the file of its session. */
static void drop_region(struct apply *apply, struct region *region)
{
    struct core *core = apply->core;

    core_push_effect(core, (struct effect){.type = EFFECT_REGION_OVER,
                                           .memory = region->memory,
                                           .file = region->file});
    apply_drop_region_tickets(core, region->id);
    share_give(&core->shares[CORE_BOUND_REGIONS], region->uid, 1);
    share_give(&core->shares[CORE_BOUND_REGION_BYTES], region->uid, text_bytes(region));
    regions_remove(&core->regions, region);
}

void apply_end_region_of(struct apply *apply, const struct core_file *file)
{
    struct region *region =
        file->kind == CORE_KIND_CTL ? regions_find(&apply->core->regions, file->serial) : NULL;

    if (!region || region->file != file->id)
        return;
    core_add_region_event(apply, CORE_EVENT_REGION_ENDED, region);
    drop_region(apply, region);
}

static void unregister(struct apply *apply, struct region *region)
{
    if (!region->draining)
        core_add_region_event(apply, CORE_EVENT_REGION_UNREGISTERED, region);
    region->draining = true;
    apply->out->count++;
    if (region->references == 0)
        drop_region(apply, region);
}

static bool matches(const struct region *region, uint32_t kind)
{
    return kind == REGION_ANY || (uint32_t)region->kind == kind;
}

static void unregister_all(struct apply *apply, uint32_t uid, uint32_t kind)
{
    struct regions *regions = &apply->core->regions;
    char name[REGION_MAX_NAME_BYTES + 1] = "";
    size_t name_bytes = 0;
    const struct region *next;

    while ((next = regions_next(regions, uid, name, name_bytes))) {
        name_bytes = next->name_bytes;
        memcpy(name, next->name, name_bytes);
        if (matches(next, kind) && !next->draining)
            unregister(apply, regions_find(regions, next->id));
    }
}

int apply_region_unregister(struct apply *apply)
{
    const struct record *record = apply->record;
    struct region *region;

    if (record->flags & ~(uint32_t)CORE_REGION_ALL || record->kind > REGION_CUDA)
        return -EINVAL;
    if (record->flags & CORE_REGION_ALL) {
        unregister_all(apply, record->uid, record->kind);
        return 0;
    }
    region =
        regions_find_name(&apply->core->regions, record->uid, record->name, record->name_bytes);
    if (!region || !matches(region, record->kind))
        return -ENOENT;
    unregister(apply, region);
    return 0;
}

/* ---- registering ---------------------------------------------------------------------------- */

/* Checks the allocation that the region is to lie on, and the file with the session that it takes
 * over. */
static int check_allocation(const struct core *core, const struct record *record,
                            const struct core_file *file)
{
    const struct core_session *session = file ? core_session(core, file->session) : NULL;
    const struct layout_allocation *allocation;

    if (!file || file->kind != CORE_KIND_CTL || file->serial != 0)
        return -EBADF;
    if (!session || session->mode != LOCK_MODE_RO || session->ending || session->opener != file->id)
        return -ESTALE;
    allocation =
        layout_find_serial(core_get_layout(core, core_store(core, file->store)), record->serial);
    if (!allocation || allocation->memory == LAYOUT_NO_MEMORY)
        return -ENOENT;
    if (record->offset + record->size_bytes > allocation->size_bytes)
        return -ERANGE;
    return record->flags & CORE_REGION_WRITABLE || record->memory != 0 ? -EINVAL : 0;
}

static int check_object(const struct core *core, const struct record *record)
{
    if (record->kind == REGION_CUDA)
        return record->flags || record->memory != 0 || record->serial != 0 ||
                       record->value_bytes != REGION_HANDLE_BYTES
                   ? -EINVAL
                   : 0;
    if (record->value_bytes > 0 || record->device_id != 0)
        return -EINVAL;
    if (record->file != 0)
        return check_allocation(core, record, core_file(core, record->file));
    if (record->memory == 0 || record->serial != 0)
        return -EINVAL;
    for (size_t i = 0; i < core->regions.items.count; i++) {
        const struct region *other = core->regions.items.items[i];

        if (other->memory == record->memory)
            return -EEXIST;
    }
    return core_memory(core, record->memory) ? -EEXIST : 0;
}

static int check_words(const struct record *record)
{
    if (record->kind != REGION_SYSTEM && record->kind != REGION_CUDA)
        return -EINVAL;
    int error = region_check_name(record->name, record->name_bytes);
    if (error == 0)
        error = region_check_key((enum region_kind)record->kind, record->tag, record->tag_bytes);
    if (error == 0 && (record->flags & ~(uint32_t)CORE_REGION_WRITABLE ||
                       !region_is_range(record->offset, record->size_bytes)))
        error = -EINVAL;
    return error;
}

static int take_shares(struct apply *apply, uint32_t uid, uint64_t bytes)
{
    int error = apply_take(apply, CORE_BOUND_REGIONS, NULL, uid, 1);

    if (error < 0)
        return error;
    error = apply_take(apply, CORE_BOUND_REGION_BYTES, NULL, uid, bytes);
    if (error < 0)
        share_give(&apply->core->shares[CORE_BOUND_REGIONS], uid, 1);
    return error;
}

static struct region *make_region(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_file *file = core_file(apply->core, record->file);
    struct region *region =
        region_new(record->name, record->name_bytes, record->tag, record->tag_bytes);

    if (!region)
        return NULL;
    region->id = apply->core->next_id;
    region->uid = record->uid;
    region->kind = (enum region_kind)record->kind;
    region->offset = record->offset;
    region->byte_size = record->size_bytes;
    region->device_id = (int64_t)record->device_id;
    if (record->value_bytes > 0)
        memcpy(region->raw_handle, record->value, sizeof region->raw_handle);
    region->memory = record->memory;
    region->writable = (record->flags & CORE_REGION_WRITABLE) != 0;
    region->registered_ms = record->wall_ms;
    if (file) {
        region->store = file->store;
        region->serial = record->serial;
        region->file = file->id;
    }
    return region;
}

int apply_region_register(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    int error = check_words(record);

    if (error == 0 && core->draining)
        error = -ENODEV;
    if (error == 0 &&
        regions_find_name(&core->regions, record->uid, record->name, record->name_bytes))
        error = -EEXIST;
    if (error == 0)
        error = check_object(core, record);
    if (error == 0 && regions_reserve(&core->regions) < 0)
        error = -ENOMEM;
    if (error < 0)
        return error;
    struct region *region = make_region(apply);
    error = region ? take_shares(apply, region->uid, text_bytes(region)) : -ENOMEM;
    if (error < 0) {
        free(region);
        return error;
    }
    core->next_id++;
    if (region->file != 0)
        core_file(core, region->file)->serial = region->id;
    regions_add(&core->regions, region);
    core_add_region_event(apply, CORE_EVENT_REGION_REGISTERED, region);
    apply->out->id = region->id;
    return 0;
}

/* ---- references ----------------------------------------------------------------------------- */

static int find_open(const struct core *core, uint64_t id, struct core_file **file,
                     struct region **region)
{
    *file = core_file(core, id);
    if (!*file || (*file)->kind != CORE_KIND_REGION)
        return -EBADF;
    *region = regions_find(&core->regions, (*file)->serial);
    return *region ? 0 : -ESTALE;
}

int apply_region_refer(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_session *session;
    struct core_file *file;
    struct region *region;
    int error = find_open(core, apply->record->file, &file, &region);

    if (error < 0)
        return error;
    apply->out->id = region->id;
    if (file->holds)
        return 0;
    if (region->file != 0) {
        session = core_session(core, core_file(core, region->file)->session);
        core_enter_session(session, file);
        apply->out->session = session->id;
    }
    file->holds = true;
    region->references++;
    return 0;
}

void apply_drop_reference(struct apply *apply, struct core_file *file)
{
    struct region *region = file->holds ? regions_find(&apply->core->regions, file->serial) : NULL;

    file->holds = false;
    if (!region)
        return;
    region->references--;
    if (region->references == 0 && region->draining)
        drop_region(apply, region);
}

int apply_region_release(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_session *session;
    struct core_file *file;
    struct region *region;
    int error = find_open(core, apply->record->file, &file, &region);

    if (error < 0)
        return error;
    if (!file->holds)
        return -ENOLCK;
    session = core_session(core, file->session);
    if (session)
        core_leave_session(session, file);
    apply_drop_reference(apply, file);
    return 0;
}
