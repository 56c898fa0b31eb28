/* SPDX-License-Identifier: Apache-2.0 */
/* The connection to `.fds` by which the regions of a mount are asked for: a message, an answer. */
#include "regions.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

/* ---- connecting ---------------------------------------------------------------------------- */

void gfs_regions_disconnect(struct gmsfs_regions *regions)
{
    if (regions->fds_fd >= 0)
        close(regions->fds_fd);
    regions->fds_fd = -1;
}

/* By the descriptor of the root, for sun_path holds 107 bytes; without /proc by the path. */
static int regions_connect_once(const struct gmsfs_regions *regions, int fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t room = sizeof address.sun_path;

    snprintf(address.sun_path, room, "/proc/self/fd/%d/.fds", regions->dir_fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    if (errno != ENOENT || access("/proc/self/fd", F_OK) == 0)
        return gfs_file_error(errno);
    if ((size_t)snprintf(address.sun_path, room, "%s/.fds", regions->path) >= room)
        return -ENAMETOOLONG;
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? gfs_file_error(errno) : 0;
}

/* A full backlog of a unix socket is EAGAIN, and poll(2) does not tell when it empties. */
static int regions_connect(struct gmsfs_regions *regions)
{
    uint64_t start_ms = gfs_clock_ms();
    int fd, error;

    if (regions->fds_fd >= 0)
        return 0;
    fd = gfs_fd_above(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    while ((error = regions_connect_once(regions, fd)) == -EAGAIN || error == -EINTR) {
        if (gfs_regions_is_cancelled(regions))
            error = -ECANCELED;
        else if (gfs_clock_ms() - start_ms >= GFS_REPLY_TIMEOUT_MS)
            error = -ETIMEDOUT;
        if (error == -ECANCELED || error == -ETIMEDOUT)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (error) {
        close(fd);
        return error == -ECONNREFUSED || error == -ENOENT ? -ENOTCONN : error;
    }
    regions->fds_fd = fd;
    return 0;
}

/* ---- messages ------------------------------------------------------------------------------ */

static int regions_wait(struct gmsfs_regions *regions, short events)
{
    struct pollfd poller = {.fd = regions->fds_fd, .events = events};
    uint64_t start_ms = gfs_clock_ms();
    int ready;

    do {
        ready = poll(&poller, 1, GFS_LOOK_MS);
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (ready <= 0 && gfs_regions_is_cancelled(regions))
            return -ECANCELED;
        if (ready <= 0 && gfs_clock_ms() - start_ms >= GFS_REPLY_TIMEOUT_MS)
            return -ETIMEDOUT;
    } while (ready <= 0);
    return 0;
}

/* One descriptor at most goes along, and comes back. */
union regions_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int regions_send(struct gmsfs_regions *regions, const void *request, size_t size, int fd)
{
    union regions_control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)request, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int error = 0;

    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    while (!error && sendmsg(regions->fds_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            error = regions_wait(regions, POLLOUT);
        else if (errno != EINTR)
            error = -errno;
    }
    return error;
}

static void regions_take_rights(struct msghdr *message, int *fd)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS &&
            at->cmsg_len == CMSG_LEN(sizeof *fd)) {
            memcpy(fd, CMSG_DATA(at), sizeof *fd);
            *fd = gfs_fd_above(*fd);
        }
    }
}

/* fd: NULL, or where the descriptor goes that came along, else -1. */
static int regions_receive(struct gmsfs_regions *regions, struct gfs_regions_answer *answer,
                           size_t *size, int *fd)
{
    union regions_control control;
    struct iovec part = {.iov_base = answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int error = regions_wait(regions, POLLIN);
    ssize_t got;

    if (error)
        return error;
    if (fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    do
        got = recvmsg(regions->fds_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got == 0 ? -ECONNRESET : -errno;
    if (fd)
        regions_take_rights(&message, fd);
    *size = (size_t)got;
    if (fd && message.msg_flags & MSG_CTRUNC)
        return -EMFILE;
    if (message.msg_flags & MSG_TRUNC || *size < sizeof answer->header)
        return -EPROTO;
    return answer->header.error > 0 ? -EPROTO : 0;
}

int gfs_regions_ask(struct gmsfs_regions *regions, const void *request, size_t size, int sent_fd,
                    struct gfs_regions_answer *answer, size_t *answered, int *got_fd)
{
    int was_connected = regions->fds_fd >= 0;
    int error = regions_connect(regions);

    /* The kernel may have waited there, and sent_fd be another file's by now. */
    if (!error && !was_connected && gfs_regions_is_cancelled(regions))
        error = -ECANCELED;
    if (error)
        return error;
    error = regions_send(regions, request, size, sent_fd);
    if (!error)
        error = regions_receive(regions, answer, answered, got_fd);
    if (error) { /* what may still come belongs to no one */
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
    int error;

    memcpy(request.ticket, ticket, sizeof request.ticket);
    *fd = -1;
    error = gfs_regions_ask(regions, &request, sizeof request, -1, &answer, &size, fd);
    if (!error)
        error = answer.header.error;
    if (!error && *fd < 0)
        error = -EPROTO;
    return error;
}
