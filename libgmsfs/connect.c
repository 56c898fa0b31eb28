/* SPDX-License-Identifier: Apache-2.0 */
/* Connects while the caller does something else; the only place where the library has a thread.
 * Also cancels waits and gives up the lock.
 *
 * A place in the queue is a request that waits there. So the thread owns that request, and nothing
 * else of the handle; once it is answered, a descriptor is readable, and the caller takes the
 * result. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "internal.h"

#include "base/scope.h"

struct gfs_connecting {
    struct gmsfs_store view; /* the fields that the request needs; gfs_wait_cancel finds it */
    struct gmsfs_ioc_acquire acquire;
    int error;
    int event_fd;
    pthread_t thread;
};

/* ---- the thread ---------------------------------------------------------------------------- */

static void *connecting_wait(void *context)
{
    struct gfs_connecting *connecting = context;
    uint64_t one = 1;

    connecting->error = gfs_ioctl_acquire(&connecting->view, &connecting->acquire);
    if (write(connecting->event_fd, &one, sizeof one) < 0)
        connecting->error = connecting->error ? connecting->error : -errno; /* cannot be full */
    return NULL;
}

/* The program's signals are for its own threads. */
static int connecting_start_thread(struct gfs_connecting *connecting)
{
    sigset_t all, before;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&connecting->thread, NULL, connecting_wait, connecting);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -error;
}

static int connecting_new(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire)
{
    struct gfs_connecting *connecting = calloc(1, sizeof *connecting);

    if (!connecting)
        return -ENOMEM;
    connecting->acquire = *acquire;
    connecting->view.ctl_fd = handle->ctl_fd;
    connecting->view.connect_flags = handle->connect_flags;
    gfs_wait_admit(&connecting->view);
    gfs_gate_enter();
    connecting->event_fd = gfs_fd_above(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    int error = connecting->event_fd < 0 ? -errno : connecting_start_thread(connecting);
    if (error) {
        gfs_fd_close(&connecting->event_fd);
        free(connecting);
    } else {
        atomic_store(&handle->connecting, connecting);
    }
    gfs_gate_leave();
    return error;
}

/* The thread has ended, or does. */
static int connecting_end(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    SCOPED_FREE struct gfs_connecting *connecting = atomic_load(&handle->connecting);
    int error;

    pthread_join(connecting->thread, NULL);
    error = connecting->error;
    *acquire = connecting->acquire;
    atomic_store(&handle->keeps_place, atomic_load(&connecting->view.keeps_place));
    gfs_gate_enter();
    gfs_fd_close(&connecting->event_fd);
    atomic_store(&handle->connecting, NULL);
    gfs_gate_leave();
    return error;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* It ends with the next gmsfs_connect_continue, for which its descriptor is ready. */
static void connect_cancel(struct gmsfs_store *handle)
{
    struct gfs_connecting *connecting = atomic_load(&handle->connecting);

    if (connecting)
        gfs_wait_cancel(&connecting->view);
}

void gfs_connect_give_up(struct gmsfs_store *handle)
{
    struct gmsfs_ioc_acquire acquire;

    if (!atomic_load(&handle->connecting))
        return;
    connect_cancel(handle);
    if (connecting_end(handle, &acquire) == 0)
        gfs_session_drop(handle); /* it was granted in that moment */
}

void gfs_connect_fork_child(struct gmsfs_store *handle)
{
    SCOPED_FREE struct gfs_connecting *connecting = atomic_exchange(&handle->connecting, NULL);

    if (!connecting)
        return;
    gfs_fd_close(&connecting->event_fd);
}

/* ---- public -------------------------------------------------------------------------------- */

/* Once without waiting; then, if only others are in the way, in the queue. */
static int connect_start(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *wish, int *fd)
{
    struct gmsfs_ioc_acquire acquire = *wish;

    acquire.timeout_ms = 0;
    int error = gfs_session_connect(handle, &acquire);
    if (wish->timeout_ms == 0 || (error != -EAGAIN && !(error == -ENOMEM && wish->reserve_bytes)))
        return error;
    acquire = *wish;
    if (wish->mode == GMSFS_MODE_RW_OR_RO && !handle->writable)
        acquire.mode = GMSFS_MODE_RO, acquire.reserve_bytes = 0; /* as gfs_session_take has it */
    error = connecting_new(handle, &acquire);
    if (error)
        return error;
    *fd = atomic_load(&handle->connecting)->event_fd;
    return -EINPROGRESS;
}

int gmsfs_connect_start(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms,
                        uint64_t reserve_bytes, int *fd)
{
    struct gmsfs_ioc_acquire wish = {
        .mode = mode, .timeout_ms = timeout_ms, .reserve_bytes = reserve_bytes};
    int error = fd ? gfs_session_check_wish(mode, reserve_bytes) : -EINVAL;

    if (!error)
        error = gfs_enter(handle);
    if (error)
        return error;
    error = connect_start(handle, &wish, fd);
    gfs_leave(handle);
    return error;
}

int gmsfs_connect_continue(gmsfs_t *handle)
{
    struct gmsfs_ioc_acquire acquire;
    struct gfs_connecting *connecting;
    int error = gfs_enter(handle);

    if (error)
        return error;
    connecting = atomic_load(&handle->connecting);
    if (!connecting) {
        error = -EINVAL;
    } else if (poll(&(struct pollfd){.fd = connecting->event_fd, .events = POLLIN}, 1, 0) != 1) {
        error = -EINPROGRESS;
    } else {
        uint64_t reserve_bytes = connecting->acquire.reserve_bytes;

        error = connecting_end(handle, &acquire);
        if (!error)
            error = gfs_session_settle(handle, &acquire, reserve_bytes);
    }
    gfs_leave(handle);
    return error;
}

int gmsfs_cancel(gmsfs_t *handle)
{
    int dead = handle ? atomic_load(&handle->dead) : EINVAL, error;

    if (dead)
        return -dead;
    if (gfs_is_in_call(handle))
        return -EDEADLK;
    gfs_hold_thread();
    gfs_wait_cancel(handle);
    gfs_let_thread();
    if (!atomic_load(&handle->connecting) && !atomic_load(&handle->keeps_place))
        return 0;
    error = gfs_enter_first(handle);
    if (error)
        return error;
    connect_cancel(handle);
    gfs_session_give_up_place(handle);
    gfs_leave(handle);
    return 0;
}

int gmsfs_disconnect(gmsfs_t *handle)
{
    int error = gfs_enter_first(handle);

    if (error)
        return error;
    gfs_connect_give_up(handle);
    gfs_session_give_up_place(handle);
    error = gfs_session_release(handle);
    gfs_leave(handle);
    return error;
}
