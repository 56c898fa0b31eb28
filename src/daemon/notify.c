/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include "base/log.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SEND_S 2 /* a manager that is busy is not waited for any longer */

int notify_connect(void)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t bytes = path ? strlen(path) : 0;

    if (bytes == 0 || bytes >= sizeof address.sun_path)
        return -ENOENT;
    memcpy(address.sun_path, path, bytes);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* an abstract name */
    const struct timeval limit = {.tv_sec = SEND_S};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    if (connect(fd, (struct sockaddr *)&address, size) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

int notify_send_to(int fd, const char *state, int passed_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } rights = {.bytes = {0}};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)state, .iov_len = strlen(state)};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent;

    if (passed_fd >= 0) {
        packet.msg_control = rights.bytes;
        packet.msg_controllen = sizeof rights.bytes;
        rights.header.cmsg_level = SOL_SOCKET;
        rights.header.cmsg_type = SCM_RIGHTS;
        rights.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&rights.header), &passed_fd, sizeof passed_fd);
    }
    do
        sent = sendmsg(fd, &packet, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

void notify_send(const char *state)
{
    int fd = notify_connect();
    int error = fd < 0 ? fd : notify_send_to(fd, state, -1);

    if (error && error != -ENOENT)
        log_warning("cannot tell systemd %s: %s", state, strerror(-error));
    if (fd >= 0)
        close(fd);
}
