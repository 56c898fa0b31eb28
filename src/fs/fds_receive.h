/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_receive - takes one message from a connection of the ticket socket
 *
 * For fds.c alone. A descriptor is only taken with a registration, and only kept where it is of a
 * file in memory; any other one is closed by whoever can wait for that.
 */
#ifndef GMSFS_FS_FDS_RECEIVE_H
#define GMSFS_FS_FDS_RECEIVE_H

#include "fs/fs_internal.h"

struct fds_received {
    struct gmsfs_fds_request request;
    struct gmsfs_fds_region_request region; /* where it is one of those */
    int sender;                             /* pid; 0: it cannot be seen */
    int object;                             /* in memory, the caller's; -1: none */
};

/* uid: who has connected. 0, -EINVAL, -EAGAIN, or -ECONNRESET: the client is gone. `object` is set
 * in any case. */
int fds_receive(const struct fs *fs, int fd, uint32_t uid, struct fds_received *received);

/* Whoever asked has closed the socket since, or has exited: an order that was given up is not
 * carried out later, when somebody else may hold what it was about. */
bool fds_is_abandoned(int fd);

#endif
