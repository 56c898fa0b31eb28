/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors - helpers of a floor to pass descriptors from one process to another
 *
 * As the kernel allows at best: 253 in a message, a byte of payload, over a SOCK_SEQPACKET pair.
 */
#ifndef GMSFS_BENCH_DESCRIPTORS_H
#define GMSFS_BENCH_DESCRIPTORS_H

#include <gmsfs_abi.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench.h"

union descriptors_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(GMSFS_BATCH_MAX * sizeof(int))];
};

static void descriptors_send(int to, const int *fds, size_t count)
{
    union descriptors_control control = {0};
    struct iovec part = {.iov_base = (char[]){0}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(count * sizeof(int))};
    struct cmsghdr *item = CMSG_FIRSTHDR(&message);

    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(item), fds, count * sizeof(int));
    bench_call("sendmsg", (int)sendmsg(to, &message, MSG_NOSIGNAL));
}

/* For a child: gives all of them for each byte that comes, until the peer is gone. */
BENCH_UNUSED static _Noreturn void descriptors_serve(int peer, const int *fds, size_t count)
{
    char request;

    while (read(peer, &request, 1) == 1) {
        for (size_t at = 0; at < count; at += GMSFS_BATCH_MAX)
            descriptors_send(peer, fds + at,
                             count - at < GMSFS_BATCH_MAX ? count - at : GMSFS_BATCH_MAX);
    }
    exit(0);
}

/* Receives one batch of the descriptors that descriptors_serve sends. Returns their number. */
BENCH_UNUSED static size_t descriptors_receive(int from, int fds[GMSFS_BATCH_MAX])
{
    union descriptors_control control;
    char byte;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *item;
    size_t count;

    bench_call("recvmsg", (int)recvmsg(from, &message, MSG_CMSG_CLOEXEC));
    item = CMSG_FIRSTHDR(&message);
    if (!item || message.msg_flags & MSG_CTRUNC)
        bench_die("descriptors got lost", EMFILE);
    count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(item), count * sizeof(int));
    return count;
}

#endif
