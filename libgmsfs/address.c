/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 1, addresses: reservations, and single mappings in them or with one of their own. */
#include <errno.h>
#include <string.h>

#include "internal.h"

int gfs_va_enter(struct gmsfs_store *handle, struct gfs_va_scope *scope)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = gfs_memory_enter(&handle->memory, 0, &scope->memory);
    if (error)
        gfs_leave(handle);
    else
        scope->handle = handle;
    return error;
}

void gfs_va_leave(struct gfs_va_scope *scope)
{
    struct gmsfs_store *handle = scope->handle;

    if (!handle)
        return;
    scope->handle = NULL;
    gfs_memory_leave(&scope->memory);
    gfs_leave(handle);
}

int gfs_va_make_room(struct gmsfs_store *handle, size_t reservations, size_t mappings)
{
    gfs_state_lock(handle);
    int error = gfs_vmap_make_room(&handle->map, reservations, mappings);
    gfs_state_unlock(handle);
    return error;
}

static void address_drop_reservation(struct gmsfs_store *handle,
                                     struct gfs_reservation *reservation)
{
    gfs_memory_release(&handle->memory, reservation->base, reservation->size_bytes);
    gfs_state_lock(handle);
    gfs_vmap_remove_reservation(&handle->map, reservation);
    gfs_state_unlock(handle);
}

static int address_is_live(const struct gfs_mapping *mapping, const void *context)
{
    (void)context;
    return mapping->live;
}

void gfs_va_drop_all(struct gmsfs_store *handle)
{
    uint64_t size_bytes;
    size_t at = 0;
    uintptr_t va;

    while (gfs_vmap_next_run(&handle->map, &at, address_is_live, NULL, &va, &size_bytes))
        gfs_memory_unmap(&handle->memory, va, size_bytes);
    for (size_t i = 0; i < handle->map.reservation_count; i++)
        gfs_memory_release(&handle->memory, handle->map.reservations[i].base,
                           handle->map.reservations[i].size_bytes);
}

/* ---- one mapping -------------------------------------------------------------------------- */

struct gfs_mapping gfs_va_describe(const struct gmsfs_store *handle, uintptr_t va,
                                   const struct gfs_item *item, enum gmsfs_access access,
                                   uint64_t devices)
{
    return (struct gfs_mapping){.va = va,
                                .size_bytes = item->size_bytes,
                                .aligned_bytes = item->aligned_bytes,
                                .slot = item->slot,
                                .rank = item->rank,
                                .ident = handle->ident,
                                .access = access,
                                .devices = devices,
                                .live = 1,
                                .tag = item->tag ? strdup(item->tag) : NULL};
}

int gfs_va_check_item(const struct gmsfs_store *handle, const struct gfs_item *item)
{
    int valid = item->aligned_bytes > 0 && item->aligned_bytes % handle->granularity_bytes == 0 &&
                item->size_bytes <= item->aligned_bytes && item->aligned_bytes < SIZE_MAX / 4;

    return valid ? 0 : -EPROTO;
}

struct address_single {
    struct gmsfs_store *handle;
    uintptr_t va; /* 0: reserve as much as the item needs */
    uint64_t reserved_bytes;
    enum gmsfs_access access;
    uint64_t devices;
    struct gfs_mapping mapping; /* out */
};

/* Is there room for it where the caller wants it? */
static int address_check_place(const struct address_single *single, uint64_t aligned_bytes)
{
    const struct gfs_vmap *map = &single->handle->map;
    struct gfs_reservation *reservation = gfs_vmap_find_reservation(map, single->va);

    if (!reservation || aligned_bytes > reservation->size_bytes - (single->va - reservation->base))
        return -EFAULT;
    return gfs_vmap_overlaps(map, single->va, aligned_bytes) ? -EBUSY : 0;
}

static int address_map(struct address_single *single, uint64_t aligned_bytes, int fd)
{
    struct gfs_memory *memory = &single->handle->memory;
    int error = gfs_memory_map(memory, single->va, aligned_bytes, single->access, fd);

    if (error)
        return error;
    error = gfs_memory_settle(memory, single->va, aligned_bytes, single->access, single->devices);
    if (error)
        gfs_memory_unmap(memory, single->va, aligned_bytes);
    return error;
}

static int address_take(void *context, const struct gfs_item *item, int *fd)
{
    struct address_single *single = context;
    struct gfs_memory *memory = &single->handle->memory;
    int error = gfs_va_check_item(single->handle, item);

    if (!error && single->va)
        error = address_check_place(single, item->aligned_bytes);
    else if (!error)
        error =
            gfs_memory_reserve(memory, item->aligned_bytes, &single->va, &single->reserved_bytes);
    if (!error)
        error = address_map(single, item->aligned_bytes, *fd);
    if (error && single->reserved_bytes) {
        gfs_memory_release(memory, single->va, single->reserved_bytes);
        single->va = 0;
        single->reserved_bytes = 0;
    }
    if (!error)
        single->mapping =
            gfs_va_describe(single->handle, single->va, item, single->access, single->devices);
    return error;
}

int gfs_va_make(struct gmsfs_store *handle, uintptr_t va, uint64_t slot, enum gmsfs_access access,
                struct gfs_mapping **mapping)
{
    struct address_single single = {.handle = handle, .va = va, .access = access};
    int error = gfs_export_check(handle, access);

    if (!error)
        error = gfs_memory_find_devices(&handle->memory, &single.devices);
    if (!error)
        error = gfs_va_make_room(handle, 1, 1);
    if (!error)
        error = gfs_export_slot(handle, slot, access, address_take, &single);
    if (error)
        return error;
    gfs_state_lock(handle);
    if (single.reserved_bytes)
        gfs_vmap_add_reservation(&handle->map,
                                 &(struct gfs_reservation){.base = single.va,
                                                           .size_bytes = single.reserved_bytes,
                                                           .automatic = 1});
    gfs_vmap_add_mappings(&handle->map, &single.mapping, 1);
    *mapping = gfs_vmap_find_mapping(&handle->map, single.va);
    gfs_state_unlock(handle);
    return 0;
}

int gfs_va_undo(struct gmsfs_store *handle, struct gfs_mapping *mapping, int keep_automatic)
{
    int error = 0;

    if (mapping->live)
        error = gfs_memory_synchronise(&handle->memory);
    if (!error && mapping->live)
        error = gfs_memory_unmap(&handle->memory, mapping->va, mapping->aligned_bytes);
    if (error)
        return error;
    gfs_state_lock(handle);
    struct gfs_reservation *reservation = gfs_vmap_remove_mapping(&handle->map, mapping);
    gfs_state_unlock(handle);
    if (!keep_automatic && reservation->automatic && reservation->mappings == 0)
        address_drop_reservation(handle, reservation);
    return 0;
}

struct gfs_mapping *gfs_va_find(const struct gmsfs_store *handle, const void *va)
{
    struct gfs_mapping *mapping = gfs_vmap_find_mapping(&handle->map, (uintptr_t)va);

    return mapping && mapping->va == (uintptr_t)va ? mapping : NULL;
}

/* ---- public ------------------------------------------------------------------------------- */

int gmsfs_reserve_va(gmsfs_t *handle, uint64_t size_bytes, void **va)
{
    GFS_VA_SCOPE(scope);
    struct gfs_reservation reservation = {0};

    if (!va)
        return -EINVAL;
    int error = gfs_va_enter(handle, &scope);
    if (error)
        return error;
    error = gfs_va_make_room(handle, 1, 0);
    if (!error)
        error = gfs_memory_reserve(&handle->memory, size_bytes, &reservation.base,
                                   &reservation.size_bytes);
    if (!error) {
        gfs_state_lock(handle);
        gfs_vmap_add_reservation(&handle->map, &reservation);
        gfs_state_unlock(handle);
        *va = (void *)reservation.base;
    }
    return error;
}

int gmsfs_map_va(gmsfs_t *handle, void *va, uint64_t slot, enum gmsfs_access access)
{
    GFS_VA_SCOPE(scope);
    struct gfs_mapping *mapping;
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    if (!va || (uintptr_t)va % handle->granularity_bytes)
        error = -EINVAL;
    else
        error = gfs_va_make(handle, (uintptr_t)va, slot, access, &mapping);
    return error;
}

int gmsfs_unmap_va(gmsfs_t *handle, void *va)
{
    GFS_VA_SCOPE(scope);
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    struct gfs_mapping *mapping = gfs_va_find(handle, va);
    if (mapping && gfs_slabs_find(&handle->slabs, mapping->va))
        error = -EBUSY;
    else
        error = mapping ? gfs_va_undo(handle, mapping, 1) : -ENOENT;
    return error;
}

int gmsfs_free_va(gmsfs_t *handle, void *va)
{
    GFS_VA_SCOPE(scope);
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    struct gfs_reservation *reservation = gfs_vmap_find_reservation(&handle->map, (uintptr_t)va);
    if (!reservation || reservation->base != (uintptr_t)va)
        error = -ENOENT;
    else if (reservation->mappings)
        error = -EBUSY;
    else
        address_drop_reservation(handle, reservation);
    return error;
}
