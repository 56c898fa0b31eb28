/* SPDX-License-Identifier: Apache-2.0 */
/* What a call holds: the locks of a handle, and the gate that fork() waits at. */
#include <errno.h>
#include <time.h>

#include "internal.h"

static pthread_rwlock_t gate_lock = PTHREAD_RWLOCK_INITIALIZER;

/* ---- threads that are cancelled ------------------------------------------------------------ */

static __thread unsigned hold_depth;
static __thread int hold_state; /* of the thread, before */

void gfs_hold_thread(void)
{
    if (hold_depth++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &hold_state);
}

void gfs_let_thread(void)
{
    if (--hold_depth == 0)
        pthread_setcancelstate(hold_state, NULL);
}

/* ---- the fork gate ------------------------------------------------------------------------ */

void gfs_gate_enter(void)
{
    gfs_hold_thread();
    pthread_rwlock_rdlock(&gate_lock);
}

void gfs_gate_leave(void)
{
    pthread_rwlock_unlock(&gate_lock);
    gfs_let_thread();
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

/* Only its own thread can find its own number there. */
static int enter_check(struct gmsfs_store *handle)
{
    if (!handle)
        return -EINVAL;
    if (atomic_load(&handle->dead))
        return -atomic_load(&handle->dead);
    return atomic_load(&handle->holder) == (uintptr_t)pthread_self() ? -EDEADLK : 0;
}

/* Op is held. */
static int enter_finish(struct gmsfs_store *handle)
{
    int dead = atomic_load(&handle->dead);

    if (dead) {
        pthread_mutex_unlock(&handle->op);
        gfs_let_thread();
        return -dead;
    }
    atomic_store(&handle->holder, (uintptr_t)pthread_self());
    gfs_wait_admit(handle);
    return 0;
}

int gfs_enter(struct gmsfs_store *handle)
{
    int error = enter_check(handle);

    if (error)
        return error;
    gfs_hold_thread();
    pthread_mutex_lock(&handle->op);
    return enter_finish(handle);
}

int gfs_enter_first(struct gmsfs_store *handle)
{
    int error = enter_check(handle);

    if (error)
        return error;
    gfs_hold_thread();
    while (pthread_mutex_trylock(&handle->op) != 0) {
        struct timespec until;

        gfs_wait_cancel(handle);
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += GFS_AGAIN_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        if (pthread_mutex_clocklock(&handle->op, CLOCK_MONOTONIC, &until) == 0)
            break;
    }
    return enter_finish(handle);
}

void gfs_leave(struct gmsfs_store *handle)
{
    gfs_wait_dismiss(handle);
    atomic_store(&handle->holder, 0);
    pthread_mutex_unlock(&handle->op);
    gfs_let_thread();
}

void gfs_state_lock(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&handle->state);
}

void gfs_state_unlock(struct gmsfs_store *handle)
{
    pthread_mutex_unlock(&handle->state);
}
