/* SPDX-License-Identifier: Apache-2.0 */
/* The locks of a call on a graph pool. */
#include "graph.h"

#include <errno.h>

int gfs_graph_check_pool(const struct gmsfs_graph_pool *pool)
{
    if (!pool)
        return -EINVAL;
    if (atomic_load(&pool->closed))
        return -EBADF;
    return atomic_load(&pool->handle->dead) ? -ECHILD : 0;
}

/* The call that this thread is in has `op`, or waits for it. */
static int enter_check(struct gmsfs_graph_pool *pool)
{
    int error = gfs_graph_check_pool(pool);

    if (error)
        return error;
    return gfs_is_in_call(pool->handle) ? -EDEADLK : 0;
}

/* Its last holder may have closed the pool. */
static int enter_op(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_lock(&pool->op);
    if (!atomic_load(&pool->closed))
        return 0;
    pthread_mutex_unlock(&pool->op);
    return -EBADF;
}

int gfs_graph_begin(struct gmsfs_graph_pool *pool)
{
    int error = enter_check(pool);

    if (error)
        return error;
    gfs_hold_thread();
    error = enter_op(pool);
    if (error)
        gfs_let_thread();
    return error;
}

void gfs_graph_end(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_unlock(&pool->op);
    gfs_let_thread();
}

int gfs_graph_begin_unmap(struct gmsfs_graph_pool *pool)
{
    int error = enter_check(pool);

    if (error)
        return error;
    gfs_hold_thread();
    error = gfs_graph_guard_take(&pool->guard, 0);
    if (!error) {
        error = enter_op(pool);
        if (error)
            gfs_graph_guard_give_back(&pool->guard);
    }
    if (error)
        gfs_let_thread();
    return error;
}

void gfs_graph_end_unmap(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_unlock(&pool->op);
    gfs_graph_guard_give_back(&pool->guard);
    gfs_let_thread();
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
