/* SPDX-License-Identifier: Apache-2.0 */
/* A slot: one store's memory after the other at the same addresses. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hex.h"
#include "layout.h"
#include "remap.h"

/* `other` is a second handle until the two swap their stores; then closing it releases the old
 * store. */
struct retarget {
    struct gmsfs_store *handle, *other;
    struct gfs_export export;     /* of the store that `other` has locked */
    uint8_t hash[16];             /* hash of the mapped layout */
    struct gmsfs_layout *layout;  /* the other's, where it had to be read; owned */
    int had_lock;                 /* at the beginning */
    int is_unmapped, is_released; /* by this call */
};

/* ---- the shape ---------------------------------------------------------------------------- */

static int retarget_same_allocations(const struct gmsfs_layout *a, const struct gmsfs_layout *b)
{
    if (a->allocation_count != b->allocation_count)
        return 0;
    for (size_t i = 0; i < a->allocation_count; i++)
        if (a->allocations[i].size_bytes != b->allocations[i].size_bytes ||
            a->allocations[i].aligned_bytes != b->allocations[i].aligned_bytes ||
            strcmp(a->allocations[i].tag, b->allocations[i].tag) != 0)
            return 0;
    return 1;
}

static const struct gmsfs_layout_entry *retarget_next_bound(const struct gmsfs_layout *layout,
                                                            size_t *at)
{
    while (*at < layout->entry_count) {
        const struct gmsfs_layout_entry *entry = layout->entries + (*at)++;

        if (entry->rank != GMSFS_SLOT_NONE)
            return entry;
    }
    return NULL;
}

static int retarget_same_entry(const struct gmsfs_layout_entry *a,
                               const struct gmsfs_layout_entry *b)
{
    return a->key_bytes == b->key_bytes && memcmp(a->key, b->key, a->key_bytes) == 0 &&
           a->rank == b->rank && a->offset == b->offset && a->value_bytes == b->value_bytes &&
           memcmp(a->value, b->value, a->value_bytes) == 0;
}

static int retarget_same_entries(const struct gmsfs_layout *a, const struct gmsfs_layout *b)
{
    const struct gmsfs_layout_entry *left, *right;
    size_t at = 0, of = 0;

    do {
        left = retarget_next_bound(a, &at);
        right = retarget_next_bound(b, &of);
        if (!left != !right || (left && !retarget_same_entry(left, right)))
            return 0;
    } while (left);
    return 1;
}

/* Finds the hash of the mapped layout. All mappings must be of one layout, which was committed. */
static int retarget_find_hash(struct retarget *retarget)
{
    const struct gfs_vmap *map = &retarget->handle->map;

    for (size_t i = 0; i < map->mapping_count; i++) {
        const struct gfs_mapping *mapping = map->mappings + i;

        if (i == 0)
            memcpy(retarget->hash, mapping->ident.layout_hash, sizeof retarget->hash);
        if (gfs_is_zero(mapping->ident.layout_hash) || mapping->rank == GMSFS_SLOT_NONE ||
            memcmp(retarget->hash, mapping->ident.layout_hash, sizeof retarget->hash) != 0)
            return -ESTALE;
    }
    return 0;
}

/* In the gate: a child of fork() frees the pointer that it finds there. */
static void retarget_keep_shape(struct gmsfs_store *handle, struct gmsfs_layout *layout)
{
    struct gmsfs_layout *before = handle->shape;

    handle->shape = layout;
    gmsfs_free_layout(before);
}

/* Kept: the store may change while the handle sleeps, or be removed. */
static int retarget_find_shape(struct retarget *retarget)
{
    struct gmsfs_store *handle = retarget->handle;
    struct gmsfs_layout *layout = NULL;
    char text[GMSFS_HASH_TEXT_BYTES];

    hex_format(retarget->hash, sizeof retarget->hash, text);
    if (handle->shape && strcmp(handle->shape->hash, text) == 0)
        return 0;
    int error = gfs_layout_read(handle, &layout);
    if (!error && strcmp(layout->hash, text) != 0)
        error = -ESTALE;
    if (error) {
        gmsfs_free_layout(layout);
        return error == -ENODATA ? -ESTALE : error;
    }
    retarget_keep_shape(handle, layout);
    return 0;
}

/* hash: of the other store's committed layout. */
static int retarget_check_shape(struct retarget *retarget, const uint8_t hash[16])
{
    char text[GMSFS_HASH_TEXT_BYTES];
    int error = 0;

    hex_format(hash, 16, text);
    if (retarget->handle->map.mapping_count == 0 ||
        memcmp(retarget->hash, hash, sizeof retarget->hash) == 0 ||
        (retarget->layout && strcmp(retarget->layout->hash, text) == 0))
        return 0;
    error = retarget_find_shape(retarget);
    gmsfs_free_layout(retarget->layout);
    retarget->layout = NULL;
    if (!error)
        error = gfs_layout_read(retarget->other, &retarget->layout);
    if (!error && (!retarget_same_allocations(retarget->handle->shape, retarget->layout) ||
                   !retarget_same_entries(retarget->handle->shape, retarget->layout)))
        error = -ESTALE;
    return error;
}

/* Before anything is given up for it. Where nothing is committed yet, the lock is waited for. */
static int retarget_look(struct retarget *retarget)
{
    struct gmsfs_ioc_info info = {0};
    int error = gfs_ioctl(retarget->other, GMSFS_IOC_INFO, &info);

    if (error || !info.committed)
        return error;
    error = retarget_check_shape(retarget, info.layout_hash);
    return error == -ENODATA ? 0 : error;
}

/* ---- the stores --------------------------------------------------------------------------- */

static int retarget_check(const struct retarget *retarget)
{
    const struct gmsfs_store *handle = retarget->handle;
    int live = 0;

    for (size_t i = 0; i < handle->map.mapping_count; i++)
        live |= handle->map.mappings[i].live;
    if (gfs_session_writes(handle) || handle->connecting || (handle->unmapped && live))
        return -EBUSY;
    if (live && handle->mode == GMSFS_MODE_NONE)
        return -ENOLCK;
    return handle->is_beside ? -EXDEV : 0;
}

/* Host memory has no device that tells two mounts apart: each mount is one. */
static int retarget_is_elsewhere(const struct gmsfs_store *a, const struct gmsfs_store *b)
{
    struct stat one, other;

    return a->memory.kind == &gfs_memory_host && fstat(a->dir_fd, &one) == 0 &&
           fstat(b->dir_fd, &other) == 0 && one.st_dev != other.st_dev;
}

static int retarget_open(struct retarget *retarget, const char *path)
{
    const struct gfs_memory *ours = &retarget->handle->memory, *theirs;
    int error = gmsfs_open(path, &retarget->other);

    if (error)
        return error;
    gfs_wait_share(retarget->other, retarget->handle); /* gfs_wait_cancel finds both */
    theirs = &retarget->other->memory;
    return ours->kind == theirs->kind && ours->granularity_bytes == theirs->granularity_bytes &&
                   memcmp(ours->uuid, theirs->uuid, sizeof ours->uuid) == 0 &&
                   !retarget_is_elsewhere(retarget->handle, retarget->other)
               ? 0
               : -EXDEV;
}

static int retarget_take(struct retarget *retarget, uint64_t timeout_ms)
{
    retarget->export = (struct gfs_export){0};
    return gfs_remap_acquire(retarget->other, timeout_ms, &retarget->export);
}

#define SWAP(field)                              \
    do {                                         \
        __typeof__(a->field) between = a->field; \
        a->field = b->field;                     \
        b->field = between;                      \
    } while (0)

/* Swaps all fields that belong to the store. In the gate, because a child of fork() closes the
 * descriptors that it finds. */
static void retarget_swap(struct retarget *retarget)
{
    struct gmsfs_store *a = retarget->handle, *b = retarget->other;
    uint8_t token[GMSFS_TOKEN_BYTES];

    gfs_gate_enter();
    gfs_state_lock(a);
    memcpy(token, a->token, sizeof token);
    memcpy(a->token, b->token, sizeof token);
    memcpy(b->token, token, sizeof token);
    SWAP(path);
    SWAP(dir_fd);
    SWAP(ctl_fd);
    SWAP(fds_fd);
    SWAP(writable);
    SWAP(mode);
    SWAP(session);
    SWAP(ident);
    SWAP(ident_broken);
    SWAP(was_lost);
    gfs_state_unlock(a);
    gfs_gate_leave();
}

/* ---- there, and back ---------------------------------------------------------------------- */

static int retarget_unmap(struct retarget *retarget)
{
    struct gmsfs_store *handle = retarget->handle;

    if (handle->unmapped || handle->map.mapping_count == 0)
        return 0;
    retarget->is_unmapped = 1;
    gfs_state_lock(handle);
    handle->unmapped = 1;
    gfs_state_unlock(handle);
    return gfs_remap_unmap_all(handle);
}

static int retarget_let_go(struct retarget *retarget)
{
    int error = retarget_unmap(retarget);

    if (error || !retarget->had_lock)
        return error;
    retarget->is_released = 1;
    return gfs_session_release(retarget->handle);
}

/* Releases the other store's lock first: taking the old one again does not wait, so a cancelled
 * call can do it too, and holds nothing meanwhile. If the old state cannot be restored, the handle
 * stays asleep. */
static void retarget_return(struct retarget *retarget)
{
    struct gmsfs_store *handle = retarget->handle;
    struct gfs_export export = {0};
    int error = 0;

    gfs_session_release(retarget->other);
    if (retarget->is_released && handle->mode == GMSFS_MODE_NONE)
        error = gfs_remap_acquire(handle, 0, &export);
    if (!error && retarget->is_unmapped)
        error = gfs_remap_wake(handle, &export, GFS_WAKE_BYTES);
    if (error)
        gfs_session_release(handle);
}

static int retarget_wake(struct retarget *retarget)
{
    struct gmsfs_store *handle = retarget->handle;

    retarget->other->ident.epoch = handle->ident.epoch + 1;
    retarget_swap(retarget);
    int error = gfs_remap_wake(handle, &retarget->export, GFS_WAKE_SHAPE);
    if (error) {
        retarget_swap(retarget);
        return error;
    }
    if (retarget->layout) {
        retarget_keep_shape(handle, retarget->layout);
        retarget->layout = NULL;
    }
    handle->announced_bytes = 0;
    gfs_notice_follow(handle);
    return 0;
}

static int retarget_go(struct retarget *retarget, uint64_t timeout_ms)
{
    int error = retarget_take(retarget, 0);

    if (error == -EAGAIN && timeout_ms) {
        /* Nothing is given up for a wait that does not begin. */
        error = gfs_wait_is_cancelled(retarget->handle) ? -ECANCELED : retarget_let_go(retarget);
        if (!error)
            error = retarget_take(retarget, timeout_ms);
    }
    if (!error)
        error = retarget_check_shape(retarget, retarget->other->ident.layout_hash);
    if (!error)
        error = retarget_unmap(retarget);
    if (!error)
        error = retarget_wake(retarget);
    if (error)
        retarget_return(retarget);
    return error;
}

int gmsfs_retarget(gmsfs_t *handle, const char *path, uint64_t timeout_ms)
{
    GFS_VA_SCOPE(scope);
    struct retarget retarget = {.handle = handle};
    int error = path ? gfs_va_enter(handle, &scope) : -EINVAL;

    if (error)
        return error;
    retarget.had_lock = handle->mode != GMSFS_MODE_NONE;
    error = retarget_check(&retarget);
    if (!error)
        error = retarget_find_hash(&retarget);
    if (!error)
        error = retarget_open(&retarget, path);
    if (!error)
        error = retarget_look(&retarget);
    if (!error)
        error = retarget_go(&retarget, timeout_ms);
    gmsfs_free_layout(retarget.layout);
    if (retarget.other)
        gfs_wait_dismiss(retarget.other);
    gmsfs_close(retarget.other);
    return error;
}
