/* SPDX-License-Identifier: Apache-2.0 */
/* Tier 2, sleeping and waking: every mapping goes and comes back at its address. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "remap.h"

#include "base/array.h"

/* One preserved mapping on its way back. It is found by slot where slots still mean the same, else
 * by rank. */
struct remap_item {
    struct gfs_mapping *mapping;
    int by_slot;
    uint64_t key;
    uint64_t slot, rank;
    enum gmsfs_access access;
};

struct remap {
    struct gmsfs_store *handle;
    struct remap_item *items; /* sorted by (by_slot, key) */
    size_t count, mapped;
    uint64_t devices; /* devices that may access the new mappings */
    const char *tag;  /* NULL: all that sleep */
};

static int remap_has_tag(const struct gfs_mapping *mapping, const char *tag)
{
    return !tag || (mapping->tag && strcmp(mapping->tag, tag) == 0);
}

static int remap_compare(const void *left, const void *right)
{
    const struct remap_item *a = left, *b = right;

    if (a->by_slot != b->by_slot)
        return a->by_slot - b->by_slot;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->mapping->va > b->mapping->va) - (a->mapping->va < b->mapping->va);
}

static int remap_collect(struct remap *remap)
{
    struct gfs_vmap *map = &remap->handle->map;

    remap->items = calloc(map->mapping_count + 1, sizeof *remap->items);
    if (!remap->items)
        return -ENOMEM;
    for (size_t i = 0; i < map->mapping_count; i++)
        if (!map->mappings[i].live && remap_has_tag(map->mappings + i, remap->tag))
            remap->items[remap->count++].mapping = map->mappings + i;
    return 0;
}

static void remap_sort(struct remap *remap)
{
    if (remap->count > 1)
        qsort(remap->items, remap->count, sizeof *remap->items, remap_compare);
}

/* ---- descriptors coming in ---------------------------------------------------------------- */

static int remap_one(struct remap *remap, struct remap_item *item, const struct gfs_item *given,
                     int fd)
{
    struct gfs_mapping *mapping = item->mapping;

    if (given->aligned_bytes != mapping->aligned_bytes || given->size_bytes != mapping->size_bytes)
        return -ESTALE;
    /* given twice */
    if (mapping->waking)
        return -EPROTO;
    int error = gfs_memory_map(&remap->handle->memory, mapping->va, mapping->aligned_bytes,
                               item->access, fd);
    if (error)
        return error;
    item->slot = given->slot;
    item->rank = given->rank;
    mapping->waking = item->access;
    mapping->devices = remap->devices;
    remap->mapped++;
    return 0;
}

static int remap_matching(struct remap *remap, int by_slot, uint64_t key,
                          const struct gfs_item *given, int fd)
{
    const struct remap_item *items = remap->items;
    size_t at = 0;
    int error = 0;

    ARRAY_SEARCH(at, remap->count,
                 items[at].by_slot < by_slot ||
                     (items[at].by_slot == by_slot && items[at].key < key));
    for (; at < remap->count && !error; at++) {
        struct remap_item *item = remap->items + at;
        if (item->by_slot != by_slot || item->key != key)
            break;
        error = remap_one(remap, item, given, fd);
    }
    return error;
}

static int remap_take(void *context, const struct gfs_item *given, int *fd)
{
    struct remap *remap = context;
    int error = remap_matching(remap, 1, given->slot, given, *fd);

    return error ? error : remap_matching(remap, 0, given->rank, given, *fd);
}

/* ---- the end, either way ------------------------------------------------------------------ */

static int remap_is_waking(const struct gfs_mapping *mapping, const void *context)
{
    const enum gmsfs_access *access = context;

    return mapping->waking && (!access || mapping->waking == *access);
}

/* By as few calls as may be: on a device each of them costs more than a mapping. */
static int remap_settle(struct remap *remap)
{
    static const enum gmsfs_access each[] = {GMSFS_ACCESS_READ, GMSFS_ACCESS_WRITE};
    struct gmsfs_store *handle = remap->handle;
    uint64_t size_bytes;
    uintptr_t va;
    int error = 0;

    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        size_t at = 0;
        while (!error &&
               gfs_vmap_next_run(&handle->map, &at, remap_is_waking, &each[i], &va, &size_bytes))
            error = gfs_memory_settle(&handle->memory, va, size_bytes, each[i], remap->devices);
    }
    return error;
}

static void remap_undo(struct remap *remap)
{
    struct gmsfs_store *handle = remap->handle;
    uint64_t size_bytes;
    size_t at = 0;
    uintptr_t va;

    while (gfs_vmap_next_run(&handle->map, &at, remap_is_waking, NULL, &va, &size_bytes))
        gfs_memory_unmap(&handle->memory, va, size_bytes);
    for (size_t i = 0; i < remap->count; i++)
        remap->items[i].mapping->waking = 0;
}

/* All descriptors of the export, and rights in the end. */
static int remap_redeem(struct remap *remap, struct gfs_export *export)
{
    struct gmsfs_store *handle = remap->handle;
    int error = gfs_memory_find_devices(&handle->memory, &remap->devices);

    if (error)
        return error;
    gfs_gate_enter();
    handle->waking = 1;
    gfs_gate_leave();
    error = gfs_export_redeem(handle, export, remap_take, remap);
    if (!error && remap->mapped != remap->count)
        error = -ESTALE;
    gfs_gate_enter();
    if (!error)
        error = remap_settle(remap);
    if (error)
        remap_undo(remap);
    handle->waking = 0;
    gfs_gate_leave();
    return error;
}

static void remap_finish(struct remap *remap)
{
    struct gmsfs_store *handle = remap->handle;

    gfs_state_lock(handle);
    for (size_t i = 0; i < remap->count; i++) {
        struct gfs_mapping *mapping = remap->items[i].mapping;
        mapping->slot = remap->items[i].slot;
        mapping->rank = remap->items[i].rank;
        mapping->access = remap->items[i].access;
        mapping->ident = handle->ident;
        mapping->waking = 0;
        mapping->live = 1;
        mapping->freed = 0;
    }
    handle->unmapped = 0;
    gfs_state_unlock(handle);
}

/* ---- unmap -------------------------------------------------------------------------------- */

/* context: a tag, or NULL for all. */
static int remap_is_live(const struct gfs_mapping *mapping, const void *context)
{
    return mapping->live && remap_has_tag(mapping, context);
}

static int remap_unmap(struct gmsfs_store *handle, const char *tag)
{
    uint64_t size_bytes;
    size_t at = 0, first;
    uintptr_t va;
    int error = gfs_memory_synchronise(&handle->memory);

    if (error)
        return error;
    while (first = at, gfs_vmap_next_run(&handle->map, &at, remap_is_live, tag, &va, &size_bytes)) {
        int failed = gfs_memory_unmap(&handle->memory, va, size_bytes);
        error = error ? error : failed;
        gfs_state_lock(handle);
        for (size_t i = first; i < at; i++)
            if (remap_is_live(handle->map.mappings + i, tag))
                handle->map.mappings[i].live = failed != 0;
        gfs_state_unlock(handle);
    }
    return error;
}

int gfs_remap_unmap_all(struct gmsfs_store *handle)
{
    return remap_unmap(handle, NULL);
}

int gmsfs_unmap_all_vas(gmsfs_t *handle, unsigned flags)
{
    GFS_VA_SCOPE(scope);
    int error, released = 0;

    if (flags & ~GMSFS_UNMAP_KEEP_LOCK)
        return -EINVAL;
    error = gfs_va_enter(handle, &scope);
    if (error)
        return error;

    /* Ranks and tags are for waking up; a mount that no longer tells them is no reason to hold
     * on to its memory. */

    gfs_mapping_learn_for_sleep(handle);
    error = gfs_remap_unmap_all(handle);
    if (!error) {
        gfs_state_lock(handle);
        handle->unmapped = 1;
        gfs_state_unlock(handle);
        if (!(flags & GMSFS_UNMAP_KEEP_LOCK))
            released = gfs_session_release(handle);
    }
    return error ? error : released;
}

/* ---- remap -------------------------------------------------------------------------------- */

/* Checks that the present layout has the allocation that the mapping showed, and finds it. A writer
 * does not get the hash of the layout, so it cannot tell that another commit left the structure as
 * it was. */
static int remap_check(const struct gmsfs_store *handle, struct remap_item *item, enum gfs_wake as)
{
    const struct gfs_ident *now = &handle->ident, *then = &item->mapping->ident;
    int had_hash = !gfs_is_zero(then->layout_hash);
    int same_hash = had_hash && memcmp(now->layout_hash, then->layout_hash, 16) == 0;
    int same = now->epoch == then->epoch || (same_hash && now->generation == then->generation &&
                                             memcmp(now->store_id, then->store_id, 16) == 0);

    if (as == GFS_WAKE_SHAPE)
        same = 0;
    else if (!same && (as == GFS_WAKE_BYTES || (had_hash && !same_hash)))
        return -ESTALE;
    item->by_slot = same;
    item->key = same ? item->mapping->slot : item->mapping->rank;
    item->access = gfs_session_writes(handle) ? item->mapping->access : GMSFS_ACCESS_READ;
    return 0;
}

int gfs_remap_acquire(struct gmsfs_store *handle, uint64_t timeout_ms, struct gfs_export *export)
{
    struct gmsfs_ioc_acquire acquire = {
        .mode = GMSFS_MODE_RO, .flags = GMSFS_ACQUIRE_EXPORT, .timeout_ms = timeout_ms};
    int error = gfs_session_acquire(handle, &acquire);

    if (error)
        return error;
    export->count = acquire.count;
    /* else EXPORT tells why */
    export->has_ticket = !gfs_is_zero(acquire.ticket);
    memcpy(export->ticket, acquire.ticket, sizeof export->ticket);
    return 0;
}

static int remap_all(struct remap *remap, struct gfs_export *export, enum gfs_wake as)
{
    struct gmsfs_store *handle = remap->handle;
    int error = 0;

    export->access = GMSFS_ACCESS_READ;
    for (size_t i = 0; i < remap->count && !error; i++) {
        error = remap_check(handle, remap->items + i, as);
        if (remap->items[i].access == GMSFS_ACCESS_WRITE)
            export->access = GMSFS_ACCESS_WRITE;
    }
    if (error || remap->count == 0)
        return error;
    remap_sort(remap);
    if (!export->has_ticket)
        error = gfs_export_ticket(handle, export);
    return error ? error : remap_redeem(remap, export);
}

int gfs_remap_wake(struct gmsfs_store *handle, struct gfs_export *export, enum gfs_wake as)
{
    struct remap remap = {.handle = handle};
    int error = remap_collect(&remap);

    if (!error)
        error = remap_all(&remap, export, as);
    if (!error)
        remap_finish(&remap);
    free(remap.items);
    return error;
}

int gmsfs_remap_all_vas(gmsfs_t *handle, uint64_t timeout_ms, int strict)
{
    GFS_VA_SCOPE(scope);
    struct gfs_export export = {0};
    int error = gfs_va_enter(handle, &scope), mine = 0;

    if (error)
        return error;
    if (!handle->unmapped)
        return -EINVAL;
    if (handle->mode == GMSFS_MODE_NONE) {
        error = gfs_remap_acquire(handle, timeout_ms, &export);
        mine = !error;
    }
    if (!error)
        error = gfs_remap_wake(handle, &export, strict ? GFS_WAKE_BYTES : GFS_WAKE_STRUCTURE);
    if (error && mine)
        gfs_session_release(handle);
    return error;
}

/* ---- by tag ------------------------------------------------------------------------------- */

static int remap_check_tag(const struct gmsfs_store *handle)
{
    if (handle->unmapped)
        return -EINVAL;
    return handle->mode == GMSFS_MODE_NONE ? -ENOLCK : 0;
}

int gmsfs_unmap_tag(gmsfs_t *handle, const char *tag)
{
    GFS_VA_SCOPE(scope);
    int error = tag ? gfs_va_enter(handle, &scope) : -EINVAL;

    if (!error)
        error = remap_check_tag(handle);
    if (!error)
        error = gfs_mapping_learn_for_sleep(handle);
    return error ? error : remap_unmap(handle, tag);
}

int gmsfs_remap_tag(gmsfs_t *handle, const char *tag)
{
    GFS_VA_SCOPE(scope);
    struct gfs_export export = {0};
    struct remap remap = {.handle = handle, .tag = tag};
    int error = tag ? gfs_va_enter(handle, &scope) : -EINVAL;

    if (!error)
        error = remap_check_tag(handle);
    if (!error)
        error = remap_collect(&remap);
    if (!error)
        error = remap_all(&remap, &export, GFS_WAKE_STRUCTURE);
    if (!error)
        remap_finish(&remap);
    free(remap.items);
    return error;
}

/* ---- reallocate --------------------------------------------------------------------------- */

/* The old order: of one layout by slot. */
static int remap_compare_age(const void *left, const void *right)
{
    const struct gfs_mapping *a = ((const struct remap_item *)left)->mapping;
    const struct gfs_mapping *b = ((const struct remap_item *)right)->mapping;

    if (a->ident.epoch != b->ident.epoch)
        return a->ident.epoch < b->ident.epoch ? -1 : 1;
    if (a->slot != b->slot)
        return a->slot < b->slot ? -1 : 1;
    return (a->va > b->va) - (a->va < b->va);
}

static int remap_same_memory(const struct remap_item *a, const struct remap_item *b)
{
    return a->mapping->ident.epoch == b->mapping->ident.epoch &&
           a->mapping->slot == b->mapping->slot;
}

/* Readers do not know their tags: the mount does, while the layout is that one. */
static int remap_need_tags(struct remap *remap)
{
    int error = 0, missing = 0;

    for (size_t i = 0; i < remap->count; i++)
        missing |= !remap->items[i].mapping->tag;
    if (missing)
        error = gfs_mapping_learn_tags(remap->handle);
    for (size_t i = 0; i < remap->count && !error; i++)
        if (!remap->items[i].mapping->tag)
            error = -ENODATA;
    return error;
}

/* Items from `start` that one ALLOC can serve: neighbours of one size and tag. Sets their keys as
 * if the first slot were 0, and tells how many allocations they are. */
static size_t remap_run(struct remap *remap, size_t start, uint32_t *allocations)
{
    const struct gfs_mapping *first = remap->items[start].mapping;
    size_t end;

    *allocations = 1;
    for (end = start + 1; end < remap->count; end++) {
        struct remap_item *item = remap->items + end;
        if (!remap_same_memory(item - 1, item)) {
            if (item->mapping->size_bytes != first->size_bytes ||
                strcmp(item->mapping->tag, first->tag) != 0 || *allocations == UINT32_MAX)
                break;
            ++*allocations;
        }
        item->key = *allocations - 1;
    }
    remap->items[start].key = 0;
    return end;
}

struct remap_fresh {
    uint64_t *slots; /* allocated by this call, for the way back */
    size_t count;
    uint64_t first_rank;
};

static int remap_allocate_run(struct remap *remap, size_t start, size_t end, uint32_t allocations,
                              struct remap_fresh *fresh)
{
    const struct gfs_mapping *first = remap->items[start].mapping;
    struct gmsfs_ioc_alloc alloc = {.size_bytes = first->size_bytes, .count = allocations};
    int error = gfs_text_copy(alloc.tag, sizeof alloc.tag, first->tag);

    if (!error)
        error = gfs_alloc(remap->handle, &alloc);
    if (error)
        return error;
    for (uint32_t i = 0; i < allocations; i++)
        fresh->slots[fresh->count++] = alloc.slot + i;
    if (alloc.rank < fresh->first_rank)
        fresh->first_rank = alloc.rank;
    for (size_t i = start; i < end; i++) {
        remap->items[i].by_slot = 1;
        remap->items[i].key += alloc.slot;
        remap->items[i].access = GMSFS_ACCESS_WRITE;
    }
    return 0;
}

static int remap_allocate_all(struct remap *remap, struct remap_fresh *fresh)
{
    uint32_t allocations;
    size_t end;
    int error = 0;

    for (size_t start = 0; start < remap->count && !error; start = end) {
        end = remap_run(remap, start, &allocations);
        error = remap_allocate_run(remap, start, end, allocations, fresh);
    }
    return error;
}

/* Everything that will be allocated, once, before any of it is. */
static int remap_reserve(struct remap *remap, struct gmsfs_ioc_reserve *reserve)
{
    *reserve = (struct gmsfs_ioc_reserve){.flags = GMSFS_RESERVE_AT_LEAST};
    qsort(remap->items, remap->count, sizeof *remap->items, remap_compare_age);
    for (size_t i = 0; i < remap->count; i++)
        if (i == 0 || !remap_same_memory(remap->items + i - 1, remap->items + i))
            reserve->bytes += remap->items[i].mapping->aligned_bytes;
    if (remap->handle->memory_wait_ms == 0)
        reserve->flags |= GMSFS_RESERVE_NOWAIT;
    else if (remap->handle->memory_wait_ms != GMSFS_TIMEOUT_FOREVER)
        reserve->timeout_ms = remap->handle->memory_wait_ms;
    return gfs_ioctl_waiting(remap->handle, GMSFS_IOC_RESERVE, reserve);
}

/* After a failure: lowers the reservation to its value before the call. */
static void remap_unreserve(struct gmsfs_store *handle, const struct gmsfs_ioc_reserve *reserve)
{
    struct gmsfs_ioc_reserve back = {.bytes = reserve->before, .flags = GMSFS_RESERVE_NOWAIT};

    if (back.bytes < reserve->bytes && gfs_ioctl(handle, GMSFS_IOC_RESERVE, &back) == -ENOMEM) {
        back = (struct gmsfs_ioc_reserve){.flags = GMSFS_RESERVE_NOWAIT};
        gfs_ioctl(handle, GMSFS_IOC_RESERVE, &back);
    }
}

static int remap_reallocate(struct remap *remap)
{
    struct remap_fresh fresh = {.first_rank = UINT64_MAX};
    struct gfs_export export = {.access = GMSFS_ACCESS_WRITE};
    struct gmsfs_store *handle = remap->handle;
    struct gmsfs_ioc_reserve reserve;
    int error = remap_need_tags(remap);

    if (error || remap->count == 0)
        return error;
    fresh.slots = calloc(remap->count, sizeof *fresh.slots);
    if (!fresh.slots)
        return -ENOMEM;
    error = remap_reserve(remap, &reserve);
    if (error)
        goto out;
    error = remap_allocate_all(remap, &fresh);
    if (!error) {
        remap_sort(remap);
        /* new ones are last in the layout */
        export.first = fresh.first_rank;
        error = gfs_export_ticket(handle, &export);
    }
    if (!error)
        error = remap_redeem(remap, &export);
    if (error) {
        while (fresh.count)
            gfs_alloc_free(handle, fresh.slots[--fresh.count]);
        remap_unreserve(handle, &reserve);
    }
out:
    free(fresh.slots);
    return error;
}

int gmsfs_reallocate_all_handles(gmsfs_t *handle)
{
    GFS_VA_SCOPE(scope);
    struct remap remap = {.handle = handle};
    int error = gfs_va_enter(handle, &scope);

    if (error)
        return error;
    if (handle->mode != GMSFS_MODE_RW)
        error = -ENOLCK;
    else if (!handle->unmapped)
        error = -EINVAL;
    if (!error)
        error = remap_collect(&remap);
    if (!error)
        error = remap_reallocate(&remap);
    if (!error)
        remap_finish(&remap);
    free(remap.items);
    return error;
}
