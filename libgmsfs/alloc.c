/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 1, allocation handles: making, exporting and freeing them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#include "base/scope.h"

GMSFS_STATIC_ASSERT(GMSFS_ALLOCATE_EACH_MAX == GMSFS_ALLOC_EACH_MAX, "of one call");

#define ALLOC_FLAGS (GMSFS_ALLOC_NOWAIT | GMSFS_ALLOC_EXACT)

int gfs_text_copy(char *to, size_t to_bytes, const char *from)
{
    size_t bytes = from ? strlen(from) : 0;

    if (bytes >= to_bytes)
        return -EINVAL;
    memset(to, 0, to_bytes);
    memcpy(to, from ? from : "", bytes);
    return 0;
}

/* Asks for memory as a writer, and waits as the handle says. flags, timeout_ms: of the request. */
static int alloc_ask(struct gmsfs_store *handle, unsigned long number, void *request,
                     uint32_t *flags, uint64_t *timeout_ms)
{
    if (handle->mode != GMSFS_MODE_RW)
        return -ENOLCK;
    if (handle->memory_wait_ms == 0)
        *flags |= GMSFS_ALLOC_NOWAIT;
    else if (handle->memory_wait_ms != GMSFS_TIMEOUT_FOREVER)
        *timeout_ms = handle->memory_wait_ms;
    int error = gfs_ioctl_waiting(handle, number, request);
    if (error == -EINVAL && *flags & GMSFS_ALLOC_EXACT) { /* an older daemon does not know it */
        *flags &= ~GMSFS_ALLOC_EXACT;
        error = gfs_ioctl_waiting(handle, number, request);
    }
    return error;
}

int gfs_alloc(struct gmsfs_store *handle, struct gmsfs_ioc_alloc *alloc)
{
    return alloc_ask(handle, GMSFS_IOC_ALLOC, alloc, &alloc->flags, &alloc->timeout_ms);
}

int gfs_alloc_free(struct gmsfs_store *handle, uint64_t slot)
{
    struct gmsfs_ioc_free request = {.slot = slot};

    if (handle->mode != GMSFS_MODE_RW)
        return -ENOLCK;
    return gfs_ioctl(handle, GMSFS_IOC_FREE, &request);
}

int gmsfs_allocate_handle(gmsfs_t *handle, uint64_t size_bytes, const char *tag, const char *name,
                          uint64_t *slot)
{
    return gmsfs_allocate_handles(handle, 1, size_bytes, tag, name, 0, slot);
}

int gmsfs_allocate_handles(gmsfs_t *handle, uint32_t count, uint64_t size_bytes, const char *tag,
                           const char *name, unsigned flags, uint64_t *first_slot)
{
    struct gmsfs_ioc_alloc alloc = {.size_bytes = size_bytes, .count = count, .flags = flags};

    if (count == 0 || size_bytes == 0 || flags & ~ALLOC_FLAGS ||
        gfs_text_copy(alloc.tag, sizeof alloc.tag, tag) ||
        gfs_text_copy(alloc.name, sizeof alloc.name, name))
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_alloc(handle, &alloc);
    gfs_leave(handle);
    if (!error && first_slot)
        *first_slot = alloc.slot;
    return error;
}

/* The next of them, in one call. */
static int alloc_some(struct gmsfs_store *handle, struct gmsfs_ioc_alloc_each *alloc,
                      const struct gmsfs_new_allocation *wanted, size_t count, unsigned flags,
                      uint64_t *slots)
{
    memset(alloc, 0, sizeof *alloc);
    alloc->count = (uint32_t)count;
    alloc->flags = flags;
    for (size_t i = 0; i < count; i++) {
        alloc->items[i].size_bytes = wanted[i].size_bytes;
        if (wanted[i].size_bytes == 0 ||
            gfs_text_copy(alloc->items[i].tag, sizeof alloc->items[i].tag, wanted[i].tag) ||
            gfs_text_copy(alloc->items[i].name, sizeof alloc->items[i].name, wanted[i].name))
            return -EINVAL;
    }
    int error = alloc_ask(handle, GMSFS_IOC_ALLOC_EACH, alloc, &alloc->flags, &alloc->timeout_ms);
    for (size_t i = 0; !error && slots && i < count; i++)
        slots[i] = alloc->items[i].slot;
    return error;
}

int gmsfs_allocate_each(gmsfs_t *handle, const struct gmsfs_new_allocation *wanted, size_t count,
                        unsigned flags, uint64_t *slots)
{
    SCOPED_FREE struct gmsfs_ioc_alloc_each *alloc = NULL;

    if (!wanted || count == 0 || count > GMSFS_ALLOCATE_EACH_MAX || flags & ~ALLOC_FLAGS)
        return -EINVAL;
    alloc = malloc(sizeof *alloc);
    if (!alloc)
        return -ENOMEM;
    int error = gfs_enter(handle);
    if (!error) {
        error = handle->mode == GMSFS_MODE_RW
                    ? alloc_some(handle, alloc, wanted, count, flags, slots)
                    : -ENOLCK;
        gfs_leave(handle);
    }
    return error;
}

int gmsfs_set_memory_timeout(gmsfs_t *handle, uint64_t timeout_ms)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    handle->memory_wait_ms = timeout_ms;
    gfs_leave(handle);
    return 0;
}

/* Marks the allocation's mappings as freed: no more pieces come from them. slot: GMSFS_SLOT_NONE:
 * all. */
static void alloc_note_freed(struct gmsfs_store *handle, uint64_t slot)
{
    for (size_t i = 0; i < handle->map.mapping_count; i++) {
        struct gfs_mapping *mapping = handle->map.mappings + i;

        if (mapping->ident.epoch == handle->ident.epoch &&
            (slot == GMSFS_SLOT_NONE || mapping->slot == slot))
            mapping->freed = 1;
    }
}

int gmsfs_free_handle(gmsfs_t *handle, uint64_t slot)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = gfs_alloc_free(handle, slot);
    if (!error)
        alloc_note_freed(handle, slot);
    gfs_leave(handle);
    return error;
}

int gmsfs_clear_all_handles(gmsfs_t *handle)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = handle->mode == GMSFS_MODE_RW ? gfs_ioctl(handle, GMSFS_IOC_CLEAR, NULL) : -ENOLCK;
    if (!error)
        alloc_note_freed(handle, GMSFS_SLOT_NONE);
    gfs_leave(handle);
    return error;
}

static int alloc_keep_fd(void *context, const struct gfs_item *item, int *fd)
{
    (void)item;
    *(int *)context = *fd;
    *fd = -1;
    return 0;
}

int gmsfs_export_handle(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access, int *fd)
{
    int kept = -1, error;

    if (!fd)
        return -EINVAL;
    error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_export_check(handle, access);
    if (!error)
        error = gfs_export_slot(handle, slot, access, alloc_keep_fd, &kept);
    gfs_leave(handle);
    if (!error)
        *fd = kept;
    return error;
}

/* ---- descriptors of several ---------------------------------------------------------------- */

struct alloc_kept {
    const uint64_t *slots; /* as they are to come */
    int *fds;
    uint64_t rank; /* of the last that came */
};

static int alloc_keep_next(void *context, const struct gfs_item *item, int *fd)
{
    struct alloc_kept *kept = context;

    if (item->slot != *kept->slots)
        return -ESTALE;
    kept->slots++;
    *kept->fds++ = *fd;
    kept->rank = item->rank;
    *fd = -1;
    return 0;
}

/* Exports the allocations of a run of ranks by one ticket. */
static int alloc_export_between(struct gmsfs_store *handle, uint64_t first, uint64_t count,
                                enum gmsfs_access access, struct alloc_kept *kept)
{
    struct gfs_export export = {.first = first, .count = count, .access = access};
    int error = gfs_export_ticket(handle, &export);

    return error ? error : gfs_export_redeem(handle, &export, alloc_keep_next, kept);
}

static int alloc_ascends(const uint64_t *slots, size_t count)
{
    size_t i = 1;

    while (i < count && slots[i - 1] < slots[i])
        i++;
    return i == count;
}

/* Ranks are in the order of slots: where the first and the last are as far apart as those between
 * are many, nothing else is between them. */
static int alloc_export_each(struct gmsfs_store *handle, const uint64_t *slots, size_t count,
                             enum gmsfs_access access, int *fds)
{
    struct alloc_kept first = {slots, fds, 0}, last = {slots + count - 1, fds + count - 1, 0};
    struct alloc_kept next = {slots + 1, fds + 1, 0};
    int error = gfs_export_slot(handle, slots[0], access, alloc_keep_next, &first);

    if (!error && count > 1)
        error = gfs_export_slot(handle, slots[count - 1], access, alloc_keep_next, &last);
    if (!error && count > 2 && last.rank - first.rank == count - 1 && alloc_ascends(slots, count)) {
        error = alloc_export_between(handle, first.rank + 1, count - 2, access, &next);
        /* another thread changed the layout meanwhile; if it is the session, the next one tells */
        if (error == -ESTALE)
            error = 0;
    }
    while (!error && next.slots < slots + count - 1)
        error = gfs_export_slot(handle, *next.slots, access, alloc_keep_next, &next);
    return error;
}

int gmsfs_export_each(gmsfs_t *handle, const uint64_t *slots, size_t count,
                      enum gmsfs_access access, int *fds)
{
    if (!slots || !fds || count == 0 || count > GMSFS_ALLOCATE_EACH_MAX)
        return -EINVAL;
    memset(fds, -1, count * sizeof *fds);
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_export_check(handle, access);
    if (!error)
        error = alloc_export_each(handle, slots, count, access, fds);
    for (size_t i = 0; error && i < count; i++)
        if (fds[i] >= 0) {
            close(fds[i]);
            fds[i] = -1;
        }
    gfs_leave(handle);
    return error;
}

int gmsfs_descriptor_of(gmsfs_t *handle, const void *ptr, int *fd)
{
    enum gmsfs_access access;
    int kept = -1, error;

    if (!fd)
        return -EINVAL;
    error = gfs_enter(handle);
    if (error)
        return error;
    struct gfs_mapping *mapping = gfs_vmap_find_mapping(&handle->map, (uintptr_t)ptr);
    if (!mapping)
        error = -ENOENT;
    else if (handle->mode == GMSFS_MODE_NONE)
        error = -ENOLCK;
    else if (mapping->ident.epoch != handle->ident.epoch)
        error = -ESTALE;
    if (!error) {
        access = gfs_session_writes(handle) ? mapping->access : GMSFS_ACCESS_READ;
        error = gfs_export_slot(handle, mapping->slot, access, alloc_keep_fd, &kept);
    }
    gfs_leave(handle);
    if (!error)
        *fd = kept;
    return error;
}
