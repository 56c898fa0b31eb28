/* SPDX-License-Identifier: Apache-2.0 */
#include "memory.h"

#include <errno.h>
#include <string.h>

/* All kinds; doc/recipes.md lists the further parts of a new one. */
static const struct gfs_memory_kind *const kinds[] = {
    [GMSFS_MEMORY_HOST] = &gfs_memory_host,
    [GMSFS_MEMORY_CUDA] = &gfs_memory_cuda,
};

const struct gfs_memory_kind *gfs_memory_find_kind(uint32_t memory)
{
    return memory < sizeof kinds / sizeof kinds[0] ? kinds[memory] : NULL;
}

/* ---- the device --------------------------------------------------------------------------- */

void gfs_memory_init(struct gfs_memory *memory, const struct gfs_memory_kind *kind,
                     const uint8_t uuid[16], uint64_t granularity_bytes)
{
    memset(memory, 0, sizeof *memory);
    memory->kind = kind;
    memory->granularity_bytes = granularity_bytes;
    memcpy(memory->uuid, uuid, sizeof memory->uuid);
}

void gfs_memory_close(struct gfs_memory *memory)
{
    if (memory->device && memory->kind->close)
        memory->kind->close(memory);
    memory->device = NULL;
}

int gfs_memory_enter(struct gfs_memory *memory, int must, struct gfs_scope *scope)
{
    int error = 0;

    *scope = (struct gfs_scope){0};
    memory->error[0] = '\0';
    if (!memory->device && memory->kind->open)
        error = memory->kind->open(memory);
    if (!error && memory->kind->enter)
        error = memory->kind->enter(memory, scope, must);
    if (error)
        return error;
    scope->memory = memory;
    memory->scope = scope;
    return 0;
}

void gfs_memory_leave(struct gfs_scope *scope)
{
    struct gfs_memory *memory = scope->memory;

    if (!memory)
        return;
    scope->memory = NULL;
    memory->scope = NULL;
    if (memory->kind->leave)
        memory->kind->leave(memory, scope);
}

int gfs_memory_synchronise(struct gfs_memory *memory)
{
    if (memory->kind->synchronise)
        return memory->kind->synchronise(memory);
    return memory->wishes.synchronise
               ? memory->wishes.synchronise(memory->wishes.synchronise_context)
               : 0;
}

/* ---- addresses ---------------------------------------------------------------------------- */

int gfs_memory_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base,
                       uint64_t *reserved_bytes)
{
    uint64_t mask = memory->granularity_bytes - 1, rounded;

    if (size_bytes == 0)
        return -EINVAL;
    if (size_bytes > SIZE_MAX / 2 - 2 * memory->granularity_bytes)
        return -ENOMEM;
    rounded = (size_bytes + mask) & ~mask;
    int error = memory->kind->reserve(memory, rounded, base);
    if (!error)
        *reserved_bytes = rounded;
    return error;
}

void gfs_memory_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes)
{
    memory->kind->release(memory, base, size_bytes);
}

/* ---- mappings ----------------------------------------------------------------------------- */

int gfs_memory_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                   enum gmsfs_access access, int fd)
{
    return memory->kind->map(memory, va, size_bytes, access, fd);
}

int gfs_memory_find_devices(struct gfs_memory *memory, uint64_t *devices)
{
    *devices = 0;
    return memory->kind->find_devices ? memory->kind->find_devices(memory, devices) : 0;
}

int gfs_memory_settle(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                      enum gmsfs_access access, uint64_t devices)
{
    return memory->kind->settle(memory, va, size_bytes, access, devices);
}

int gfs_memory_protect(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                       enum gmsfs_access access, uint64_t devices)
{
    return memory->kind->protect(memory, va, size_bytes, access, devices);
}

int gfs_memory_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes)
{
    return memory->kind->unmap(memory, va, size_bytes);
}

/* ---- ranges ------------------------------------------------------------------------------- */

int gfs_range_begin(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes)
{
    int error = gfs_memory_find_devices(memory, &range->devices);

    return error ? error
                 : gfs_memory_reserve(memory, size_bytes, &range->base, &range->reserved_bytes);
}

int gfs_range_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                     uint64_t used_bytes, enum gmsfs_access access, int fd)
{
    if (size_bytes > range->reserved_bytes - range->mapped_bytes)
        return -ENOSPC;
    int error = memory->kind->append(memory, range, size_bytes, used_bytes, access, fd);
    if (!error)
        range->mapped_bytes += size_bytes;
    return error;
}

int gfs_range_end(struct gfs_memory *memory, struct gfs_range *range, enum gmsfs_access access)
{
    if (range->mapped_bytes != range->reserved_bytes)
        return -ENOSPC;
    return gfs_memory_settle(memory, range->base, range->reserved_bytes, access, range->devices);
}

void gfs_range_cancel(struct gfs_memory *memory, struct gfs_range *range)
{
    if (range->base)
        memory->kind->cancel(memory, range);
    memset(range, 0, sizeof *range);
}

/* ---- memory of this process alone --------------------------------------------------------- */

int gfs_memory_copy(struct gfs_memory *memory, uintptr_t from, uint64_t size_bytes,
                    struct gfs_copy *copy)
{
    *copy = (struct gfs_copy){.size_bytes = size_bytes};
    return memory->kind->copy(memory, from, copy);
}

void gfs_memory_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy)
{
    memory->kind->drop_copy(memory, copy);
}

/* ---- memory that is mapped at several places ---------------------------------------------- */

int gfs_memory_hold(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held)
{
    *held = (struct gfs_held){0};
    return memory->kind->hold(memory, size_bytes, fd, held);
}

int gfs_memory_map_held(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                        const struct gfs_held *held)
{
    return memory->kind->map_held(memory, va, size_bytes, held);
}

void gfs_memory_let_go(struct gfs_memory *memory, uint64_t size_bytes, struct gfs_held *held)
{
    memory->kind->let_go(memory, size_bytes, held);
    *held = (struct gfs_held){0};
}

/* ---- turns -------------------------------------------------------------------------------- */

int gfs_memory_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                         int refuse)
{
    return memory->kind->wait_turn ? memory->kind->wait_turn(memory, turn, stream, refuse) : 0;
}

int gfs_memory_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream)
{
    return memory->kind->end_turn ? memory->kind->end_turn(memory, turn, stream) : 0;
}

void gfs_memory_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn)
{
    if (turn->event)
        memory->kind->drop_turn(memory, turn);
    *turn = (struct gfs_turn){0};
}

int gfs_memory_is_ordinal(const struct gfs_memory *memory, int ordinal)
{
    return !memory->kind->ordinal || memory->kind->ordinal(memory) == ordinal;
}

/* ---- fork --------------------------------------------------------------------------------- */

void gfs_memory_after_fork(const struct gfs_memory *memory, const struct gfs_range *range,
                           const struct gfs_vmap *map, int waking)
{
    if (memory->kind->after_fork)
        memory->kind->after_fork(range, map, waking);
}
