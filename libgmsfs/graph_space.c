/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces of a graph pool, and the segments in them. */
#include "graph.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>

int gfs_graph_is_capturing(struct gmsfs_graph_pool *pool)
{
    int capturing = 0;

    gfs_graph_state_lock(pool);
    for (const struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
        capturing |= !space->eager && space->selected;
    gfs_graph_state_unlock(pool);
    return capturing;
}

/* ---- segments ----------------------------------------------------------------------------- */

static size_t space_chunks(uint64_t size_bytes, uint64_t chunk_bytes)
{
    return (size_t)(size_bytes / chunk_bytes + (size_bytes % chunk_bytes != 0));
}

size_t gfs_graph_space_live_reach(const struct gmsfs_graph_space *space, uint64_t chunk_bytes)
{
    const struct gfs_slab *slab = space->segments.slabs;

    if (slab->piece_count == 0)
        return 0;
    const struct gfs_span *last = slab->pieces + slab->piece_count - 1;
    return space_chunks(last->offset + last->size_bytes, chunk_bytes);
}

static int space_take(struct gmsfs_graph_space *space, uint64_t size_bytes, unsigned alloc_flags,
                      uintptr_t *va)
{
    struct gmsfs_graph_pool *pool = space->pool;

    gfs_graph_state_lock(pool);
    int error = gfs_slabs_take(&space->segments, "", size_bytes, va);
    if (!error)
        space->live_bytes += size_bytes;
    gfs_graph_state_unlock(pool);
    if (error)
        return error == -ENOENT ? -ENOSPC : error;
    size_t reach = space_chunks(*va + size_bytes - space->base, pool->chunk_bytes);
    error = gfs_graph_grow(space, reach, alloc_flags);
    if (error) {
        gfs_graph_state_lock(pool);
        gfs_graph_space_give_back(space, *va);
        gfs_graph_state_unlock(pool);
    }
    return error;
}

int gfs_graph_space_give_back(struct gmsfs_graph_space *space, uintptr_t va)
{
    struct gfs_slab *slab = space->segments.slabs;
    size_t at = 0;
    uint64_t size_bytes;

    ARRAY_SEARCH(at, slab->piece_count, slab->pieces[at].offset < va - slab->va);
    if (at == slab->piece_count)
        return -ENOENT;
    size_bytes = slab->pieces[at].size_bytes;
    if (gfs_slab_give_back(slab, va))
        return -ENOENT;
    space->live_bytes -= size_bytes;
    return 0;
}

/* Checked before op, so that a pool that waits to wake delays no call. */
static int space_check_phase(struct gmsfs_graph_pool *pool)
{
    int asleep, error = gfs_graph_check_pool(pool);

    if (error)
        return error;
    gfs_graph_state_lock(pool);
    asleep = pool->phase == GFS_GRAPH_ASLEEP;
    gfs_graph_state_unlock(pool);
    return asleep ? -ENOLCK : 0;
}

static int space_alloc(struct gmsfs_graph_pool *pool, struct gmsfs_graph_space *space,
                       uint64_t size_bytes, unsigned alloc_flags, uintptr_t *va)
{
    GFS_VA_SCOPE(scope);
    const struct gmsfs_graph_space *at = pool->spaces;

    while (at && at != space)
        at = at->next;
    if (!at)
        return -ENOENT;
    int error = gfs_graph_enter(pool, 1, &scope);
    if (!error)
        error = gfs_graph_check_awake(pool);
    return error ? error : space_take(space, size_bytes, alloc_flags, va);
}

int gfs_graph_space_alloc(struct gmsfs_graph_pool *pool, struct gmsfs_graph_space *space,
                          uint64_t size_bytes, unsigned alloc_flags, void **ptr)
{
    uintptr_t va = 0;
    int error = space_check_phase(pool);

    if (!error)
        error = gfs_graph_begin(pool);
    if (error)
        return error;
    error = space_alloc(pool, space, size_bytes, alloc_flags, &va);
    gfs_graph_end(pool);
    if (!error)
        *ptr = (void *)va;
    return error;
}

int gmsfs_graph_space_alloc(gmsfs_graph_space_t *space, uint64_t size_bytes, void **ptr)
{
    struct gmsfs_graph_pool *pool;

    if (!space || !ptr || size_bytes == 0)
        return -EINVAL;
    pool = space->pool;
    return pool ? gfs_graph_space_alloc(pool, space, size_bytes, 0, ptr) : -EBADF;
}

int gmsfs_graph_space_dealloc(gmsfs_graph_space_t *space, void *ptr)
{
    struct gmsfs_graph_pool *pool;
    int error = space ? gfs_graph_space_lock(space, &pool) : -EINVAL;

    if (error)
        return error;
    error = gfs_graph_space_give_back(space, (uintptr_t)ptr);
    gfs_graph_state_unlock(pool);
    return error;
}

/* ---- making ------------------------------------------------------------------------------- */

/* Frees the heap memory of a space that no other thread knows. */
static void gfs_graph_space_drop(struct gmsfs_graph_space *space)
{
    gfs_slabs_free(&space->segments);
    free(space->own.list);
    free(space);
}

static struct gfs_closed spaces_closed;

void gfs_graph_space_retire(struct gmsfs_graph_space *space)
{
    struct gmsfs_graph_pool *pool = space->pool;

    gfs_graph_state_lock(pool);
    space->pool = NULL;
    gfs_slabs_free(&space->segments);
    free(space->own.list);
    space->own = (struct gfs_chunks){0};
    gfs_graph_state_unlock(pool);
    free(gfs_closed_keep(&spaces_closed, space));
}

int gfs_graph_space_lock(struct gmsfs_graph_space *space, struct gmsfs_graph_pool **pool)
{
    *pool = space->pool;
    int error = *pool ? gfs_graph_check_pool(*pool) : -EBADF;
    if (error)
        return error;
    gfs_graph_state_lock(*pool);
    if (space->pool)
        return 0;
    gfs_graph_state_unlock(*pool);
    return -EBADF;
}

static int space_reserve(struct gmsfs_graph_space *space, uint64_t reserve_bytes)
{
    struct gmsfs_graph_pool *pool = space->pool;
    uint64_t chunk_bytes = pool->chunk_bytes, wanted_bytes;

    if (reserve_bytes > SIZE_MAX / 4)
        return -ENOMEM;
    wanted_bytes = space_chunks(reserve_bytes, chunk_bytes) * chunk_bytes;
    int error = gfs_memory_reserve(&pool->handle->memory, wanted_bytes, &space->base,
                                   &space->reserved_bytes);
    if (error)
        return error;
    error = gfs_slabs_add(&space->segments, space->base, space->reserved_bytes, "");
    if (error)
        gfs_memory_release(&pool->handle->memory, space->base, space->reserved_bytes);
    return error;
}

int gmsfs_graph_space_new(gmsfs_graph_pool_t *pool, uint64_t reserve_bytes, unsigned flags,
                          gmsfs_graph_space_t **out)
{
    GFS_VA_SCOPE(scope);
    struct gmsfs_graph_space *space;
    int error;

    if (!out || reserve_bytes == 0 || flags & ~GMSFS_GRAPH_EAGER)
        return -EINVAL;
    error = gfs_graph_begin(pool);
    if (error)
        return error;
    space = calloc(1, sizeof *space);
    if (!space) {
        error = -ENOMEM;
        goto out;
    }
    space->pool = pool;
    space->eager = (flags & GMSFS_GRAPH_EAGER) != 0;
    error = gfs_graph_enter(pool, 1, &scope);
    if (!error)
        error = space_reserve(space, reserve_bytes);
    if (error) {
        gfs_graph_space_drop(space);
        goto out;
    }
    gfs_graph_state_lock(pool);
    space->next = pool->spaces;
    pool->spaces = space;
    gfs_graph_state_unlock(pool);
    pool->handle->space_count++;
    gfs_graph_note(pool);
    *out = space;
out:
    gfs_va_leave(&scope);
    gfs_graph_end(pool);
    return error;
}

/* ---- freeing ------------------------------------------------------------------------------ */

/* Removes the space from its pool: no later call finds it. */
static int space_unlink(struct gmsfs_graph_space *space)
{
    struct gmsfs_graph_pool *pool = space->pool;
    struct gmsfs_graph_space **at = &pool->spaces;
    int error = 0;

    gfs_graph_state_lock(pool);
    if (space->selected || space->segments.slabs[0].piece_count)
        error = -EBUSY;
    while (!error && *at != space)
        at = &(*at)->next;
    if (!error)
        *at = space->next;
    gfs_graph_state_unlock(pool);
    return error;
}

static int space_is_used(struct gmsfs_graph_space *space)
{
    gfs_graph_state_lock(space->pool);
    int used = space->selected || space->segments.slabs[0].piece_count;
    gfs_graph_state_unlock(space->pool);
    return used;
}

/* Only `space` itself leads to it meanwhile, and the caller gives that up. */
static int space_free(struct gmsfs_graph_space *space)
{
    GFS_VA_SCOPE(scope);
    struct gmsfs_graph_pool *pool = space->pool;
    struct gfs_memory *memory = &pool->handle->memory;
    int error = 0;

    if (space_is_used(space) || (space->mapped && gfs_graph_is_capturing(pool)))
        return -EBUSY;
    error = gfs_graph_enter(pool, !space->mapped, &scope);
    if (!error && space->mapped)
        error = gfs_memory_synchronise(memory);
    if (!error)
        error = gfs_graph_unmap(space, 0);
    if (!error)
        error = space_unlink(space);
    if (error)
        return error;
    gfs_graph_return_own(space, 0);
    gfs_memory_release(memory, space->base, space->reserved_bytes);
    pool->handle->space_count--;
    gfs_graph_note(pool);
    return 0;
}

int gmsfs_graph_space_free(gmsfs_graph_space_t *space)
{
    struct gmsfs_graph_pool *pool;

    if (!space)
        return 0;
    pool = space->pool;
    int error = pool ? gfs_graph_begin_unmap(pool) : -EBADF;
    if (error)
        return error;
    if (!space->pool)
        error = -EBADF;
    else
        error = pool->phase == GFS_GRAPH_FALLING ? -ENOLCK : space_free(space);
    if (!error)
        gfs_graph_space_retire(space);
    gfs_graph_end_unmap(pool);
    return error;
}

int(gmsfs_graph_space_get_stats)(gmsfs_graph_space_t *space, struct gmsfs_graph_space_stats *out,
                                 size_t out_bytes)
{
    struct gmsfs_graph_space_stats stats;
    struct gmsfs_graph_pool *pool;
    int valid = space && out && !gfs_check_struct(out_bytes);
    int error = valid ? gfs_graph_space_lock(space, &pool) : -EINVAL;

    if (error)
        return error;
    stats = (struct gmsfs_graph_space_stats){
        .base = (void *)space->base,
        .eager = space->eager,
        .address_bytes = space->reserved_bytes,
        .reached_bytes = space->reached * pool->chunk_bytes,
        .live = space->segments.slabs[0].piece_count,
        .live_bytes = space->live_bytes,
    };
    gfs_graph_state_unlock(pool);
    gfs_give_struct(out, out_bytes, &stats, sizeof stats);
    return 0;
}
