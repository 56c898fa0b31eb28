/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 2, the whole layout side by side: one ioctl, one message, and a receive for many mappings.
 */
#include <errno.h>
#include <stdlib.h>

#include "internal.h"

struct attach {
    struct gmsfs_store *handle;
    enum gmsfs_access access;
    /* In the table's room, behind its mappings, with offsets for addresses; once all are mapped,
     * among the table's mappings. */
    struct gfs_mapping *mappings;
    uint64_t count, done;
};

static int attach_take(void *context, const struct gfs_item *item, int *fd)
{
    struct attach *attach = context;
    struct gmsfs_store *handle = attach->handle;
    uint64_t offset = handle->range.mapped_bytes;
    int error = gfs_va_check_item(handle, item);

    if (error || attach->done == attach->count || item->rank != attach->done)
        return -EPROTO;
    error = gfs_range_append(&handle->memory, &handle->range, item->aligned_bytes, item->size_bytes,
                             attach->access, *fd);
    if (error)
        return error == -ENOSPC ? -EPROTO : error;
    attach->mappings[attach->done++] =
        gfs_va_describe(handle, (uintptr_t)offset, item, attach->access, handle->range.devices);
    return 0;
}

static void attach_forget(struct attach *attach)
{
    while (attach->done > 0)
        free(attach->mappings[--attach->done].tag);
}

/* The range is in the handle, where a child of fork() finds it. */
static int attach_range(struct attach *attach, struct gfs_export *export, int careful)
{
    struct gmsfs_store *handle = attach->handle;

    attach_forget(attach);
    gfs_gate_enter();
    handle->range.careful = careful;
    int error = gfs_range_begin(&handle->memory, &handle->range, export->total_bytes);
    gfs_gate_leave();
    if (!error)
        error = gfs_export_redeem(handle, export, attach_take, attach);
    gfs_gate_enter();
    if (!error)
        error = gfs_range_end(&handle->memory, &handle->range, attach->access);
    if (error)
        gfs_range_cancel(&handle->memory, &handle->range);
    gfs_gate_leave();
    return error == -ENOSPC ? -EPROTO : error;
}

/* Ours are in the table from now on. */
static void attach_enter(struct attach *attach)
{
    struct gmsfs_store *handle = attach->handle;

    for (uint64_t i = 0; i < attach->count; i++)
        attach->mappings[i].va += handle->range.base;
    gfs_state_lock(handle);
    gfs_vmap_add_reservation(&handle->map,
                             &(struct gfs_reservation){.base = handle->range.base,
                                                       .size_bytes = handle->range.reserved_bytes,
                                                       .automatic = 1});
    gfs_vmap_add_mappings(&handle->map, attach->mappings, attach->count);
    attach->mappings = gfs_vmap_find_mapping(&handle->map, handle->range.base);
    attach->done = 0; /* their tags are the table's now */
    handle->range = (struct gfs_range){0};
    gfs_state_unlock(handle);
}

static int attach_prepare(struct attach *attach, const struct gfs_export *export)
{
    attach->count = export->count;
    int error = gfs_va_make_room(attach->handle, 1, attach->count);
    if (!error)
        attach->mappings = gfs_vmap_behind(&attach->handle->map);
    return error;
}

/* Makes the list with the item size that the program knows. */
static int attach_prepare_list(const struct attach *attach, size_t item_bytes, void **list)
{
    if (item_bytes == 0 || gfs_check_struct(item_bytes))
        return -EINVAL;
    *list = calloc(attach->count, item_bytes);
    return *list ? 0 : -ENOMEM;
}

static int attach_all(struct attach *attach, size_t item_bytes, void **list)
{
    struct gfs_export export = {.access = attach->access};
    struct gmsfs_store *handle = attach->handle;
    int error = gfs_export_check(handle, attach->access);

    if (!error)
        error = gfs_export_ticket(handle, &export);
    if (error || export.count == 0)
        return error;
    error = attach_prepare(attach, &export);
    if (!error && list)
        error = attach_prepare_list(attach, item_bytes, list);
    if (!error)
        error = attach_range(attach, &export, 0);
    if (error == -EEXIST) {
        /* another thread took an address while it was unreserved */
        export = (struct gfs_export){.access = attach->access, .count = attach->count};
        error = gfs_export_ticket(handle, &export);
        if (!error)
            error = attach_range(attach, &export, 1);
    }
    if (error)
        return error;
    attach_enter(attach);
    for (uint64_t i = 0; list && i < attach->count; i++) {
        struct gmsfs_mapping mapping = gfs_mapping_describe(attach->mappings + i);
        gfs_give_struct((char *)*list + i * item_bytes, item_bytes, &mapping, sizeof mapping);
    }
    return 0;
}

static int attach_once(gmsfs_t *handle, enum gmsfs_access access, void **made, uint64_t *count,
                       size_t item_bytes)
{
    GFS_VA_SCOPE(scope);
    struct attach attach = {.handle = handle, .access = access};
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    error = attach_all(&attach, item_bytes, made);
    attach_forget(&attach);
    *count = attach.count;
    return error;
}

int(gmsfs_attach_all)(gmsfs_t *handle, enum gmsfs_access access, struct gmsfs_mapping **list,
                      size_t *count, size_t item_bytes)
{
    uint64_t attached = 0;
    void *made = NULL;
    int error;

    do {
        free(made);
        made = NULL;
        error = attach_once(handle, access, list ? &made : NULL, &attached, item_bytes);
    } while (gfs_follow_memory(handle, error));
    if (!error && count)
        *count = attached;
    if (!error && list)
        *list = made;
    else
        free(made);
    return error;
}
