/* SPDX-License-Identifier: Apache-2.0 */
/* What a call on a graph pool holds. */
#include "graph.h"

#include <errno.h>

int gfs_graph_check_pool(const struct gmsfs_graph_pool *pool)
{
    if (!pool)
        return -EINVAL;
    return atomic_load(&pool->handle->dead) ? -ECHILD : 0;
}

int gfs_graph_begin(struct gmsfs_graph_pool *pool)
{
    int error = gfs_graph_check_pool(pool);

    if (!error)
        pthread_mutex_lock(&pool->op);
    return error;
}

void gfs_graph_end(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_unlock(&pool->op);
}

int gfs_graph_enter(struct gmsfs_graph_pool *pool, int must, struct gfs_va_scope *scope)
{
    int error = gfs_enter(pool->handle);

    if (error)
        return error;
    error = gfs_memory_enter(&pool->handle->memory, must, &scope->memory);
    if (error)
        gfs_leave(pool->handle);
    else
        scope->handle = pool->handle;
    return error;
}

int gfs_graph_check_awake(const struct gmsfs_graph_pool *pool)
{
    if (pool->phase != GFS_GRAPH_AWAKE)
        return -ENOLCK;
    return pool->handle->mode == GMSFS_MODE_RW ? 0 : -ESTALE;
}

void gfs_graph_state_lock(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_lock(&pool->state);
}

void gfs_graph_state_unlock(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_unlock(&pool->state);
}
