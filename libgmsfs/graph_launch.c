/* SPDX-License-Identifier: Apache-2.0 */
/* Before and after a launch in a graph pool, and threads that end in between. */
#include "graph.h"

#include <errno.h>

/* ---- threads that end ---------------------------------------------------------------------- */

static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static int thread_error;

/* Looks through all pools: the thread's pool may have been closed since the thread entered it. */
static void thread_end(void *value)
{
    (void)value;
    gfs_graph_registry_lock();
    for (struct gmsfs_graph_pool *pool = gfs_graph_registry_first(); pool; pool = pool->next)
        gfs_graph_guard_leave_thread(&pool->guard);
    gfs_graph_registry_unlock();
}

static void thread_make_key(void)
{
    thread_error = pthread_key_create(&thread_key, thread_end);
}

/* Without a key a thread that ends inside is waited for, as ever. */
static void thread_watch(void)
{
    pthread_once(&thread_once, thread_make_key);
    if (!thread_error)
        pthread_setspecific(thread_key, &thread_key);
}

/* ---- launching ------------------------------------------------------------------------------ */

static int launch_check_awake(struct gmsfs_graph_pool *pool)
{
    gfs_graph_state_lock(pool);
    int awake = pool->phase == GFS_GRAPH_AWAKE;
    gfs_graph_state_unlock(pool);
    return awake ? 0 : -ENOLCK;
}

/* Checks twice: before the wait, so that a pool that waits to wake delays no thread, and after it,
 * because the pool may have gone to sleep meanwhile. */
static int launch_enter(struct gmsfs_graph_pool *pool, void *stream, int refuse)
{
    int error = launch_check_awake(pool);

    if (!error)
        thread_watch();
    if (!error)
        error = gfs_graph_guard_take(&pool->guard, refuse);
    if (error)
        return error;
    error = launch_check_awake(pool);
    if (!error) /* waking has opened the device */
        error = gfs_memory_wait_turn(&pool->handle->memory, &pool->guard.turn, stream, refuse);
    if (error)
        gfs_graph_guard_give_back(&pool->guard);
    return error;
}

int gmsfs_graph_enter(gmsfs_graph_pool_t *pool, void *stream, enum gmsfs_graph_guard how)
{
    int known = how == GMSFS_GRAPH_ORDER || how == GMSFS_GRAPH_REFUSE;
    int error = known ? gfs_graph_check_pool(pool) : -EINVAL;

    if (error)
        return error;
    gfs_hold_thread();
    error = launch_enter(pool, stream, how == GMSFS_GRAPH_REFUSE);
    gfs_let_thread();
    return error;
}

int gmsfs_graph_leave(gmsfs_graph_pool_t *pool, void *stream)
{
    int error = gfs_graph_check_pool(pool);

    if (error)
        return error;
    if (!gfs_graph_guard_is_mine(&pool->guard))
        return -EPERM;
    gfs_hold_thread();
    error = gfs_memory_end_turn(&pool->handle->memory, &pool->guard.turn, stream);
    gfs_graph_guard_give_back(&pool->guard);
    gfs_let_thread();
    return error;
}
