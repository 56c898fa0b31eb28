/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_receive.h"

#include "fs/fds_request.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

/* Returns 1 if the next message is a registration and a descriptor of this user can be taken, 0 if
 * not, or a negative errno. */
static int takes_descriptor(const struct fs *fs, int fd, uint32_t uid)
{
    struct gmsfs_fds_request next;
    ssize_t size = recv(fd, &next, sizeof next, MSG_DONTWAIT | MSG_PEEK);
    if (size < 0)
        return -errno;
    return size == (ssize_t)sizeof next && next.op == GMSFS_FDS_REGION_REGISTER &&
           fs->host.may_take(fs->host.context, uid);
}

/* Keeps a descriptor only if it has seals, as files in memory alone have: no call on such a file
 * waits for another process, close(2) neither. */
static int keep_in_memory(const struct fs *fs, uint32_t uid, int fd, int *object)
{
    if (fcntl(fd, F_GET_SEALS) >= 0) {
        *object = fd;
        return 0;
    }
    int error = errno == EINVAL || errno == EBADF ? 0 : -errno;
    fs->host.close_foreign(fs->host.context, uid, fd);
    return error;
}

/* Returns 0, or the error that left the received descriptor unknown. */
static int read_control(const struct fs *fs, uint32_t uid, struct msghdr *head,
                        struct fds_received *received)
{
    struct ucred credentials;
    int fd, error = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(head); at; at = CMSG_NXTHDR(head, at)) {
        if (at->cmsg_level != SOL_SOCKET)
            continue;
        if (at->cmsg_type == SCM_CREDENTIALS) {
            memcpy(&credentials, CMSG_DATA(at), sizeof credentials);
            received->sender = credentials.pid;
        } else if (at->cmsg_type == SCM_RIGHTS && at->cmsg_len >= CMSG_LEN(sizeof fd)) {
            memcpy(&fd, CMSG_DATA(at), sizeof fd); /* there is room for one */
            error = keep_in_memory(fs, uid, fd, &received->object);
        }
    }
    return error;
}

int fds_receive(const struct fs *fs, int fd, uint32_t uid, struct fds_received *received)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int))];
    } control;
    uint8_t bytes[FDS_REGION_MAX_BYTES];
    struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr head = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = CMSG_SPACE(sizeof(struct ucred))};
    int takes = takes_descriptor(fs, fd, uid);
    if (takes > 0)
        head.msg_controllen += CMSG_LEN(sizeof(int)); /* with padding there would be room for two */
    *received = (struct fds_received){.object = -1};
    ssize_t size = takes < 0 ? -1 : recvmsg(fd, &head, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
    if (size < 0)
        return errno == EAGAIN || errno == EINTR ? -EAGAIN : -ECONNRESET;
    if (read_control(fs, uid, &head, received) || size == 0)
        return -ECONNRESET;
    int error = fds_request_decode(bytes, (size_t)size, &received->request);
    if (!error && fds_request_is_region(&received->request))
        error = fds_region_decode(bytes, (size_t)size, &received->region);
    return error;
}

bool fds_is_abandoned(int fd)
{
    struct pollfd peer = {.fd = fd};
    return poll(&peer, 1, 0) > 0 && (peer.revents & (POLLHUP | POLLERR));
}
