/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 2, memory made and undone: a size is carved from a slab, or has an allocation of its own.
 *
 * A slab is an allocation with one mapping, known by its address: its slot may change when it is
 * remapped or allocated anew. Its pieces are known to this handle alone; for everybody else they
 * are offsets in metadata. */
#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

#include "internal.h"

/* ---- how large ---------------------------------------------------------------------------- */

static uint64_t create_round_up(const struct gmsfs_store *handle, uint64_t size_bytes)
{
    uint64_t mask = handle->granularity_bytes - 1;

    return size_bytes > UINT64_MAX - mask ? size_bytes & ~mask : (size_bytes + mask) & ~mask;
}

/* A slab that is hardly used must not be much of the device. */
static int create_device_share(struct gmsfs_store *handle)
{
    uint64_t slab_bytes = GMSFS_SLAB_DEFAULT_BYTES, share_bytes;
    struct statfs device;

    if (fstatfs(handle->dir_fd, &device) < 0)
        return gfs_file_error(errno);
    share_bytes = device.f_blocks * (uint64_t)device.f_frsize / GFS_SLAB_DEVICE_SHARE;
    slab_bytes = slab_bytes < share_bytes ? slab_bytes : share_bytes;
    slab_bytes &= ~(handle->granularity_bytes - 1);
    handle->slab_bytes = slab_bytes ? slab_bytes : handle->granularity_bytes;
    return 0;
}

/* The largest that a piece may be, and a slab. Nothing else may go into this and into
 * create_next_bytes, how much is free least of all: the layout's hash depends on it. */
static int create_limit_bytes(struct gmsfs_store *handle, uint64_t *limit_bytes)
{
    uint64_t announced_bytes = create_round_up(handle, handle->announced_bytes);
    int error = 0;

    if (handle->slab_wish_bytes != GMSFS_SLAB_DEFAULT) {
        *limit_bytes = create_round_up(handle, handle->slab_wish_bytes);
        return 0;
    }
    if (handle->slab_bytes == 0)
        error = create_device_share(handle);
    *limit_bytes = handle->slab_bytes;
    if (announced_bytes && announced_bytes < *limit_bytes)
        *limit_bytes = announced_bytes;
    return error;
}

int gmsfs_set_slab_bytes(gmsfs_t *handle, uint64_t slab_bytes)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    handle->slab_wish_bytes = slab_bytes;
    gfs_leave(handle);
    return 0;
}

/* ---- slabs -------------------------------------------------------------------------------- */

/* True if this writer may still give it back, also asleep. */
static int create_is_own(const struct gmsfs_store *handle, const struct gfs_mapping *mapping)
{
    return handle->mode == GMSFS_MODE_RW && mapping->access == GMSFS_ACCESS_WRITE &&
           mapping->ident.epoch == handle->ident.epoch && !mapping->freed;
}

static void create_look_at_slabs(struct gmsfs_store *handle)
{
    for (size_t i = 0; i < handle->slabs.count; i++) {
        struct gfs_slab *slab = handle->slabs.slabs + i;
        const struct gfs_mapping *mapping = gfs_va_find(handle, (void *)slab->va);

        slab->closed = !mapping || !mapping->live || !create_is_own(handle, mapping);
    }
}

/* By default a new slab has the largest of a granule, a quarter of the bytes that its tag has in
 * slabs, and its first piece: so a tag costs at most about a quarter more than its pieces, and many
 * pieces need few allocations. The very first slab has the size announced at connect. */
static uint64_t create_next_bytes(const struct gmsfs_store *handle, uint64_t limit_bytes,
                                  uint64_t size_bytes, const char *tag)
{
    uint64_t next_bytes = create_round_up(handle, size_bytes), slabs_bytes = 0, grown_bytes;
    int is_first = 1;

    if (handle->slab_wish_bytes != GMSFS_SLAB_DEFAULT)
        return limit_bytes;
    for (size_t i = 0; i < handle->slabs.count; i++) {
        const struct gfs_slab *slab = handle->slabs.slabs + i;

        is_first = is_first && slab->closed;
        if (!slab->closed && strcmp(slab->tag, tag) == 0)
            slabs_bytes += slab->size_bytes;
    }
    if (is_first && handle->announced_bytes)
        return limit_bytes;
    grown_bytes = slabs_bytes / GFS_SLAB_GROWTH & ~(handle->granularity_bytes - 1);
    next_bytes = next_bytes > grown_bytes ? next_bytes : grown_bytes;
    return next_bytes < limit_bytes ? next_bytes : limit_bytes;
}

static int create_allocate(struct gmsfs_store *handle, uint64_t size_bytes, const char *tag,
                           struct gfs_mapping **mapping)
{
    struct gmsfs_ioc_alloc alloc = {.size_bytes = size_bytes, .count = 1};
    int error = gfs_text_copy(alloc.tag, sizeof alloc.tag, tag);

    if (!error)
        error = gfs_alloc(handle, &alloc);
    if (error)
        return error;
    error = gfs_va_make(handle, 0, alloc.slot, GMSFS_ACCESS_WRITE, mapping);
    if (error) {
        gfs_alloc_free(handle, alloc.slot);
        return error;
    }
    (*mapping)->made = 1;
    return 0;
}

static int create_is_gone(int error) /* the mount, or the device */
{
    return error == -ENOTCONN || error == -ENODEV || error == -EIO;
}

/* Frees the allocation first, as clients of GMS do. An allocation that the mount no longer has is
 * no error. If the mount refuses to free it, the mapping stays in the table: else the allocation
 * would stay in the layout for ever. */
static int create_give_back(struct gmsfs_store *handle, struct gfs_mapping *mapping)
{
    int mine = mapping->made && create_is_own(handle, mapping);
    int freed = mine ? gfs_alloc_free(handle, mapping->slot) : 0;

    if (freed == -ENOENT || freed == -ESTALE)
        freed = 0;
    if (freed && !create_is_gone(freed))
        return freed;
    mapping->freed = mapping->freed || mine;
    int error = gfs_va_undo(handle, mapping, 0);
    return error ? error : freed;
}

/* Undoes a mapping that the program has not seen yet. If it cannot be given back now,
 * gfs_create_trim does so later. */
static void create_give_up(struct gmsfs_store *handle, struct gfs_mapping *mapping)
{
    mapping->unused = 1;
    create_give_back(handle, mapping);
}

int gfs_create_trim(struct gmsfs_store *handle)
{
    GFS_SCOPE(scope);
    size_t at = 0;
    int error = 0;

    while (!error && at < handle->map.mapping_count) {
        struct gfs_mapping *mapping = handle->map.mappings + at++;

        if (!mapping->unused || !mapping->made || !create_is_own(handle, mapping))
            continue;
        if (!scope.memory)
            error = gfs_memory_enter(&handle->memory, 0, &scope);
        if (!error)
            error = create_give_back(handle, mapping);
        at = 0;
    }
    return error;
}

/* In the gate, as for every change of data that a child of fork() frees. */
static int create_note_slab(struct gmsfs_store *handle, const struct gfs_mapping *mapping,
                            const char *tag)
{
    gfs_gate_enter();
    int error = gfs_slabs_add(&handle->slabs, mapping->va, mapping->aligned_bytes, tag);
    gfs_gate_leave();
    return error;
}

static int create_take(struct gmsfs_store *handle, const char *tag, uint64_t size_bytes,
                       uintptr_t *va)
{
    gfs_gate_enter();
    int error = gfs_slabs_take(&handle->slabs, tag, size_bytes, va);
    gfs_gate_leave();
    return error;
}

static void create_forget_slab(struct gmsfs_store *handle, struct gfs_slab *slab)
{
    gfs_gate_enter();
    gfs_slabs_remove(&handle->slabs, slab);
    gfs_gate_leave();
}

static int create_add_slab(struct gmsfs_store *handle, uint64_t slab_bytes, const char *tag)
{
    struct gfs_mapping *mapping;
    int error = create_allocate(handle, slab_bytes, tag, &mapping);

    if (error)
        return error;
    error = create_note_slab(handle, mapping, tag);
    if (error)
        create_give_up(handle, mapping);
    return error;
}

static int create_carve(struct gmsfs_store *handle, uint64_t limit_bytes, uint64_t size_bytes,
                        const char *tag, uintptr_t *va)
{
    create_look_at_slabs(handle);
    int error = create_take(handle, tag, size_bytes, va);
    if (error != -ENOENT)
        return error;
    error = create_add_slab(handle, create_next_bytes(handle, limit_bytes, size_bytes, tag), tag);
    return error ? error : create_take(handle, tag, size_bytes, va);
}

/* ---- public ------------------------------------------------------------------------------- */

static int create_mapping(struct gmsfs_store *handle, uint64_t size_bytes, const char *tag,
                          uintptr_t *va, uint64_t *slot)
{
    struct gfs_mapping *mapping;
    uint64_t limit_bytes;
    int error = handle->mode == GMSFS_MODE_RW ? create_limit_bytes(handle, &limit_bytes) : -ENOLCK;

    if (error)
        return error;
    if (size_bytes <= limit_bytes) {
        error = create_carve(handle, limit_bytes, size_bytes, tag, va);
        mapping = error ? NULL : gfs_vmap_find_mapping(&handle->map, *va);
    } else {
        error = create_allocate(handle, size_bytes, tag, &mapping);
    }
    if (error)
        return error;
    if (size_bytes > limit_bytes)
        *va = mapping->va;
    *slot = mapping->slot;
    return 0;
}

int gmsfs_create_mapping(gmsfs_t *handle, uint64_t size_bytes, const char *tag, uint64_t *slot,
                         void **ptr)
{
    GFS_VA_SCOPE(scope);
    char checked[GMSFS_NAME_MAX + 1];
    uint64_t made_slot;
    uintptr_t va;

    if (!ptr || size_bytes == 0 || gfs_text_copy(checked, sizeof checked, tag))
        return -EINVAL;
    int error = gfs_va_enter(handle, &scope);
    if (error)
        return error;
    error = create_mapping(handle, size_bytes, checked, &va, &made_slot);
    if (error)
        return error;
    *ptr = (void *)va;
    if (slot)
        *slot = made_slot;
    return 0;
}

/* The last piece takes its slab along, and stays with it where the memory cannot be given back. */
static int create_destroy_piece(struct gmsfs_store *handle, struct gfs_slab *slab, uintptr_t va)
{
    void *base = (void *)slab->va;

    if (slab->piece_count != 1 || slab->pieces[0].offset != va - slab->va)
        return gfs_slab_give_back(slab, va);
    int error = create_give_back(handle, gfs_va_find(handle, base));
    if (!gfs_va_find(handle, base))
        create_forget_slab(handle, slab);
    return error;
}

int gmsfs_destroy_mapping(gmsfs_t *handle, void *ptr)
{
    GFS_VA_SCOPE(scope);
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    struct gfs_slab *slab = gfs_slabs_find(&handle->slabs, (uintptr_t)ptr);
    struct gfs_mapping *mapping = gfs_va_find(handle, ptr);
    if (slab)
        error = create_destroy_piece(handle, slab, (uintptr_t)ptr);
    else
        error = mapping ? create_give_back(handle, mapping) : -ENOENT;
    return error;
}
