/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools: opening, closing, statistics. */
#include "graph.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRAPH_STORE_MODE 0700

/* ---- opening ------------------------------------------------------------------------------ */

/* Inside the gate. `name`: the part of a path without trailing slashes that follows the last slash.
 */
static int graph_make_store_in(const char *directory, const char *name)
{
    int root = gfs_fd_above(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC)), error;

    if (root < 0)
        return gfs_file_error(errno);
    /* Only below a mount: elsewhere a directory would stay behind. */
    error = gfs_check_mount(root);
    if (!error && mkdirat(root, name, GRAPH_STORE_MODE) < 0 && errno != EEXIST)
        error = gfs_file_error(errno);
    close(root);
    return error;
}

static int graph_make_store(const char *path)
{
    char *copy = strdup(path), *slash;
    size_t bytes = strlen(path);
    int error;

    if (!copy)
        return -ENOMEM;
    while (bytes > 1 && copy[bytes - 1] == '/')
        copy[--bytes] = '\0';
    slash = strrchr(copy, '/');
    gfs_gate_enter();
    if (!slash)
        error = graph_make_store_in(".", copy);
    else if (slash == copy)
        error = graph_make_store_in("/", slash + 1);
    else {
        *slash = '\0';
        error = graph_make_store_in(copy, slash + 1);
    }
    gfs_gate_leave();
    free(copy);
    return error;
}

static int graph_open_store(const char *path, struct gmsfs_store **handle, bool *is_made)
{
    int error = gmsfs_open(path, handle);

    if (error != -ENOENT)
        return error;
    error = graph_make_store(path);
    *is_made = !error;
    return error ? error : gmsfs_open(path, handle);
}

/* Removes a store that was made for a pool that then failed to open, unless it is in use by now. */
static void graph_unmake_store(const char *path)
{
    gfs_gate_enter();
    rmdir(path);
    gfs_gate_leave();
}

int gfs_graph_reopen_store(struct gmsfs_graph_pool *pool)
{
    int error = gfs_reopen(pool->handle);

    if (error != -ENOENT)
        return error;
    error = graph_make_store(pool->handle->path);
    return error ? error : gfs_reopen(pool->handle);
}

static int graph_choose_chunk(struct gmsfs_graph_pool *pool, uint64_t chunk_bytes)
{
    uint64_t mask = pool->handle->granularity_bytes - 1;

    pool->chunk_bytes = chunk_bytes ? chunk_bytes : (GMSFS_GRAPH_CHUNK_BYTES + mask) & ~mask;
    if (pool->chunk_bytes & mask || pool->chunk_bytes > SIZE_MAX / 4)
        return -EINVAL;
    return pool->handle->writable ? 0 : -EACCES;
}

/* Without spaces. */
static void graph_free(struct gmsfs_graph_pool *pool)
{
    gfs_graph_guard_destroy(&pool->guard);
    pthread_mutex_destroy(&pool->state);
    pthread_mutex_destroy(&pool->op);
    free(pool);
}

int gmsfs_graph_open(const char *path, uint64_t chunk_bytes, gmsfs_graph_pool_t **out)
{
    struct gmsfs_graph_pool *pool;
    bool is_made = false;

    if (!path || !path[0] || !out)
        return -EINVAL;
    pool = calloc(1, sizeof *pool);
    if (!pool)
        return -ENOMEM;
    pthread_mutex_init(&pool->op, NULL);
    pthread_mutex_init(&pool->state, NULL);
    gfs_graph_guard_init(&pool->guard);
    int error = graph_open_store(path, &pool->handle, &is_made);
    if (!error)
        error = graph_choose_chunk(pool, chunk_bytes);
    if (error) {
        gmsfs_close(pool->handle);
        graph_free(pool);
        if (is_made)
            graph_unmake_store(path);
        return error;
    }
    gfs_graph_register(pool);
    *out = pool;
    return 0;
}

/* ---- closing ------------------------------------------------------------------------------ */

/* Addresses of a space with live segments stay reserved: a segment may still be freed, and its
 * address must not belong to other memory then. */
static void graph_release_addresses(struct gmsfs_graph_space *space)
{
    if (space->segments.slabs[0].piece_count == 0)
        gfs_memory_release(&space->pool->handle->memory, space->base, space->reserved_bytes);
}

/* Gives back as much as it can, also after failures. */
static void graph_drop_memory(struct gmsfs_graph_pool *pool)
{
    GFS_VA_SCOPE(scope);

    if (gfs_graph_enter(pool, 1, &scope))
        return;
    gfs_memory_synchronise(&pool->handle->memory);
    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        gfs_graph_unmap(space, 0);
        graph_release_addresses(space);
        gfs_graph_let_go(pool, &space->own);
    }
    gfs_graph_let_go(pool, &pool->shared);
    gfs_memory_drop_turn(&pool->handle->memory, &pool->guard.turn);
}

static struct gfs_closed graph_closed;

static void graph_retire(struct gmsfs_graph_pool *pool)
{
    struct gmsfs_graph_space *space, *spaces;

    gfs_graph_state_lock(pool);
    spaces = pool->spaces;
    pool->spaces = NULL;
    free(pool->shared.list);
    pool->shared = (struct gfs_chunks){0};
    gfs_graph_state_unlock(pool);
    while ((space = spaces)) {
        spaces = space->next;
        gfs_graph_space_retire(space);
    }
    gmsfs_close(pool->handle);
    struct gmsfs_graph_pool *oldest = gfs_closed_keep(&graph_closed, pool);
    if (oldest)
        graph_free(oldest);
}

/* Takes op twice: after the first time no new call enters, but calls of the pair that wait for op
 * have to notice that before the pool is dismantled. */
static void graph_shut(struct gmsfs_graph_pool *pool)
{
    gfs_graph_guard_close(&pool->guard);
    gfs_lock_first(&pool->op, pool->handle);
    pthread_mutex_unlock(&pool->op);
    gfs_graph_unregister(pool);
    pthread_mutex_lock(&pool->op);
    if (pool->spaces || pool->shared.count || pool->guard.turn.event)
        graph_drop_memory(pool);
    pthread_mutex_unlock(&pool->op);
}

void gmsfs_graph_close(gmsfs_graph_pool_t *pool)
{
    int is_dead; /* it is of the parent of this process */

    if (!pool || atomic_load(&pool->closed))
        return;
    is_dead = atomic_load(&pool->handle->dead);
    if ((!is_dead && gfs_is_in_call(pool->handle)) || atomic_exchange(&pool->closed, 1))
        return;
    gfs_hold_thread();
    if (!is_dead)
        graph_shut(pool);
    graph_retire(pool);
    gfs_let_thread();
}

/* ---- looking ------------------------------------------------------------------------------ */

gmsfs_t *gmsfs_graph_handle(gmsfs_graph_pool_t *pool)
{
    return pool && !atomic_load(&pool->closed) ? pool->handle : NULL;
}

/* Reads the number of waiters, unless another call has the handle: then the last number stays. */
static void graph_ask_for_waiters(struct gmsfs_graph_pool *pool)
{
    struct gmsfs_store *handle = pool->handle;
    struct gmsfs_ioc_info info = {0};
    int error = -ENOLCK;

    if (gfs_try_enter(handle) != 0)
        return;
    if (handle->mode == GMSFS_MODE_RW)
        error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
    gfs_leave(handle);
    gfs_graph_state_lock(pool);
    pool->waiters = error ? 0 : info.writers_waiting;
    gfs_graph_state_unlock(pool);
}

int(gmsfs_graph_get_stats)(gmsfs_graph_pool_t *pool, struct gmsfs_graph_stats *out,
                           size_t out_bytes)
{
    struct gmsfs_graph_stats stats = {0};
    int error = out && !gfs_check_struct(out_bytes) ? gfs_graph_check_pool(pool) : -EINVAL;

    if (error)
        return error;
    graph_ask_for_waiters(pool);
    gfs_graph_state_lock(pool);
    stats.awake = pool->phase == GFS_GRAPH_AWAKE;
    stats.chunk_bytes = pool->chunk_bytes;
    stats.physical_bytes = gfs_graph_physical(pool) * pool->chunk_bytes;
    stats.needed_bytes = gfs_graph_needed(pool) * pool->chunk_bytes;
    stats.high_bytes = pool->high * pool->chunk_bytes;
    stats.waiters = stats.awake ? pool->waiters : 0;
    for (struct gmsfs_graph_space *space = pool->spaces; space; space = space->next) {
        stats.spaces++;
        stats.eager_bytes += space->eager ? space->reached * pool->chunk_bytes : 0;
        stats.mapped_bytes += space->mapped * pool->chunk_bytes;
        stats.address_bytes += space->reserved_bytes;
        stats.live += space->segments.slabs[0].piece_count;
        stats.live_bytes += space->live_bytes;
        stats.selected += space->selected;
    }
    gfs_graph_state_unlock(pool);
    gfs_give_struct(out, out_bytes, &stats, sizeof stats);
    return 0;
}
