/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image_entries.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DOCUMENT_BYTES (16u << 20) /* at a time: the daemon serves other requests in between */

int image_entries_open(const char *store)
{
    SCOPED_FREE char *path = NULL;

    if (asprintf(&path, "%s/ctl", store) < 0)
        return -ENOMEM;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

void image_entries_close(int ctl_fd)
{
    if (ctl_fd >= 0)
        close(ctl_fd);
}

/* ---- one document -------------------------------------------------------------------------- */

/* Sends a document. APPLY is called after a failed write too, to drop the incomplete document. */
static int entries_send(int ctl_fd, const uint8_t *bytes, size_t size_bytes,
                        int (*is_stopped)(void), size_t *culprit)
{
    int written = file_write(ctl_fd, bytes, size_bytes), error;
    struct gmsfs_ioc_apply apply = {0};

    do
        error = ioctl(ctl_fd, GMSFS_IOC_APPLY, &apply) < 0 ? -errno : 0;
    while (error == -EINTR && !is_stopped());
    if (written)
        return written;
    if (!error && apply.error) {
        error = apply.error;
        *culprit = apply.culprit < SIZE_MAX ? (size_t)apply.culprit : SIZE_MAX;
    }
    return error;
}

/* ---- all documents --------------------------------------------------------------------------- */

static int entries_join(int ctl_fd, gmsfs_t *handle)
{
    struct gmsfs_ioc_join join = {0};
    int error = gmsfs_session_token(handle, join.token);

    if (!error && ioctl(ctl_fd, GMSFS_IOC_JOIN, &join) < 0)
        error = -errno;
    return error;
}

int image_entries_put(int ctl_fd, gmsfs_t *handle, const struct image_layout *layout,
                      int (*is_stopped)(void), size_t *culprit)
{
    size_t done = 0, count, document_bytes;
    uint8_t *document;
    int error = layout->entry_count ? entries_join(ctl_fd, handle) : 0;

    *culprit = SIZE_MAX;
    while (!error && done < layout->entry_count) {
        error = is_stopped() ? -EINTR : 0;
        if (!error)
            error =
                image_layout_bulk(layout, done, DOCUMENT_BYTES, &document, &document_bytes, &count);
        if (error)
            break;
        error = entries_send(ctl_fd, document, document_bytes, is_stopped, culprit);
        free(document);
        if (error && *culprit < count)
            *culprit += done;
        else if (error)
            *culprit = SIZE_MAX;
        done += count;
    }
    return error;
}
