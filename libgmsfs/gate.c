/* SPDX-License-Identifier: Apache-2.0 */
/* The locks of a call: the mutexes of a handle, and the gate that fork() waits at. */
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

static __thread struct gfs_passage *volatile passages;

void gfs_passage_begin(struct gfs_passage *passage, const void *object)
{
    *passage = (struct gfs_passage){.object = object, .outer = passages};
    atomic_signal_fence(memory_order_seq_cst);
    passages = passage;
    atomic_signal_fence(memory_order_seq_cst);
}

void gfs_passage_end(const struct gfs_passage *passage)
{
    atomic_signal_fence(memory_order_seq_cst);
    passages = passage->outer;
}

int gfs_is_held(const void *object, const atomic_uintptr_t *holder)
{
    const struct gfs_passage *passage = passages;

    while (passage && passage->object != object)
        passage = passage->outer;
    return passage || atomic_load(holder) == (uintptr_t)pthread_self();
}

int gfs_is_in_call(struct gmsfs_store *handle)
{
    return gfs_is_held(handle, &handle->holder) ||
           gfs_is_held(&handle->state, &handle->state_holder);
}

static int enter_check(struct gmsfs_store *handle)
{
    if (!handle)
        return -EINVAL;
    if (atomic_load(&handle->dead))
        return -atomic_load(&handle->dead);
    return gfs_is_in_call(handle) ? -EDEADLK : 0;
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

static int enter(struct gmsfs_store *handle, int (*lock)(struct gmsfs_store *handle))
{
    int error = enter_check(handle);
    struct gfs_passage passage;

    if (error)
        return error;
    gfs_hold_thread();
    gfs_passage_begin(&passage, handle);
    error = lock(handle);
    if (error)
        gfs_let_thread();
    else
        error = enter_finish(handle);
    gfs_passage_end(&passage);
    return error;
}

static int lock_in_turn(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&handle->op);
    return 0;
}

static int lock_at_once(struct gmsfs_store *handle)
{
    return pthread_mutex_trylock(&handle->op) == 0 ? 0 : -EBUSY;
}

static int lock_first(struct gmsfs_store *handle)
{
    gfs_lock_first(&handle->op, handle);
    return 0;
}

int gfs_enter(struct gmsfs_store *handle)
{
    return enter(handle, lock_in_turn);
}

int gfs_try_enter(struct gmsfs_store *handle)
{
    return enter(handle, lock_at_once);
}

int gfs_enter_first(struct gmsfs_store *handle)
{
    return enter(handle, lock_first);
}

int gfs_lock_soon(pthread_mutex_t *mutex)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GFS_AGAIN_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until) == 0;
}

void gfs_lock_first(pthread_mutex_t *op, struct gmsfs_store *handle)
{
    if (pthread_mutex_trylock(op) == 0)
        return;
    do
        gfs_wait_cancel(handle);
    while (!gfs_lock_soon(op));
}

void gfs_leave(struct gmsfs_store *handle)
{
    struct gfs_passage passage;

    gfs_wait_dismiss(handle);
    gfs_passage_begin(&passage, handle);
    atomic_store(&handle->holder, 0);
    pthread_mutex_unlock(&handle->op);
    gfs_passage_end(&passage);
    gfs_let_thread();
}

/* ---- the state of a handle ------------------------------------------------------------------ */

void gfs_state_lock(struct gmsfs_store *handle)
{
    struct gfs_passage passage;

    gfs_passage_begin(&passage, &handle->state);
    pthread_mutex_lock(&handle->state);
    atomic_store(&handle->state_holder, (uintptr_t)pthread_self());
    gfs_passage_end(&passage);
}

void gfs_state_unlock(struct gmsfs_store *handle)
{
    struct gfs_passage passage;

    gfs_passage_begin(&passage, &handle->state);
    atomic_store(&handle->state_holder, 0);
    pthread_mutex_unlock(&handle->state);
    gfs_passage_end(&passage);
}

int gfs_state_enter(struct gmsfs_store *handle)
{
    int dead;

    if (!handle)
        return -EINVAL;
    dead = atomic_load(&handle->dead);
    if (dead)
        return -dead;
    if (gfs_is_held(&handle->state, &handle->state_holder))
        return -EDEADLK;
    gfs_state_lock(handle);
    return 0;
}
