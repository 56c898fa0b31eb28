/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WIRE_TRIES    10u
#define WIRE_PAUSE_NS 1000000

union wire_rights {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

int wire_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0 ? 0 : -errno;
}

/* The kernel's want of memory passes, and a message that is lost would not come again. */
static bool try_again(ssize_t done, unsigned *tries)
{
    const struct timespec pause = {.tv_nsec = WIRE_PAUSE_NS};

    if (done >= 0 || (errno != EINTR && errno != ENOMEM && errno != ENOBUFS))
        return false;
    if (errno == EINTR)
        return true;
    if (++*tries > WIRE_TRIES)
        return false;
    int error = errno;
    nanosleep(&pause, NULL);
    errno = error;
    return true;
}

int wire_send(int fd, const struct wire_message *message, int passed_fd)
{
    union wire_rights rights = {.bytes = {0}};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)message, .iov_len = sizeof *message};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    unsigned tries = 0;
    ssize_t sent;

    if (passed_fd >= 0) {
        packet.msg_control = rights.bytes;
        packet.msg_controllen = sizeof rights.bytes;
        struct cmsghdr *header = CMSG_FIRSTHDR(&packet);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &passed_fd, sizeof passed_fd);
    }
    do {
        sent = sendmsg(fd, &packet, MSG_NOSIGNAL);
    } while (try_again(sent, &tries));
    if (sent < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    return sent == (ssize_t)sizeof *message ? 0 : -EPROTO;
}

int wire_receive(int fd, struct wire_message *message, int *passed_fd)
{
    union wire_rights rights;
    struct iovec piece = {.iov_base = message, .iov_len = sizeof *message};
    struct msghdr packet = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = rights.bytes,
        .msg_controllen = sizeof rights.bytes,
    };
    unsigned tries = 0;
    ssize_t got;

    *passed_fd = -1;
    do {
        got = recvmsg(fd, &packet, MSG_CMSG_CLOEXEC);
    } while (try_again(got, &tries));
    if (got < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    struct cmsghdr *header = got > 0 ? CMSG_FIRSTHDR(&packet) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(passed_fd, CMSG_DATA(header), sizeof *passed_fd);
    if (got == 0)
        return -EPIPE;
    if (got != (ssize_t)sizeof *message) {
        if (*passed_fd >= 0)
            close(*passed_fd);
        *passed_fd = -1;
        return -EPROTO;
    }
    return (packet.msg_flags & MSG_CTRUNC) && *passed_fd < 0 ? -EMFILE : 0;
}
