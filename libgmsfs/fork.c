/* SPDX-License-Identifier: Apache-2.0 */
/* All handles of the process, and their end in a child of fork(). */
#include <errno.h>

#include "cuda/driver.h"
#include "graph.h"
#include "internal.h"

static pthread_mutex_t fork_registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct gmsfs_store *fork_registry;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_error;

/* ---- around fork() ------------------------------------------------------------------------ */

static void fork_prepare(void)
{
    gfs_gate_fork_prepare();
    gfs_graph_fork_prepare();
    pthread_mutex_lock(&fork_registry_lock);
    for (struct gmsfs_store *handle = fork_registry; handle; handle = handle->next)
        pthread_mutex_lock(&handle->state);
    gfs_wait_fork_prepare();
}

static void fork_parent(void)
{
    gfs_wait_fork_parent();
    for (struct gmsfs_store *handle = fork_registry; handle; handle = handle->next)
        pthread_mutex_unlock(&handle->state);
    pthread_mutex_unlock(&fork_registry_lock);
    gfs_graph_fork_parent();
    gfs_gate_fork_parent();
}

/* Threads that held a handle's mutexes do not exist here, so these start anew. */
static void fork_child(void)
{
    for (struct gmsfs_store *handle = fork_registry; handle; handle = handle->next) {
        gfs_connect_fork_child(handle);
        gfs_fd_close(&handle->events_fd);
        gfs_fd_close(&handle->fds_fd);
        gfs_fd_close(&handle->ctl_fd);
        gfs_fd_close(&handle->dir_fd);
        gfs_memory_after_fork(&handle->memory, &handle->range, &handle->map, handle->waking);
        atomic_store(&handle->dead, ECHILD);
        atomic_store(&handle->holder, 0);
        atomic_store(&handle->state_holder, 0);
        pthread_mutex_init(&handle->op, NULL);
        pthread_mutex_init(&handle->state, NULL);
    }
    drv_fork_child();
    gfs_wait_fork_child();
    gfs_graph_fork_child();
    fork_registry = NULL;
    pthread_mutex_init(&fork_registry_lock, NULL);
    gfs_gate_fork_child();
}

static void fork_watch(void)
{
    fork_error = pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int gfs_fork_watch(void)
{
    pthread_once(&fork_once, fork_watch);
    return -fork_error;
}

/* ---- the registry ------------------------------------------------------------------------- */

void gfs_fork_register(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&fork_registry_lock);
    handle->next = fork_registry;
    fork_registry = handle;
    pthread_mutex_unlock(&fork_registry_lock);
}

void gfs_fork_unregister(struct gmsfs_store *handle)
{
    struct gmsfs_store **at;

    pthread_mutex_lock(&fork_registry_lock);
    for (at = &fork_registry; *at && *at != handle; at = &(*at)->next)
        ;
    if (*at)
        *at = handle->next;
    pthread_mutex_unlock(&fork_registry_lock);
}
