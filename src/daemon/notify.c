/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/passing.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define RETRY_MS 100

static char pending[128]; /* state to send again; "" if none */

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
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + bytes);
    if (connect(fd, (struct sockaddr *)&address, size) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

int notify_send_to(int fd, const char *state, int passed_fd)
{
    union passing rights;
    struct iovec piece = {.iov_base = (void *)(uintptr_t)state, .iov_len = strlen(state)};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    ssize_t sent;

    passing_put(&packet, &rights, &passed_fd, passed_fd >= 0);
    do
        sent = sendmsg(fd, &packet, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

void notify_send(const char *state)
{
    SCOPED_CLOSE int fd = notify_connect();
    int error = fd < 0 ? fd : notify_send_to(fd, state, -1);
    bool is_busy = error == -EAGAIN && strlen(state) < sizeof pending;

    if (error && error != -ENOENT && !is_busy)
        log_warning("cannot tell systemd %s: %s", state, strerror(-error));
    if (is_busy)
        memmove(pending, state, strlen(state) + 1);
    else
        pending[0] = '\0'; /* a newer state replaces it */
}

void notify_resend(void)
{
    if (*pending)
        notify_send(pending);
}

int notify_next_ms(void)
{
    return *pending ? RETRY_MS : -1;
}
