/* SPDX-License-Identifier: Apache-2.0 */
/* What a call holds: the locks of a handle, and the gate that fork() waits at. */
#include <errno.h>

#include "internal.h"

static pthread_rwlock_t gate_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- the fork gate ------------------------------------------------------------------------ */

void gfs_gate_enter(void)
{
    pthread_rwlock_rdlock(&gate_lock);
}

void gfs_gate_leave(void)
{
    pthread_rwlock_unlock(&gate_lock);
}

void gfs_gate_fork_prepare(void)
{
    pthread_rwlock_wrlock(&gate_lock);
}

void gfs_gate_fork_parent(void)
{
    pthread_rwlock_unlock(&gate_lock);
}

void gfs_gate_fork_child(void)
{
    pthread_rwlock_init(&gate_lock, NULL);
}

/* ---- entering ----------------------------------------------------------------------------- */

int gfs_enter(struct gmsfs *handle)
{
    if (!handle)
        return -EINVAL;
    if (atomic_load(&handle->dead))
        return -ECHILD;
    pthread_mutex_lock(&handle->op);
    return 0;
}

void gfs_leave(struct gmsfs *handle)
{
    pthread_mutex_unlock(&handle->op);
}

void gfs_state_lock(struct gmsfs *handle)
{
    pthread_mutex_lock(&handle->state);
}

void gfs_state_unlock(struct gmsfs *handle)
{
    pthread_mutex_unlock(&handle->state);
}
