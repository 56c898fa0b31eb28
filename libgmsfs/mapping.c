/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 2: attaching one allocation, and facts about mappings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

struct gmsfs_mapping gfs_mapping_describe(const struct gfs_mapping *mapping)
{
    return (struct gmsfs_mapping){.ptr = (void *)mapping->va,
                                  .slot = mapping->slot,
                                  .rank = mapping->rank,
                                  .size_bytes = mapping->size_bytes,
                                  .aligned_bytes = mapping->aligned_bytes};
}

static int mapping_attach(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access, void **ptr)
{
    GFS_VA_SCOPE(scope);
    struct gfs_mapping *mapping;
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    error = gfs_va_make(handle, 0, slot, access, &mapping);
    if (!error)
        *ptr = (void *)mapping->va;
    return error;
}

int gmsfs_attach_mapping(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access, void **ptr)
{
    int error = -EINVAL;

    while (ptr) {
        error = mapping_attach(handle, slot, access, ptr);
        if (!gfs_follow_memory(handle, error))
            break;
    }
    return error;
}

/* ---- looking ------------------------------------------------------------------------------ */

static size_t mapping_describe_pieces(const struct gfs_slab *slab,
                                      const struct gfs_mapping *mapping, struct gmsfs_mapping *list)
{
    for (size_t i = 0; i < slab->piece_count; i++) {
        const struct gfs_span *piece = slab->pieces + i;
        uint64_t mask = GFS_SLAB_ALIGNMENT_BYTES - 1;

        list[i] = gfs_mapping_describe(mapping);
        list[i].ptr = (void *)(mapping->va + piece->offset);
        list[i].offset = piece->offset;
        list[i].size_bytes = piece->size_bytes;
        list[i].aligned_bytes = (piece->size_bytes + mask) & ~mask;
    }
    return slab->piece_count;
}

/* In place of a slab its pieces. */
static int mapping_list(const struct gmsfs_store *handle, struct gmsfs_mapping **list,
                        size_t *count)
{
    const struct gfs_vmap *map = &handle->map;
    size_t room = map->mapping_count;

    for (size_t i = 0; i < handle->slabs.count; i++)
        room += handle->slabs.slabs[i].piece_count;
    *list = NULL;
    *count = 0;
    if (room == 0)
        return 0;
    *list = calloc(room, sizeof **list);
    if (!*list)
        return -ENOMEM;
    for (size_t i = 0; i < map->mapping_count; i++) {
        const struct gfs_mapping *mapping = map->mappings + i;
        const struct gfs_slab *slab = gfs_slabs_find(&handle->slabs, mapping->va);

        if (slab)
            *count += mapping_describe_pieces(slab, mapping, *list + *count);
        else
            (*list)[(*count)++] = gfs_mapping_describe(mapping);
    }
    return 0;
}

int(gmsfs_list_mappings)(gmsfs_t *handle, struct gmsfs_mapping **list, size_t *count,
                         size_t item_bytes)
{
    struct gmsfs_mapping *made;
    size_t made_count;

    if (!list || !count)
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = mapping_list(handle, &made, &made_count);
    gfs_leave(handle);
    if (error)
        return error;
    void *given = made;
    error = gfs_give_list(&given, made_count, item_bytes, sizeof *made);
    if (error) {
        free(given);
        return error;
    }
    *list = given;
    *count = made_count;
    return 0;
}

int gmsfs_resolve(gmsfs_t *handle, const void *ptr, uint64_t *slot, uint64_t *offset)
{
    int error = gfs_state_enter(handle);

    if (error)
        return error;
    struct gfs_mapping *mapping = gfs_vmap_find_mapping(&handle->map, (uintptr_t)ptr);
    if (mapping && slot)
        *slot = mapping->slot;
    if (mapping && offset)
        *offset = (uintptr_t)ptr - mapping->va;
    gfs_state_unlock(handle);
    return mapping ? 0 : -ENOENT;
}

int gmsfs_locate(gmsfs_t *handle, uint64_t slot, uint64_t offset, void **ptr)
{
    int error = ptr ? gfs_state_enter(handle) : -EINVAL;

    if (error)
        return error;
    error = -ENOENT;
    for (size_t i = 0; i < handle->map.mapping_count && error; i++) {
        const struct gfs_mapping *mapping = handle->map.mappings + i;

        if (mapping->slot != slot || mapping->ident.epoch != handle->ident.epoch ||
            offset >= mapping->aligned_bytes)
            continue;
        *ptr = (void *)(mapping->va + offset);
        error = 0;
    }
    gfs_state_unlock(handle);
    return error;
}

/* ---- tags and ranks ------------------------------------------------------------------------- */

static int mapping_set_tag(struct gfs_mapping *mapping, const char *tag)
{
    char *copy = strdup(tag);

    if (!copy)
        return -ENOMEM;
    free(mapping->tag);
    mapping->tag = copy;
    return 0;
}

static int mapping_has_tags(const struct gmsfs_store *handle)
{
    for (size_t i = 0; i < handle->map.mapping_count; i++)
        if (!handle->map.mappings[i].tag &&
            handle->map.mappings[i].ident.epoch == handle->ident.epoch)
            return 0;
    return 1;
}

/* A reader keeps the ranks of its attach: under its lock they are the layout's, and after a
 * revocation it can wake up only by them. A writer's ranks change. */
static int mapping_learn_one(const struct gmsfs_store *handle, struct gfs_mapping *mapping,
                             const struct gmsfs_handle_info *list, size_t count)
{
    const struct gmsfs_handle_info *info;

    if (handle->mode == GMSFS_MODE_RW) {
        info = gfs_list_lookup(list, count, mapping->slot);
        mapping->rank = info ? info->rank : GMSFS_SLOT_NONE; /* freed under its mapping */
    } else {
        info = !mapping->tag && mapping->rank < count ? list + mapping->rank : NULL;
    }
    return info ? mapping_set_tag(mapping, info->tag) : 0;
}

/* By one look for some hundred allocations. */
static int mapping_learn_by_list(struct gmsfs_store *handle)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int error = gfs_list(handle, &list, &count);

    if (error)
        return error;
    gfs_state_lock(handle);
    for (size_t i = 0; i < handle->map.mapping_count && !error; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;
        if (mapping->ident.epoch == handle->ident.epoch)
            error = mapping_learn_one(handle, mapping, list, count);
    }
    gfs_state_unlock(handle);
    free(list);
    return error;
}

int gfs_mapping_learn_ranks(struct gmsfs_store *handle)
{
    uint64_t first = 0, count = 0;
    size_t ours = 0;

    for (size_t i = 0; i < handle->map.mapping_count; i++)
        ours += handle->map.mappings[i].ident.epoch == handle->ident.epoch;
    if (ours == 0)
        return 0;
    if (!gfs_list_in_a_row(handle, &first, &count))
        return mapping_learn_by_list(handle);
    gfs_state_lock(handle);
    for (size_t i = 0; i < handle->map.mapping_count; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;
        if (mapping->ident.epoch == handle->ident.epoch)
            mapping->rank = mapping->slot - first < count ? mapping->slot - first : GMSFS_SLOT_NONE;
    }
    gfs_state_unlock(handle);
    return 0;
}

int gfs_mapping_learn_tags(struct gmsfs_store *handle)
{
    if (handle->mode == GMSFS_MODE_NONE || mapping_has_tags(handle))
        return 0;
    return mapping_learn_by_list(handle);
}

int gfs_mapping_learn_for_sleep(struct gmsfs_store *handle)
{
    if (handle->mode == GMSFS_MODE_RW && mapping_has_tags(handle))
        return gfs_mapping_learn_ranks(handle);
    return gfs_mapping_learn_tags(handle);
}
