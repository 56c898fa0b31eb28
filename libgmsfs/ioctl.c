/* SPDX-License-Identifier: Apache-2.0 */
/* ioctls on `ctl`, and how long to wait in them. */
#include <errno.h>
#include <sys/ioctl.h>

#include "ask/ask.h"
#include "internal.h"

uint64_t gfs_clock_ms(void)
{
    return ask_now_ms();
}

static int ioctl_once(struct gmsfs_store *handle, unsigned long request, void *argument)
{
    if (ioctl(handle->ctl_fd, request, argument) >= 0)
        return 0;
    return gfs_file_error(errno);
}

static int ioctl_note_end(struct gmsfs_store *handle, int error)
{
    if (error == -ESTALE && handle->mode != GMSFS_MODE_NONE) {
        gfs_session_forget(handle);
        handle->was_lost = 1;
    }
    return error;
}

int gfs_ioctl(struct gmsfs_store *handle, unsigned long request, void *argument)
{
    int error;

    do
        error = ioctl_once(handle, request, argument);
    while (error == -EINTR);
    return ioctl_note_end(handle, error);
}

/* EINTR may be a signal, which does not end a wait, or CANCEL. */
static int ioctl_wait_once(struct gmsfs_store *handle, unsigned long request, void *argument)
{
    int error = gfs_wait_begin(handle);

    if (error)
        return error;
    error = ioctl_once(handle, request, argument);
    gfs_wait_end(handle);
    return error == -EINTR && gfs_wait_is_cancelled(handle) ? -ECANCELED : error;
}

int gfs_ioctl_waiting(struct gmsfs_store *handle, unsigned long request, void *argument)
{
    int error;

    do
        error = ioctl_wait_once(handle, request, argument);
    while (error == -EINTR);
    return ioctl_note_end(handle, error);
}

/* Returns the handle's connect flags that apply to this mode. */
static uint32_t acquire_flags(const struct gmsfs_store *handle, uint32_t mode)
{
    int may_read = mode == GMSFS_MODE_RO || mode == GMSFS_MODE_RW_OR_RO;
    uint32_t flags = 0;

    if (handle->connect_flags & GMSFS_CONNECT_ANY && may_read)
        flags |= GMSFS_ACQUIRE_ANY;
    if (handle->connect_flags & GMSFS_CONNECT_REPLACE && mode != GMSFS_MODE_RO)
        flags |= GMSFS_ACQUIRE_REPLACE;
    if (handle->connect_flags & GMSFS_CONNECT_KEEP_PLACE)
        flags |= GMSFS_ACQUIRE_AGAIN;
    return flags;
}

/* ACQUIRE with timeout 0 does not wait, so it cannot be cancelled. */
static int acquire_once(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    uint32_t again = acquire->flags & GMSFS_ACQUIRE_AGAIN;
    int error = acquire->timeout_ms ? ioctl_wait_once(handle, GMSFS_IOC_ACQUIRE, acquire)
                                    : ioctl_once(handle, GMSFS_IOC_ACQUIRE, acquire);

    atomic_store(&handle->keeps_place, again && error == -ETIMEDOUT);
    return error;
}

/* The mount keeps a waiter's place for a second after a signal, and after the kernel's bound on
 * unanswered requests, which it reports as ETIMEDOUT before our own time is up. */
int gfs_ioctl_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    struct gmsfs_ioc_acquire request = *acquire;
    uint64_t timeout_ms = acquire->timeout_ms;
    uint64_t start_ms = gfs_clock_ms();
    int error;

    request.flags |= acquire_flags(handle, acquire->mode);
    for (;;) {
        *acquire = request;
        error = acquire_once(handle, acquire);
        if (error != -EINTR && error != -ETIMEDOUT)
            return error;
        if (timeout_ms == GMSFS_TIMEOUT_FOREVER)
            continue;
        uint64_t spent_ms = gfs_clock_ms() - start_ms;
        if (timeout_ms != 0 && spent_ms >= timeout_ms)
            return -ETIMEDOUT;
        if (timeout_ms == 0 && error == -ETIMEDOUT)
            return -EAGAIN;
        request.timeout_ms = timeout_ms == 0 ? 0 : timeout_ms - spent_ms;
    }
}
