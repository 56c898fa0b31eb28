/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to `.fds` by which the regions of a mount are asked for: a message, an answer. */
#include "regions.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ask/ask.h"
#include "internal.h"

/* ---- connecting ---------------------------------------------------------------------------- */

void gfs_regions_disconnect(struct gmsfs_regions *regions)
{
    if (regions->fds_fd >= 0)
        close(regions->fds_fd);
    regions->fds_fd = -1;
}

static int regions_are_cancelled(void *regions)
{
    return gfs_regions_is_cancelled(regions);
}

static struct ask_limits regions_limits(struct gmsfs_regions *regions)
{
    return (struct ask_limits){.timeout_ms = GFS_REPLY_TIMEOUT_MS,
                               .is_cancelled = regions_are_cancelled,
                               .context = regions};
}

static int regions_connect(struct gmsfs_regions *regions)
{
    const struct ask_limits limits = regions_limits(regions);
    uint64_t start_ms = gfs_clock_ms();
    int fd, error;

    if (regions->fds_fd >= 0)
        return 0;
    fd = gfs_fd_above(ask_socket(SOCK_NONBLOCK));
    if (fd < 0)
        return -errno;
    do {
        error = gfs_file_error(-ask_connect(fd, regions->dir_fd, regions->path));
        if (error != -EAGAIN && error != -EINTR)
            break;
        error = ask_pause(&limits, start_ms);
    } while (!error);
    if (error) {
        close(fd);
        return error == -ECONNREFUSED || error == -ENOENT ? -ENOTCONN : error;
    }
    regions->fds_fd = fd;
    return 0;
}

/* fd: NULL, or where the descriptor goes that came along, else -1. */
static int regions_receive(struct gmsfs_regions *regions, struct gfs_regions_answer *answer,
                           size_t *size, int *fd)
{
    const struct ask_limits limits = regions_limits(regions);
    int error = ask_wait(regions->fds_fd, POLLIN, &limits);
    size_t fd_count = fd ? 1 : 0;

    if (error)
        return error;
    ssize_t got = ask_receive(regions->fds_fd, answer, sizeof *answer, fd, &fd_count);
    if (fd_count > 0)
        *fd = gfs_fd_above(*fd);
    if (got == -EMFILE && !fd) /* a descriptor came without a request */
        got = -EPROTO;
    if (got < 0)
        return (int)got;
    *size = (size_t)got;
    return *size < sizeof answer->header || answer->header.error > 0 ? -EPROTO : 0;
}

int gfs_regions_ask(struct gmsfs_regions *regions, const void *request, size_t size, int sent_fd,
                    struct gfs_regions_answer *answer, size_t *answered, int *got_fd)
{
    const struct ask_limits limits = regions_limits(regions);
    int was_connected = regions->fds_fd >= 0;
    int error = regions_connect(regions);

    /* The kernel may have waited there, and sent_fd be another file's by now. */
    if (!error && !was_connected && gfs_regions_is_cancelled(regions))
        error = -ECANCELED;
    if (error)
        return error;
    error = ask_send(regions->fds_fd, request, size, sent_fd, &limits);
    if (!error)
        error = regions_receive(regions, answer, answered, got_fd);
    if (error) { /* a late answer must not meet the next request */
        gfs_regions_disconnect(regions);
        if (got_fd && *got_fd >= 0)
            close(*got_fd);
        if (got_fd)
            *got_fd = -1;
    }
    return error == -EPIPE ? -ECONNRESET : error;
}

int gfs_regions_redeem(struct gmsfs_regions *regions, const uint8_t ticket[16], int *fd)
{
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = 1};
    struct gfs_regions_answer answer;
    size_t size = 0;

    memcpy(request.ticket, ticket, sizeof request.ticket);
    *fd = -1;
    int error = gfs_regions_ask(regions, &request, sizeof request, -1, &answer, &size, fd);
    if (!error)
        error = answer.header.error;
    if (!error && *fd < 0)
        error = -EPROTO;
    return error;
}
