/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/opener_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int opener_request_check(struct opener_request *request, size_t bytes)
{
    if (bytes < OPENER_REQUEST_BYTES(0) || request->name_count > OPENER_MAX_NAMES ||
        bytes != OPENER_REQUEST_BYTES(request->name_count))
        return -EPROTO;
    if (request->op < OPENER_IDENTIFY || request->op > OPENER_HOLD)
        return -EPROTO;
    if (request->op >= OPENER_REGISTER && request->op <= OPENER_STATUS &&
        request->kind != GMSFS_REGION_SYSTEM && request->kind != GMSFS_REGION_CUDA)
        return -EPROTO;
    if (request->op == OPENER_REGISTER && request->name_count != 1)
        return -EPROTO;
    if (request->op != OPENER_HOLD && request->name_count > 1)
        return -EPROTO;
    request->token[sizeof request->token - 1] = '\0';
    request->key[sizeof request->key - 1] = '\0';
    for (uint32_t i = 0; i < request->name_count; i++)
        request->names[i][GMSFS_REGION_NAME_MAX] = '\0';
    return 0;
}

int opener_send(int socket, const void *message, size_t bytes, const int *fds, size_t fd_count)
{
    struct iovec part = {(void *)message, bytes};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(OPENER_MAX_FDS * sizeof(int))] = {0};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd_count > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

static void take_fds(struct msghdr *header, int *fds, size_t *fd_count)
{
    size_t room = *fd_count;

    *fd_count = 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(header); at; at = CMSG_NXTHDR(header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof fd);
            if (*fd_count < room)
                fds[(*fd_count)++] = fd;
            else
                close(fd);
        }
    }
}

int opener_receive(int socket, void *message, size_t *bytes, int *fds, size_t *fd_count)
{
    struct iovec part = {message, *bytes};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(OPENER_MAX_FDS * sizeof(int))];
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    ssize_t got;

    do
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) {
        *fd_count = 0;
        return -errno;
    }
    take_fds(&header, fds, fd_count);
    *bytes = (size_t)got;
    if (!(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    for (size_t i = 0; i < *fd_count; i++)
        close(fds[i]);
    *fd_count = 0;
    return -EPROTO;
}
