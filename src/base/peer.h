/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peer - who is at the other end of a unix socket, and what it has not read
 *
 * For front ends that take connections. What the kernel noted when it connected, which nobody can
 * change afterwards, also not by exec(2) or setuid(2). On the loop's thread.
 */
#ifndef GMSFS_BASE_PEER_H
#define GMSFS_BASE_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct peer {
    uint32_t uid, gid;
    int pid; /* 0: not visible from here */
    gid_t *groups;
    size_t group_count;
};

/* peer_free in any case. 0 or a negative errno */
int peer_read(int fd, struct peer *peer);
void peer_free(struct peer *peer);
/* Is it one of its further groups? */
bool peer_has_group(const struct peer *peer, uint32_t gid);
/* Returns what the kernel charges this process's control group for messages that the other end has
 * not read, in bytes. */
size_t peer_count_unread(int fd);

#endif
