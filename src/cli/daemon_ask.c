/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_ask.h"

#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define REPLY_TIMEOUT_S 5

/* Through its directory, for a path may be longer than a socket's address. */
int daemon_connect(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval limit = {.tv_sec = REPLY_TIMEOUT_S};
    int dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, r = 0;

    if (dir_fd < 0)
        return -errno;
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/.fds", dir_fd);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0 ||
        connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
        r = -errno;
    close(dir_fd);
    if (r && fd >= 0)
        close(fd);
    return r ? r : fd;
}

static int exchange(int fd, const struct gmsfs_fds_request *request, uint64_t *remaining)
{
    struct gmsfs_fds_header header;
    ssize_t got;

    if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) < 0)
        return -errno;
    do
        got = recv(fd, &header, sizeof(header), 0);
    while (got < 0 && errno == EINTR && !signals_get());
    if (got < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    if (got != (ssize_t)sizeof(header))
        return -ECONNRESET;
    if (remaining)
        *remaining = header.remaining;
    return header.error;
}

int daemon_ask(int fd, enum gmsfs_fds_op op, uint32_t batch, uint64_t *remaining)
{
    const struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = op, .batch = batch};

    return exchange(fd, &request, remaining);
}

int daemon_ask_store(const char *path, enum gmsfs_fds_op op, const uint8_t id[16])
{
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = op};
    int fd = daemon_connect(path), r;

    if (fd < 0)
        return fd;
    memcpy(request.ticket, id, sizeof(request.ticket));
    r = exchange(fd, &request, NULL);
    close(fd);
    return r;
}

int daemon_ask_once(const char *path, enum gmsfs_fds_op op)
{
    static const uint8_t none[16];

    return daemon_ask_store(path, op, none);
}
