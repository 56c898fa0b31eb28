/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passing - descriptors in messages over a unix socket
 *
 * For all parts that send or receive descriptors: puts them into a struct msghdr, or takes them
 * out. Header-only, so that the library can use it. Sends and receives nothing itself.
 */
#ifndef GMSFS_BASE_PASSING_H
#define GMSFS_BASE_PASSING_H

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PASSING_MAX 253u /* as the kernel's SCM_MAX_FD */

/* Room for the descriptors of a message; has to live as long as the message. */
union passing {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(PASSING_MAX * sizeof(int))];
};

/* Adds `count` descriptors to the message; 0: leaves it unchanged. */
static inline void passing_put(struct msghdr *message, union passing *room, const int *fds,
                               size_t count)
{
    struct cmsghdr *rights = &room->align;

    if (count == 0)
        return;
    memset(room, 0, CMSG_SPACE(count * sizeof(int)));
    message->msg_control = room;
    message->msg_controllen = CMSG_SPACE(count * sizeof(int));
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
}

/* Moves up to `most` received descriptors into fds, which the caller then owns; closes any others.
 * Returns the number moved. */
static inline size_t passing_take(struct msghdr *message, int *fds, size_t most)
{
    size_t count = 0;

    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < (at->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof(int), sizeof(fd));
            if (count < most)
                fds[count++] = fd;
            else
                close(fd);
        }
    }
    return count;
}

#endif
