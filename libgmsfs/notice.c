/* SPDX-License-Identifier: Apache-2.0 */
/* Notices to the holder of a lock: that it is over, or that it should be given up. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "internal.h"

#define NOTICE_TEXT_MAX ((uint64_t)1 << 20)

/* The mount's events are a stream of which each open file has its own place. -1: errno says why. */
static int notice_open_events(const struct gmsfs_store *handle)
{
    return gfs_fd_above(openat(handle->dir_fd, "../events", O_RDONLY | O_CLOEXEC));
}

static int notice_open(struct gmsfs_store *handle)
{
    int error = 0;

    if (handle->events_fd >= 0)
        return 0;
    gfs_gate_enter();
    handle->events_fd = notice_open_events(handle);
    if (handle->events_fd < 0)
        error = errno == ENOENT ? -EHOSTUNREACH : gfs_file_error(errno);
    gfs_gate_leave();
    return error;
}

void gfs_notice_follow(struct gmsfs_store *handle)
{
    struct stat events, store;

    if (handle->events_fd < 0 || fstat(handle->events_fd, &events) < 0 ||
        fstat(handle->dir_fd, &store) < 0 || events.st_dev == store.st_dev)
        return;
    gfs_gate_enter();
    int fd = notice_open_events(handle);
    if (fd >= 0)
        dup3(fd, handle->events_fd, O_CLOEXEC);
    gfs_fd_close(&fd);
    gfs_gate_leave();
}

/* Discards the events: the store itself is asked. */
static void notice_read_events(const struct gmsfs_store *handle)
{
    char text[4096];
    ssize_t got;

    if (handle->events_fd < 0)
        return;
    do
        got = read(handle->events_fd, text, sizeof text);
    while (got > 0 || (got < 0 && errno == EINTR));
}

/* In JSON a quote inside a text has a backslash before it, so this is never found in one. 0, 1, or
 * why the file cannot be read. */
static int notice_says_draining(struct gmsfs_store *handle, const char *file)
{
    static const char name[] = "\"draining\":";
    uint8_t *text = NULL;
    size_t bytes = 0;
    int draining, error;

    error = gfs_file_read(handle, file, 0, NOTICE_TEXT_MAX, &text, &bytes);
    if (error)
        return error;
    const char *at = strstr((const char *)text, name); /* a NUL ends it */
    draining = at && strncmp(at + strlen(name) + strspn(at + strlen(name), " "), "true", 4) == 0;
    free(text);
    return draining;
}

/* Of a store that was bind-mounted alone there is no `device` above it. */
static int notice_is_asked_to_leave(struct gmsfs_store *handle)
{
    int draining = notice_says_draining(handle, "info");

    if (draining == 0) {
        draining = notice_says_draining(handle, "../device");
        if (draining == -ENOENT || draining == -ENOTDIR || draining == -EACCES)
            draining = 0;
    }
    return draining > 0 ? GMSFS_NOTICE_LEAVE : draining;
}

/* That the mount cannot say it now is no loss: it has the session still. */
static int notice_look(struct gmsfs_store *handle)
{
    struct gmsfs_ioc_info info;

    if (handle->mode == GMSFS_MODE_NONE)
        return 0;
    memset(&info, 0, sizeof info);
    int error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
    if (!error && info.session == handle->session)
        return notice_is_asked_to_leave(handle);
    if (error && error != -ESTALE && error != -ENOTCONN)
        return error;
    if (handle->mode != GMSFS_MODE_NONE)
        gfs_session_forget(handle);
    return GMSFS_NOTICE_LOST;
}

/* ---- public -------------------------------------------------------------------------------- */

int gmsfs_notice_descriptor(gmsfs_t *handle)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = notice_open(handle);
    if (!error)
        error = handle->events_fd;
    gfs_leave(handle);
    return error;
}

int gmsfs_notices(gmsfs_t *handle)
{
    int notices = gfs_enter(handle);

    if (notices)
        return notices;
    notice_read_events(handle);
    notices = notice_look(handle);
    if (handle->was_lost)
        notices = GMSFS_NOTICE_LOST;
    handle->was_lost = 0;
    gfs_leave(handle);
    return notices;
}
