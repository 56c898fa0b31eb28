/* SPDX-License-Identifier: Apache-2.0 */
#include "ask/ask.h"

#include "base/passing.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS  100
#define PAUSE_NS 1000000L

uint64_t ask_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- connecting ------------------------------------------------------------------------------ */

int ask_socket(int flags)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0);

    return fd < 0 ? -errno : fd;
}

static int connect_at(int fd, const struct sockaddr_un *address)
{
    return connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? -errno : 0;
}

/* Checks that the path still leads to the mount. */
static int check_path(const char *path, int root)
{
    struct stat wanted, found;

    if (stat(path, &found) < 0 || fstat(root, &wanted) < 0)
        return -errno;
    return found.st_dev == wanted.st_dev && found.st_ino == wanted.st_ino ? 0 : -ENOENT;
}

int ask_connect(int fd, int root, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t room = sizeof address.sun_path;

    snprintf(address.sun_path, room, "/proc/self/fd/%d/.fds", root);
    int error = connect_at(fd, &address);
    if (error != -ENOENT || access("/proc/self/fd", F_OK) == 0)
        return error;
    if ((size_t)snprintf(address.sun_path, room, "%s/.fds", path) >= room)
        return -ENAMETOOLONG;
    error = check_path(path, root);
    return error ? error : connect_at(fd, &address);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int check_limits(const struct ask_limits *limits, uint64_t start_ms)
{
    if (limits->is_cancelled(limits->context))
        return -ECANCELED;
    return ask_now_ms() - start_ms >= limits->timeout_ms ? -ETIMEDOUT : 0;
}

int ask_pause(const struct ask_limits *limits, uint64_t start_ms)
{
    int error = check_limits(limits, start_ms);

    if (!error)
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return error;
}

int ask_wait(int fd, short events, const struct ask_limits *limits)
{
    struct pollfd poller = {.fd = fd, .events = events};
    uint64_t start_ms = ask_now_ms();
    int error = 0;

    while (!error) {
        int ready = poll(&poller, 1, LOOK_MS);

        if (ready > 0)
            return 0;
        error = ready < 0 && errno != EINTR ? -errno : check_limits(limits, start_ms);
    }
    return error;
}

/* ---- messages -------------------------------------------------------------------------------- */

int ask_send(int fd, const void *bytes, size_t size, int passed_fd, const struct ask_limits *limits)
{
    union passing control;
    struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int error = 0;

    passing_put(&message, &control, &passed_fd, passed_fd >= 0);
    while (!error && sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            error = ask_wait(fd, POLLOUT, limits);
        else if (errno != EINTR)
            error = -errno;
    }
    return error;
}

ssize_t ask_receive(int fd, void *bytes, size_t room, int *fds, size_t *fd_count)
{
    assert(*fd_count <= PASSING_MAX);
    union passing control;
    size_t most = *fd_count;
    /* Not CMSG_SPACE(): for odd counts it has room for one more, which the kernel fills. */
    struct iovec part = {.iov_base = bytes, .iov_len = room};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = CMSG_LEN(most * sizeof(int))};
    ssize_t got;

    *fd_count = 0;
    do
        got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got == 0 ? -ECONNRESET : -errno;
    *fd_count = passing_take(&message, fds, most);
    if (message.msg_flags & MSG_CTRUNC)
        return -EMFILE;
    return message.msg_flags & MSG_TRUNC ? -EPROTO : got;
}

void ask_close(const int *fds, size_t count)
{
    size_t run;

    for (size_t at = 0; at < count; at += run) {
        for (run = 1; at + run < count && fds[at] >= 0 && fds[at + run] == fds[at] + (int)run;
             run++)
            ;
        /* kernels before 5.9 have no close_range(2) */
        if (run > 1 && close_range((unsigned)fds[at], (unsigned)fds[at + run - 1], 0) == 0)
            continue;
        for (size_t i = at; i < at + run; i++)
            if (fds[i] >= 0)
                close(fds[i]);
    }
}
