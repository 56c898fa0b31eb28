/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/opener_message.h"

#include "base/passing.h"

#include <errno.h>
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
    union passing control;
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};

    passing_put(&header, &control, fds, fd_count);
    ssize_t sent;
    do
        sent = sendmsg(socket, &header, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : 0;
}

int opener_receive(int socket, void *message, size_t *bytes, int *fds, size_t *fd_count)
{
    struct iovec part = {message, *bytes};
    union passing control;
    size_t most = *fd_count;
    struct msghdr header = {.msg_iov = &part,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = CMSG_SPACE(OPENER_MAX_FDS * sizeof(int))};
    ssize_t got;

    do
        got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    *fd_count = 0;
    if (got < 0)
        return -errno;
    *fd_count = passing_take(&header, fds, most);
    *bytes = (size_t)got;
    if (!(header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 0;
    for (size_t i = 0; i < *fd_count; i++)
        close(fds[i]);
    *fd_count = 0;
    return -EPROTO;
}
