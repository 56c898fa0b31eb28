/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - the process at the other end of a unix socket, and the bytes that it has not read
 *
 * For front ends that accept connections. The kernel notes the peer at connect(2); it cannot change
 * later, not even by exec(2) or setuid(2). On the loop's thread.
 */
#ifndef GMSFS_BASE_PEER_H
#define GMSFS_BASE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
    uint32_t uid, gid;
    int pid; /* 0 if not visible from here */
    gid_t *groups;
    size_t group_count;
};

/* Reads the peer; call peer_free also after an error. 0 or a negative errno */
int peer_read(int fd, struct peer *peer);
void peer_free(struct peer *peer);
/* True if it is one of its supplementary groups. */
bool peer_has_group(const struct peer *peer, uint32_t gid);
/* Returns the bytes that the kernel charges to this process's control group for messages that the
 * peer has not read. */
size_t peer_count_unread(int fd);

#endif
