/* SPDX-License-Identifier: Apache-2.0 */
/* Waits for other clients, and their end from another thread.
 *
 * A call has a note of its wait, which each handle that it has entered leads to. All notes are
 * under
 * one mutex, held for moments: never over a request, because a mount may be slow to answer, and
 * every call of every handle passes here. During a CANCEL the cancelled wait does not end, so its
 * descriptor stays open. */
#include <errno.h>
#include <sys/ioctl.h>
#include <time.h>

#include "internal.h"

static pthread_mutex_t wait_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wait_over = PTHREAD_COND_INITIALIZER;
static uint64_t wait_calls;

/* ---- the call ------------------------------------------------------------------------------ */

void gfs_wait_admit(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&wait_mutex);
    handle->own_call = (struct gfs_call){.number = ++wait_calls};
    handle->call = &handle->own_call;
    pthread_mutex_unlock(&wait_mutex);
}

void gfs_wait_share(struct gmsfs_store *handle, struct gmsfs_store *with)
{
    pthread_mutex_lock(&wait_mutex);
    handle->call = with->call;
    pthread_mutex_unlock(&wait_mutex);
}

void gfs_wait_dismiss(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&wait_mutex);
    handle->call = NULL;
    pthread_mutex_unlock(&wait_mutex);
}

int gfs_wait_begin(struct gmsfs_store *handle)
{
    int error = 0;

    pthread_mutex_lock(&wait_mutex);
    if (handle->call && handle->call->cancelled)
        error = -ECANCELED;
    else if (handle->call)
        handle->call->waits_on = handle;
    pthread_mutex_unlock(&wait_mutex);
    return error;
}

void gfs_wait_end(struct gmsfs_store *handle)
{
    pthread_mutex_lock(&wait_mutex);
    if (handle->call)
        handle->call->waits_on = NULL;
    pthread_cond_broadcast(&wait_over);
    while (handle->call && handle->call->cancelling > 0)
        pthread_cond_wait(&wait_over, &wait_mutex);
    pthread_mutex_unlock(&wait_mutex);
}

int gfs_wait_is_cancelled(struct gmsfs_store *handle)
{
    int cancelled;

    pthread_mutex_lock(&wait_mutex);
    cancelled = handle->call && handle->call->cancelled;
    pthread_mutex_unlock(&wait_mutex);
    return cancelled;
}

/* ---- the other thread ---------------------------------------------------------------------- */

/* In the mutex, which is given back meanwhile. */
static void wait_ask_to_cancel(struct gfs_call *call)
{
    int ctl_fd = call->waits_on->ctl_fd;

    call->cancelling++;
    pthread_mutex_unlock(&wait_mutex);
    ioctl(ctl_fd, GMSFS_IOC_CANCEL);
    pthread_mutex_lock(&wait_mutex);
    if (--call->cancelling == 0)
        pthread_cond_broadcast(&wait_over);
}

static void wait_pause(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += GFS_AGAIN_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&wait_over, &wait_mutex, &until);
}

static int wait_goes_on(const struct gmsfs_store *handle, uint64_t number)
{
    return number && handle->call && handle->call->number == number && handle->call->waits_on;
}

/* A call that is about to wait is not in the mount yet: so again, until it is over or waits no
 * more. */
void gfs_wait_cancel(struct gmsfs_store *handle)
{
    uint64_t number = 0;

    pthread_mutex_lock(&wait_mutex);
    if (handle->call) {
        number = handle->call->number;
        handle->call->cancelled = 1;
    }
    while (wait_goes_on(handle, number)) {
        wait_ask_to_cancel(handle->call);
        if (wait_goes_on(handle, number))
            wait_pause();
    }
    pthread_mutex_unlock(&wait_mutex);
}

/* ---- fork ---------------------------------------------------------------------------------- */

void gfs_wait_fork_prepare(void)
{
    pthread_mutex_lock(&wait_mutex);
}

void gfs_wait_fork_parent(void)
{
    pthread_mutex_unlock(&wait_mutex);
}

void gfs_wait_fork_child(void)
{
    pthread_mutex_init(&wait_mutex, NULL);
    pthread_cond_init(&wait_over, NULL);
}
