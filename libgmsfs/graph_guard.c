/* SPDX-License-Identifier: Apache-2.0 */
/* One launch at a time in a graph pool: threads by a lock, the device by an event. */
#include "graph.h"

#include <errno.h>

void gfs_graph_guard_init(struct gfs_graph_guard *guard)
{
    pthread_mutex_init(&guard->mutex, NULL);
    pthread_cond_init(&guard->left, NULL);
    guard->inside = 0;
}

void gfs_graph_guard_destroy(struct gfs_graph_guard *guard)
{
    pthread_cond_destroy(&guard->left);
    pthread_mutex_destroy(&guard->mutex);
}

static int guard_take(struct gfs_graph_guard *guard, int refuse)
{
    int error = 0;

    pthread_mutex_lock(&guard->mutex);
    if (guard->inside && pthread_equal(guard->owner, pthread_self()))
        error = -EDEADLK;
    else if (guard->inside && refuse)
        error = -EBUSY;
    if (!error)
        gfs_graph_watch_thread();
    while (!error && guard->inside)
        pthread_cond_wait(&guard->left, &guard->mutex);
    if (!error) {
        guard->inside = 1;
        guard->owner = pthread_self();
    }
    pthread_mutex_unlock(&guard->mutex);
    return error;
}

int gfs_graph_guard_take(struct gfs_graph_guard *guard)
{
    return guard_take(guard, 0);
}

void gfs_graph_guard_give_back(struct gfs_graph_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    guard->inside = 0;
    pthread_cond_signal(&guard->left);
    pthread_mutex_unlock(&guard->mutex);
}

static int guard_is_mine(struct gfs_graph_guard *guard)
{
    int mine;

    pthread_mutex_lock(&guard->mutex);
    mine = guard->inside && pthread_equal(guard->owner, pthread_self());
    pthread_mutex_unlock(&guard->mutex);
    return mine;
}

void gfs_graph_guard_leave_thread(struct gfs_graph_guard *guard)
{
    if (guard_is_mine(guard))
        gfs_graph_guard_give_back(guard);
}

static int guard_check_awake(struct gmsfs_graph_pool *pool)
{
    int awake;

    gfs_graph_state_lock(pool);
    awake = pool->phase == GFS_GRAPH_AWAKE;
    gfs_graph_state_unlock(pool);
    return awake ? 0 : -ENOLCK;
}

/* Asked twice: a pool that waits to wake holds nobody up, and one that has gone to sleep while this
 * thread waited launches nothing. */
int gmsfs_graph_enter(gmsfs_graph_pool_t *pool, void *stream, enum gmsfs_graph_guard how)
{
    int error;

    if (!pool || (how != GMSFS_GRAPH_ORDER && how != GMSFS_GRAPH_REFUSE))
        return -EINVAL;
    if (atomic_load(&pool->handle->dead))
        return -ECHILD;
    error = guard_check_awake(pool);
    if (!error)
        error = guard_take(&pool->guard, how == GMSFS_GRAPH_REFUSE);
    if (error)
        return error;
    error = guard_check_awake(pool);
    if (!error) /* waking has opened the device */
        error = gfs_memory_wait_turn(&pool->handle->memory, &pool->guard.turn, stream,
                                     how == GMSFS_GRAPH_REFUSE);
    if (error)
        gfs_graph_guard_give_back(&pool->guard);
    return error;
}

int gmsfs_graph_leave(gmsfs_graph_pool_t *pool, void *stream)
{
    int error = gfs_graph_check_pool(pool);

    if (error)
        return error;
    if (!guard_is_mine(&pool->guard))
        return -EPERM;
    error = gfs_memory_end_turn(&pool->handle->memory, &pool->guard.turn, stream);
    gfs_graph_guard_give_back(&pool->guard);
    return error;
}

/* ---- calls that unmap ---------------------------------------------------------------------- */

int gfs_graph_begin_unmap(struct gmsfs_graph_pool *pool)
{
    int error = gfs_graph_check_pool(pool);

    if (!error)
        error = gfs_graph_guard_take(&pool->guard);
    if (!error)
        pthread_mutex_lock(&pool->op);
    return error;
}

void gfs_graph_end_unmap(struct gmsfs_graph_pool *pool)
{
    pthread_mutex_unlock(&pool->op);
    gfs_graph_guard_give_back(&pool->guard);
}
