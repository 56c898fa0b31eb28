/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire_fixture - a pair of sockets, descriptors to pass, and how many this process has
 */
#ifndef GMSFS_TESTS_UNIT_WIRE_FIXTURE_H
#define GMSFS_TESTS_UNIT_WIRE_FIXTURE_H

#include "daemon/wire.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct wire_ends {
    int here, there; /* `there` does not block */
};

static inline void ends_open(struct wire_ends *ends)
{
    int fds[2];

    require(wire_pair(fds) == 0);
    ends->here = fds[0];
    ends->there = fds[1];
    fcntl(ends->there, F_SETFL, O_NONBLOCK);
}

static inline void ends_close(struct wire_ends *ends)
{
    close(ends->here);
    close(ends->there);
}

/* Counts the descriptors of this process; -1: none was free to count with. */
static inline int count_open(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    if (!dir)
        return -1;
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* Files that can be told apart. */
static inline void files_open(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int ends[2];
        require(pipe2(ends, O_CLOEXEC) == 0);
        close(ends[1]);
        fds[i] = ends[0];
    }
}

static inline void files_close(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static inline bool same_file(int a, int b)
{
    struct stat one, other;

    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino;
}

/* Leaves room for this many more descriptors. Returns the limit before. */
static inline struct rlimit limit_open(int more)
{
    struct rlimit before, limit;
    int lowest = fcntl(STDERR_FILENO, F_DUPFD, 0);

    close(lowest);
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = (rlim_t)(lowest + more);
    setrlimit(RLIMIT_NOFILE, &limit);
    return before;
}

/* Sends a malformed message: `bytes` of the batch, and so many descriptors. */
static inline void send_raw(int fd, const void *bytes, size_t size, const int *fds, size_t count)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(WIRE_BATCH_MAX * sizeof(int))];
    } rights = {.bytes = {0}};
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};

    if (count > 0) {
        packet.msg_control = rights.bytes;
        packet.msg_controllen = CMSG_SPACE(count * sizeof(int));
        rights.header.cmsg_level = SOL_SOCKET;
        rights.header.cmsg_type = SCM_RIGHTS;
        rights.header.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&rights.header), fds, count * sizeof(int));
    }
    require(sendmsg(fd, &packet, MSG_NOSIGNAL) == (ssize_t)size);
}

static inline size_t bytes_of(size_t count)
{
    return offsetof(struct wire_batch, memories) + count * sizeof(struct wire_memory);
}

#endif
