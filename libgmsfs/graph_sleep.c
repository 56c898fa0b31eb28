/* SPDX-License-Identifier: Apache-2.0 */
/* Waking, sleeping and shrinking of graph pools. */
#include "graph.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void sleep_set_phase(struct gmsfs_graph_pool *pool, enum gfs_graph_phase phase)
{
    gfs_graph_state_lock(pool);
    pool->phase = phase;
    gfs_graph_state_unlock(pool);
}

/* ---- waking ------------------------------------------------------------------------------- */

struct wake {
    struct gmsfs_graph_pool *pool;
    unsigned alloc_flags;
    size_t had;    /* chunks that were in the store */
    size_t needed; /* that the spaces reach */
    int touched;   /* memory that was in the store was handed out */
};

/* Memory that was given up for another store (an eviction, or `none`) is made anew. */
static int wake_clear_lost(struct wake *wake, size_t *count)
{
    struct gmsfs_ioc_info info = {0};
    int error = gfs_ioctl(wake->pool->handle, GMSFS_IOC_INFO, &info);

    if (error || info.residency)
        return error;
    *count = 0;
    return gfs_ioctl(wake->pool->handle, GMSFS_IOC_CLEAR, NULL);
}

/* Counts the store's allocations; -EINVAL if one is not a chunk of this pool's size. */
static int wake_look(struct wake *wake)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;
    int error = gfs_list(wake->pool->handle, &list, &count);

    for (size_t i = 0; i < count && !error; i++)
        if (list[i].size_bytes != wake->pool->chunk_bytes ||
            list[i].aligned_bytes != wake->pool->chunk_bytes ||
            strcmp(list[i].tag, GMSFS_GRAPH_TAG) != 0)
            error = -EINVAL;
    free(list);
    if (!error && count > 0)
        error = wake_clear_lost(wake, &count);
    wake->had = count;
    return error;
}

/* Gives eager spaces their chunks, from the end of the shared list. */
static int wake_deal(struct wake *wake)
{
    struct gmsfs_graph_pool *pool = wake->pool;
    size_t shared = gfs_graph_shared_reach(pool), at = shared;
    int error = 0;

    for (struct gmsfs_graph_space *space = pool->spaces; space && !error; space = space->next)
        if (space->eager)
            error = gfs_chunks_make_room(&space->own, space->reached);
    if (error)
        return error;
    gfs_graph_state_lock(pool);
    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        if (!space->eager || !space->reached)
            continue;
        memcpy(space->own.list, pool->shared.list + at, space->reached * sizeof *space->own.list);
        space->own.count = space->reached;
        at += space->reached;
    }
    if (at > shared) {
        memmove(pool->shared.list + shared, pool->shared.list + at,
                (pool->shared.count - at) * sizeof *pool->shared.list);
        pool->shared.count -= at - shared;
    }
    gfs_graph_state_unlock(pool);
    return 0;
}

/* Missing ones are made before any that is there is touched: until then the way back is an abort
 * that leaves the store as it was. */
static int wake_take_chunks(struct wake *wake)
{
    struct gmsfs_graph_pool *pool = wake->pool;
    struct gmsfs_ioc_alloc alloc = {.size_bytes = pool->chunk_bytes, .flags = wake->alloc_flags};
    size_t total = wake->needed > wake->had ? wake->needed : wake->had;
    int error = gfs_chunks_make_room(&pool->shared, total);

    if (!error && total - wake->had > UINT32_MAX)
        error = -ENOMEM;
    if (!error)
        error = gfs_text_copy(alloc.tag, sizeof alloc.tag, GMSFS_GRAPH_TAG);
    alloc.count = (uint32_t)(total - wake->had);
    if (!error && alloc.count)
        error = gfs_alloc(pool->handle, &alloc);
    wake->touched = !error;
    if (!error)
        error = gfs_graph_hold_chunks(pool, &pool->shared, 0, total);
    return error ? error : wake_deal(wake);
}

static int wake_map(struct wake *wake)
{
    struct gmsfs_graph_space *space;
    int error = wake_take_chunks(wake);

    for (space = wake->pool->spaces; space && !error; space = space->next)
        error = gfs_graph_map(space, space->reached);
    return error;
}

/* Leaves kept chunks in the store, for other pools: once their memory was exported an abort would
 * empty the store. Frees the chunks that were made for this pool. */
static void wake_undo(struct wake *wake)
{
    struct gmsfs_graph_pool *pool = wake->pool;
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;

    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        gfs_graph_unmap(space, 0);
        gfs_graph_let_go(pool, &space->own);
    }
    gfs_graph_let_go(pool, &pool->shared);
    if (wake->had == 0 || !wake->touched)
        return;
    int error = gfs_list(pool->handle, &list, &count);
    for (size_t i = wake->had; i < count && !error; i++)
        error = gfs_alloc_free(pool->handle, list[i].slot);
    free(list);
    if (!error)
        gfs_session_commit(pool->handle, 0, NULL);
}

static int wake_all(struct gmsfs_graph_pool *pool, unsigned alloc_flags)
{
    GFS_SCOPE(scope);
    struct wake wake = {.pool = pool, .alloc_flags = alloc_flags, .needed = gfs_graph_needed(pool)};
    int error = wake_look(&wake);

    if (!error)
        error = gfs_memory_enter(&pool->handle->memory, 1, &scope);
    if (error)
        return error;
    error = wake_map(&wake);
    if (error)
        wake_undo(&wake);
    return error;
}

static int wake_acquire(struct gmsfs_store *handle, uint64_t timeout_ms)
{
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RW, .timeout_ms = timeout_ms};

    return gfs_session_acquire(handle, &acquire);
}

/* Asleep it needs nothing of the store that it had, which may have been removed, or its mount may
 * have been: graphs are not to be lost for that. */
static int wake_take_lock(struct gmsfs_graph_pool *pool, uint64_t timeout_ms)
{
    int error = wake_acquire(pool->handle, timeout_ms);

    if (error != -ESTALE && error != -ENOTCONN)
        return error;
    error = gfs_graph_reopen_store(pool);
    return error ? error : wake_acquire(pool->handle, timeout_ms);
}

static int wake(struct gmsfs_graph_pool *pool, uint64_t timeout_ms)
{
    int error = gfs_enter(pool->handle);

    if (error)
        return error;
    error = wake_take_lock(pool, timeout_ms);
    if (!error) {
        error = wake_all(pool, timeout_ms ? 0 : GMSFS_ALLOC_NOWAIT);
        if (error)
            gfs_session_release(pool->handle);
    }
    if (!error) {
        sleep_set_phase(pool, GFS_GRAPH_AWAKE);
        gfs_graph_note_high(pool);
        gfs_graph_note(pool);
    }
    gfs_leave(pool->handle);
    return error;
}

int gmsfs_graph_wake(gmsfs_graph_pool_t *pool, uint64_t timeout_ms)
{
    int error = gfs_graph_begin(pool);

    if (error)
        return error;
    error = pool->phase == GFS_GRAPH_ASLEEP ? wake(pool, timeout_ms) : -EBUSY;
    gfs_graph_end(pool);
    return error;
}

/* ---- sleeping ----------------------------------------------------------------------------- */

/* Continues after a failure, to give back as much as possible. */
static int sleep_unmap(struct gmsfs_graph_pool *pool)
{
    int error = gfs_memory_synchronise(&pool->handle->memory);

    if (error)
        return error;
    sleep_set_phase(pool, GFS_GRAPH_FALLING);
    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        int failed = gfs_graph_unmap(space, 0);
        error = error ? error : failed;
    }
    if (error)
        return error;
    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next)
        gfs_graph_let_go(pool, &space->own);
    gfs_graph_let_go(pool, &pool->shared);
    return 0;
}

/* A session that is gone has taken the memory with it. */
static int sleep_release(struct gmsfs_graph_pool *pool, unsigned flags)
{
    struct gmsfs_store *handle = pool->handle;

    if (!(flags & GMSFS_GRAPH_KEEP))
        return gfs_session_release(handle);
    if (handle->mode == GMSFS_MODE_NONE)
        return -ESTALE;
    gfs_graph_note_remove(pool);
    int error = gfs_session_commit(handle, 0, NULL);
    if (error == -ENOTCONN)
        gfs_session_forget(handle);
    return error == -ENOLCK ? -ESTALE : error;
}

static int sleep_all(struct gmsfs_graph_pool *pool, unsigned flags)
{
    GFS_VA_SCOPE(scope);
    int error = gfs_graph_enter(pool, 0, &scope);

    if (!error)
        error = sleep_unmap(pool);
    if (error)
        return error;
    error = sleep_release(pool, flags);
    if (pool->handle->mode == GMSFS_MODE_NONE)
        sleep_set_phase(pool, GFS_GRAPH_ASLEEP);
    return error;
}

int gmsfs_graph_sleep(gmsfs_graph_pool_t *pool, unsigned flags)
{
    if (flags & ~GMSFS_GRAPH_KEEP)
        return -EINVAL;
    int error = gfs_graph_begin_unmap(pool);
    if (error)
        return error;
    if (pool->phase != GFS_GRAPH_ASLEEP)
        error = gfs_graph_is_capturing(pool) ? -EBUSY : sleep_all(pool, flags);
    gfs_graph_end_unmap(pool);
    return error;
}

/* ---- shrinking ---------------------------------------------------------------------------- */

static int shrink_unmap(struct gmsfs_graph_pool *pool)
{
    int error = gfs_memory_synchronise(&pool->handle->memory);

    for (struct gmsfs_graph_space *space = pool->spaces; space && !error; space = space->next) {
        gfs_graph_state_lock(pool);
        size_t reach = gfs_graph_space_live_reach(space, pool->chunk_bytes);
        gfs_graph_state_unlock(pool);
        error = gfs_graph_unmap(space, reach);
        if (error)
            break;
        gfs_graph_state_lock(pool);
        space->reached = space->mapped;
        gfs_graph_state_unlock(pool);
        if (space->eager)
            gfs_graph_return_own(space, space->reached);
    }
    return error;
}

static int shrink(struct gmsfs_graph_pool *pool, uint64_t *freed_bytes)
{
    GFS_VA_SCOPE(scope);
    int error = pool->phase == GFS_GRAPH_AWAKE ? gfs_graph_enter(pool, 0, &scope) : -ENOLCK;

    if (!error)
        error = gfs_graph_check_awake(pool);
    if (!error)
        error = shrink_unmap(pool);
    size_t keep = gfs_graph_shared_reach(pool);
    while (!error && pool->shared.count > keep) {
        error = gfs_graph_free_last_chunk(pool, &pool->shared);
        if (!error)
            *freed_bytes += pool->chunk_bytes;
    }
    if (*freed_bytes)
        gfs_graph_note(pool);
    return error;
}

static int grow(struct gmsfs_graph_pool *pool, uint64_t size_bytes)
{
    GFS_VA_SCOPE(scope);
    uint64_t wanted = size_bytes / pool->chunk_bytes + (size_bytes % pool->chunk_bytes != 0);
    size_t physical = gfs_graph_physical(pool);
    int error = gfs_graph_enter(pool, 1, &scope);

    if (!error)
        error = gfs_graph_check_awake(pool);
    if (error || wanted <= physical)
        return error;
    if (wanted > UINT32_MAX)
        return -ENOMEM;
    error = gfs_chunks_make_room(&pool->shared, wanted);
    if (!error)
        error = gfs_graph_make_chunks(pool, &pool->shared, wanted - physical, 0);
    if (error)
        return error;
    gfs_graph_note_high(pool);
    gfs_graph_note(pool);
    return 0;
}

int gmsfs_graph_grow(gmsfs_graph_pool_t *pool, uint64_t size_bytes)
{
    int error = gfs_graph_begin(pool);

    if (error)
        return error;
    error = grow(pool, size_bytes);
    gfs_graph_end(pool);
    return error;
}

int gmsfs_graph_shrink(gmsfs_graph_pool_t *pool, uint64_t *freed_bytes)
{
    uint64_t freed = 0;
    int error = gfs_graph_begin_unmap(pool);

    if (error)
        return error;
    error = gfs_graph_is_capturing(pool) ? -EBUSY : shrink(pool, &freed);
    gfs_graph_end_unmap(pool);
    if (freed_bytes)
        *freed_bytes = freed;
    return error;
}
