/* SPDX-License-Identifier: Apache-2.0 */
/* Address space on host memory: a reservation is a PROT_NONE mapping, and memory is put over it
 * with MAP_FIXED, so an address stays the handle's own from reserve to free. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "internal.h"
#include "layout.h"

#define MAPPING_RESERVE_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* ---- address space ------------------------------------------------------------------------ */

static uint64_t mapping_round_up(const struct gmsfs *handle, uint64_t size_bytes)
{
    uint64_t mask = handle->granularity_bytes - 1;

    return (size_bytes + mask) & ~mask;
}

/* Asks for one granule more than needed, and gives back what lies before and after. */
int gfs_va_reserve(struct gmsfs *handle, uint64_t size_bytes, uintptr_t *base,
                   uint64_t *reserved_bytes)
{
    uint64_t granularity_bytes = handle->granularity_bytes, rounded, head;
    char *start;
    int r = 0;

    if (size_bytes == 0)
        return -EINVAL;
    if (size_bytes > SIZE_MAX / 2 - 2 * granularity_bytes)
        return -ENOMEM;
    rounded = mapping_round_up(handle, size_bytes);
    gfs_gate_enter();
    start = mmap(NULL, rounded + granularity_bytes, PROT_NONE, MAPPING_RESERVE_FLAGS, -1, 0);
    if (start == MAP_FAILED) {
        r = -errno;
    } else {
        head = mapping_round_up(handle, (uintptr_t)start) - (uintptr_t)start;
        if (head)
            munmap(start, head);
        if (head < granularity_bytes)
            munmap(start + head + rounded, granularity_bytes - head);
        madvise(start + head, rounded, MADV_DONTFORK);
        *base = (uintptr_t)start + head;
        *reserved_bytes = rounded;
    }
    gfs_gate_leave();
    return r;
}

/* Memory that is not there would be a SIGBUS at the first touch, far from its cause. */
int gfs_va_map(uintptr_t va, uint64_t aligned_bytes, enum gmsfs_access access, int fd)
{
    int protection = access == GMSFS_ACCESS_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    struct stat status;
    int r;

    if (fstat(fd, &status) < 0)
        return -errno;
    if (status.st_size < 0 || (uint64_t)status.st_size < aligned_bytes)
        return -EPROTO;
    if (mmap((void *)va, aligned_bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        r = -errno;
        gfs_va_unmap(va, aligned_bytes); /* it may have taken the reservation away first */
        return r;
    }
    madvise((void *)va, aligned_bytes, MADV_DONTFORK);
    return 0;
}

int gfs_va_unmap(uintptr_t va, uint64_t aligned_bytes)
{
    int r = 0;

    gfs_gate_enter();
    if (mmap((void *)va, aligned_bytes, PROT_NONE, MAPPING_RESERVE_FLAGS | MAP_FIXED, -1, 0) ==
        MAP_FAILED)
        r = -errno;
    else
        madvise((void *)va, aligned_bytes, MADV_DONTFORK);
    gfs_gate_leave();
    return r;
}

static int mapping_make_room(struct gmsfs *handle, size_t reservations, size_t mappings)
{
    int r;

    gfs_state_lock(handle);
    r = gfs_vmap_make_room(&handle->map, reservations, mappings);
    gfs_state_unlock(handle);
    return r;
}

static void mapping_drop_reservation(struct gmsfs *handle, struct gfs_reservation *reservation)
{
    munmap((void *)reservation->base, reservation->size_bytes);
    gfs_state_lock(handle);
    gfs_vmap_remove_reservation(&handle->map, reservation);
    gfs_state_unlock(handle);
}

/* ---- one mapping -------------------------------------------------------------------------- */

static struct gfs_mapping mapping_of_item(const struct gmsfs *handle, uintptr_t va,
                                          const struct gmsfs_fds_item *item,
                                          enum gmsfs_access access)
{
    return (struct gfs_mapping){.va = va,
                                .size_bytes = item->size_bytes,
                                .aligned_bytes = item->aligned_bytes,
                                .slot = item->slot,
                                .rank = item->rank,
                                .ident = handle->ident,
                                .access = access,
                                .live = 1};
}

static int mapping_item_valid(const struct gmsfs *handle, const struct gmsfs_fds_item *item)
{
    return item->aligned_bytes > 0 && item->aligned_bytes % handle->granularity_bytes == 0 &&
           item->size_bytes <= item->aligned_bytes && item->aligned_bytes < SIZE_MAX / 4;
}

struct mapping_single {
    struct gmsfs *handle;
    uintptr_t va; /* 0: reserve as much as the item needs */
    uint64_t reserved_bytes;
    enum gmsfs_access access;
    struct gfs_mapping mapping; /* out */
};

/* Is there room for it where the caller wants it? */
static int mapping_check_place(const struct mapping_single *single, uint64_t aligned_bytes)
{
    const struct gfs_vmap *map = &single->handle->map;
    struct gfs_reservation *reservation = gfs_vmap_find_reservation(map, single->va);

    if (!reservation || aligned_bytes > reservation->size_bytes - (single->va - reservation->base))
        return -EFAULT;
    return gfs_vmap_overlaps(map, single->va, aligned_bytes) ? -EBUSY : 0;
}

static int mapping_take_single(void *context, const struct gmsfs_fds_item *item, int *fd)
{
    struct mapping_single *single = context;
    int r = mapping_item_valid(single->handle, item) ? 0 : -EPROTO;

    if (!r && single->va)
        r = mapping_check_place(single, item->aligned_bytes);
    else if (!r)
        r = gfs_va_reserve(single->handle, item->aligned_bytes, &single->va,
                           &single->reserved_bytes);
    if (!r)
        r = gfs_va_map(single->va, item->aligned_bytes, single->access, *fd);
    if (r && single->reserved_bytes) {
        munmap((void *)single->va, single->reserved_bytes);
        single->va = 0;
        single->reserved_bytes = 0;
    }
    if (!r)
        single->mapping = mapping_of_item(single->handle, single->va, item, single->access);
    return r;
}

/* Maps one allocation and enters it into the table. */
static int mapping_make(struct mapping_single *single, uint64_t slot, uint64_t rank)
{
    struct gmsfs *handle = single->handle;
    int r = gfs_export_check(handle, single->access);

    if (!r)
        r = mapping_make_room(handle, 1, 1);
    if (!r)
        r = gfs_export_slot(handle, slot, rank, single->access, mapping_take_single, single);
    if (r)
        return r;
    gfs_state_lock(handle);
    if (single->reserved_bytes)
        gfs_vmap_add_reservation(&handle->map,
                                 &(struct gfs_reservation){.base = single->va,
                                                           .size_bytes = single->reserved_bytes,
                                                           .automatic = 1});
    gfs_vmap_add_mappings(&handle->map, &single->mapping, 1);
    gfs_state_unlock(handle);
    return 0;
}

static int mapping_undo(struct gmsfs *handle, struct gfs_mapping *mapping, int keep_automatic)
{
    struct gfs_reservation *reservation;
    int r = mapping->live ? gfs_va_unmap(mapping->va, mapping->aligned_bytes) : 0;

    if (r)
        return r;
    gfs_state_lock(handle);
    reservation = gfs_vmap_remove_mapping(&handle->map, mapping);
    gfs_state_unlock(handle);
    if (!keep_automatic && reservation->automatic && reservation->mappings == 0)
        mapping_drop_reservation(handle, reservation);
    return 0;
}

static struct gfs_mapping *mapping_at(const struct gmsfs *handle, const void *va)
{
    struct gfs_mapping *mapping = gfs_vmap_find_mapping(&handle->map, (uintptr_t)va);

    return mapping && mapping->va == (uintptr_t)va ? mapping : NULL;
}

/* ---- tier 1 ------------------------------------------------------------------------------- */

int gmsfs_reserve_va(gmsfs_t *handle, uint64_t size_bytes, void **va)
{
    struct gfs_reservation reservation = {0};
    int r;

    if (!va)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = mapping_make_room(handle, 1, 0);
    if (!r)
        r = gfs_va_reserve(handle, size_bytes, &reservation.base, &reservation.size_bytes);
    if (!r) {
        gfs_state_lock(handle);
        gfs_vmap_add_reservation(&handle->map, &reservation);
        gfs_state_unlock(handle);
        *va = (void *)reservation.base;
    }
    gfs_leave(handle);
    return r;
}

int gmsfs_map_va(gmsfs_t *handle, void *va, uint64_t slot, enum gmsfs_access access)
{
    struct mapping_single single = {.handle = handle, .va = (uintptr_t)va, .access = access};
    int r = gfs_enter(handle);

    if (r)
        return r;
    if (!va || (uintptr_t)va % handle->granularity_bytes)
        r = -EINVAL;
    else
        r = mapping_make(&single, slot, GMSFS_SLOT_NONE);
    gfs_leave(handle);
    return r;
}

int gmsfs_unmap_va(gmsfs_t *handle, void *va)
{
    struct gfs_mapping *mapping;
    int r = gfs_enter(handle);

    if (r)
        return r;
    mapping = mapping_at(handle, va);
    r = mapping ? mapping_undo(handle, mapping, 1) : -ENOENT;
    gfs_leave(handle);
    return r;
}

int gmsfs_free_va(gmsfs_t *handle, void *va)
{
    struct gfs_reservation *reservation;
    int r = gfs_enter(handle);

    if (r)
        return r;
    reservation = gfs_vmap_find_reservation(&handle->map, (uintptr_t)va);
    if (!reservation || reservation->base != (uintptr_t)va)
        r = -ENOENT;
    else if (reservation->mappings)
        r = -EBUSY;
    else
        mapping_drop_reservation(handle, reservation);
    gfs_leave(handle);
    return r;
}

/* ---- tier 2 ------------------------------------------------------------------------------- */

int gmsfs_create_mapping(gmsfs_t *handle, uint64_t size_bytes, const char *tag, uint64_t *slot,
                         void **ptr)
{
    struct mapping_single single = {.handle = handle, .access = GMSFS_ACCESS_WRITE};
    struct gmsfs_ioc_alloc alloc = {.size_bytes = size_bytes, .count = 1};
    int r;

    if (!ptr || size_bytes == 0 || gfs_text_copy(alloc.tag, sizeof alloc.tag, tag))
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = gfs_alloc(handle, &alloc);
    if (r)
        goto out;
    r = mapping_make(&single, alloc.slot, alloc.rank);
    if (r) {
        gfs_alloc_free(handle, alloc.slot);
        goto out;
    }
    *ptr = (void *)single.va;
    if (slot)
        *slot = alloc.slot;
out:
    gfs_leave(handle);
    return r;
}

int gmsfs_attach_mapping(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access, void **ptr)
{
    struct mapping_single single = {.handle = handle, .access = access};
    int r;

    if (!ptr)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = mapping_make(&single, slot, GMSFS_SLOT_NONE);
    if (!r)
        *ptr = (void *)single.va;
    gfs_leave(handle);
    return r;
}

int gmsfs_destroy_mapping(gmsfs_t *handle, void *ptr)
{
    struct gfs_mapping *mapping;
    int r = gfs_enter(handle);

    if (r)
        return r;
    mapping = mapping_at(handle, ptr);
    r = mapping ? mapping_undo(handle, mapping, 0) : -ENOENT;
    gfs_leave(handle);
    return r;
}

/* ---- the whole layout --------------------------------------------------------------------- */

struct mapping_all {
    struct gmsfs *handle;
    enum gmsfs_access access;
    struct gfs_mapping *mappings;
    struct gmsfs_mapping *list; /* the same for the caller */
    uint64_t count, done;
    uintptr_t base, next;
    uint64_t reserved_bytes;
};

static struct gmsfs_mapping mapping_describe(const struct gfs_mapping *mapping)
{
    return (struct gmsfs_mapping){.ptr = (void *)mapping->va,
                                  .slot = mapping->slot,
                                  .rank = mapping->rank,
                                  .size_bytes = mapping->size_bytes,
                                  .aligned_bytes = mapping->aligned_bytes};
}

static int mapping_take_all(void *context, const struct gmsfs_fds_item *item, int *fd)
{
    struct mapping_all *all = context;
    uint64_t left_bytes = all->reserved_bytes - (all->next - all->base);
    struct gfs_mapping *mapping;
    int r;

    if (!mapping_item_valid(all->handle, item) || all->done == all->count ||
        item->rank != all->done || item->aligned_bytes > left_bytes)
        return -EPROTO;
    r = gfs_va_map(all->next, item->aligned_bytes, all->access, *fd);
    if (r)
        return r;
    mapping = all->mappings + all->done;
    *mapping = mapping_of_item(all->handle, all->next, item, all->access);
    all->list[all->done++] = mapping_describe(mapping);
    all->next += item->aligned_bytes;
    return 0;
}

static int mapping_all_prepare(struct mapping_all *all, const struct gfs_export *export)
{
    int r;

    all->mappings = calloc(export->count, sizeof *all->mappings);
    all->list = calloc(export->count, sizeof *all->list);
    if (!all->mappings || !all->list)
        return -ENOMEM;
    all->count = export->count;
    r = mapping_make_room(all->handle, 1, all->count);
    if (!r)
        r = gfs_va_reserve(all->handle, export->total_bytes, &all->base, &all->reserved_bytes);
    all->next = all->base;
    return r;
}

static int mapping_attach_all(struct mapping_all *all)
{
    struct gfs_export export = {.access = all->access};
    struct gmsfs *handle = all->handle;
    int r = gfs_export_check(handle, all->access);

    if (!r)
        r = gfs_export_ticket(handle, &export);
    if (r || export.count == 0)
        return r;
    r = mapping_all_prepare(all, &export);
    if (!r)
        r = gfs_export_redeem(handle, &export, mapping_take_all, all);
    if (r) {
        if (all->reserved_bytes)
            munmap((void *)all->base, all->reserved_bytes);
        return r;
    }
    gfs_state_lock(handle);
    gfs_vmap_add_reservation(
        &handle->map, &(struct gfs_reservation){
                          .base = all->base, .size_bytes = all->reserved_bytes, .automatic = 1});
    gfs_vmap_add_mappings(&handle->map, all->mappings, all->count);
    gfs_state_unlock(handle);
    return 0;
}

int gmsfs_attach_all(gmsfs_t *handle, enum gmsfs_access access, struct gmsfs_mapping **list,
                     size_t *count)
{
    struct mapping_all all = {.handle = handle, .access = access};
    int r = gfs_enter(handle);

    if (r)
        return r;
    r = mapping_attach_all(&all);
    gfs_leave(handle);
    free(all.mappings);
    if (!r && count)
        *count = all.count;
    if (!r && list)
        *list = all.list;
    else
        free(all.list);
    return r;
}

static int mapping_list_copy(const struct gfs_vmap *map, struct gmsfs_mapping **list)
{
    *list = NULL;
    if (map->mapping_count == 0)
        return 0;
    *list = calloc(map->mapping_count, sizeof **list);
    if (!*list)
        return -ENOMEM;
    for (size_t i = 0; i < map->mapping_count; i++)
        (*list)[i] = mapping_describe(map->mappings + i);
    return 0;
}

int gmsfs_list_mappings(gmsfs_t *handle, struct gmsfs_mapping **list, size_t *count)
{
    struct gmsfs_mapping *copy;
    int r;

    if (!list || !count)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = mapping_list_copy(&handle->map, &copy);
    if (!r) {
        *list = copy;
        *count = handle->map.mapping_count;
    }
    gfs_leave(handle);
    return r;
}

/* ---- looking ------------------------------------------------------------------------------ */

int gmsfs_resolve(gmsfs_t *handle, const void *ptr, uint64_t *slot, uint64_t *offset)
{
    struct gfs_mapping *mapping;

    if (!handle)
        return -EINVAL;
    if (atomic_load(&handle->dead))
        return -ECHILD;
    gfs_state_lock(handle);
    mapping = gfs_vmap_find_mapping(&handle->map, (uintptr_t)ptr);
    if (mapping && slot)
        *slot = mapping->slot;
    if (mapping && offset)
        *offset = (uintptr_t)ptr - mapping->va;
    gfs_state_unlock(handle);
    return mapping ? 0 : -ENOENT;
}

static int mapping_set_tag(struct gfs_mapping *mapping, const char *tag)
{
    char *copy = strdup(tag);

    if (!copy)
        return -ENOMEM;
    free(mapping->tag);
    mapping->tag = copy;
    return 0;
}

int gfs_mapping_refresh(struct gmsfs *handle)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int r;

    if (handle->map.mapping_count == 0)
        return 0;
    r = gfs_list(handle, &list, &count);
    if (r)
        return r;
    gfs_state_lock(handle);
    for (size_t i = 0; i < handle->map.mapping_count && !r; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;
        const struct gmsfs_handle_info *info;
        if (mapping->ident.epoch != handle->ident.epoch)
            continue;
        info = gfs_list_lookup(list, count, mapping->slot);
        mapping->rank = info ? info->rank : GMSFS_SLOT_NONE; /* freed under its mapping */
        if (info)
            r = mapping_set_tag(mapping, info->tag);
    }
    gfs_state_unlock(handle);
    free(list);
    return r;
}

/* By one read: the directory takes some calls for each allocation. While a reader holds the lock
 * the layout is the one that it attached, so ranks are those of its mappings. */
int gfs_mapping_learn_tags(struct gmsfs *handle)
{
    struct gmsfs_layout *layout = NULL;
    int r = 0, missing = 0;

    for (size_t i = 0; i < handle->map.mapping_count; i++)
        missing |= !handle->map.mappings[i].tag;
    if (!missing)
        return 0;
    r = gfs_layout_read(handle, &layout);
    if (r)
        return r;
    gfs_state_lock(handle);
    for (size_t i = 0; i < handle->map.mapping_count && !r; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;
        if (!mapping->tag && mapping->ident.epoch == handle->ident.epoch &&
            mapping->rank < layout->allocation_count)
            r = mapping_set_tag(mapping, layout->allocations[mapping->rank].tag);
    }
    gfs_state_unlock(handle);
    gmsfs_free_layout(layout);
    return r;
}
