/* SPDX-License-Identifier: Apache-2.0 */
/* What a holder of a lock should hear of: that it is over, or that others want it. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

#define NOTICE_TEXT_MAX ((uint64_t)1 << 20)

/* The mount's events are a stream of which each open file has its own place. */
static int notice_open(struct gmsfs_store *handle)
{
    int error = 0;

    if (handle->events_fd >= 0)
        return 0;
    gfs_gate_enter();
    handle->events_fd = gfs_fd_above(openat(handle->dir_fd, "../events", O_RDONLY | O_CLOEXEC));
    if (handle->events_fd < 0)
        error = errno == ENOENT ? -EHOSTUNREACH : gfs_file_error(errno);
    gfs_gate_leave();
    return error;
}

/* What they were is of no matter: the store is asked. */
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

/* In JSON a quote inside a text has a backslash before it, so this is never found in one. */
static int notice_says_draining(struct gmsfs_store *handle, const char *file)
{
    static const char name[] = "\"draining\":";
    uint8_t *text = NULL;
    size_t bytes = 0;
    const char *at;
    int draining;

    if (gfs_file_read(handle, file, 0, NOTICE_TEXT_MAX, &text, &bytes))
        return 0;
    at = strstr((const char *)text, name); /* a NUL ends it */
    draining = at && strncmp(at + strlen(name) + strspn(at + strlen(name), " "), "true", 4) == 0;
    free(text);
    return draining;
}

static int notice_is_lost(struct gmsfs_store *handle)
{
    struct gmsfs_ioc_info info;
    int error;

    if (handle->mode == GMSFS_MODE_NONE)
        return 0;
    memset(&info, 0, sizeof info);
    error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
    if (!error && info.session == handle->session)
        return 0;
    if (handle->mode != GMSFS_MODE_NONE)
        gfs_session_forget(handle);
    return 1;
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
    if (notice_is_lost(handle) || handle->was_lost)
        notices = GMSFS_NOTICE_LOST;
    else if (handle->mode != GMSFS_MODE_NONE &&
             (notice_says_draining(handle, "info") || notice_says_draining(handle, "../device")))
        notices = GMSFS_NOTICE_LEAVE;
    handle->was_lost = 0;
    gfs_leave(handle);
    return notices;
}
