/* SPDX-License-Identifier: Apache-2.0 */
/* One launch at a time in a graph pool: threads by a lock, the device by an event. */
#include "graph.h"

#include <errno.h>

void gfs_graph_guard_init(struct gfs_graph_guard *guard)
{
    pthread_mutex_init(&guard->mutex, NULL);
    pthread_cond_init(&guard->left, NULL);
    guard->inside = 0;
    guard->closed = 0;
}

void gfs_graph_guard_destroy(struct gfs_graph_guard *guard)
{
    pthread_cond_destroy(&guard->left);
    pthread_mutex_destroy(&guard->mutex);
}

int gfs_graph_guard_take(struct gfs_graph_guard *guard, int refuse)
{
    int error = 0;

    gfs_hold_thread(); /* one that ended in the wait would have the mutex for ever */
    pthread_mutex_lock(&guard->mutex);
    if (guard->inside && pthread_equal(guard->owner, pthread_self()))
        error = -EDEADLK;
    else if (guard->inside && refuse)
        error = -EBUSY;
    while (!error && guard->inside && !guard->closed)
        pthread_cond_wait(&guard->left, &guard->mutex);
    if (!error && guard->closed)
        error = -EBADF;
    if (!error) {
        guard->inside = 1;
        guard->owner = pthread_self();
    }
    pthread_mutex_unlock(&guard->mutex);
    gfs_let_thread();
    return error;
}

void gfs_graph_guard_give_back(struct gfs_graph_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    guard->inside = 0;
    pthread_cond_signal(&guard->left);
    pthread_mutex_unlock(&guard->mutex);
}

void gfs_graph_guard_close(struct gfs_graph_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    guard->closed = 1;
    pthread_cond_broadcast(&guard->left);
    pthread_mutex_unlock(&guard->mutex);
}

int gfs_graph_guard_is_mine(struct gfs_graph_guard *guard)
{
    pthread_mutex_lock(&guard->mutex);
    int mine = guard->inside && pthread_equal(guard->owner, pthread_self());
    pthread_mutex_unlock(&guard->mutex);
    return mine;
}

void gfs_graph_guard_leave_thread(struct gfs_graph_guard *guard)
{
    if (gfs_graph_guard_is_mine(guard))
        gfs_graph_guard_give_back(guard);
}
