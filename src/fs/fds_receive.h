/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_receive - takes one message from a connection of the ticket socket
 *
 * For fds.c alone. A descriptor is only taken with a registration, and only kept if it is a file in
 * memory; any other one is closed elsewhere, because its close may wait.
 */
#ifndef GMSFS_FS_FDS_RECEIVE_H
#define GMSFS_FS_FDS_RECEIVE_H

#include "fs/fs_internal.h"

struct fds_received {
    struct gmsfs_fds_request request;
    struct gmsfs_fds_region_request region; /* set if `request` is about regions */
    int sender;                             /* pid; 0: it cannot be seen */
    int object; /* descriptor of a file in memory, the caller's; -1: none */
};

/* uid: the user that connected. Returns 0, -EINVAL, -EAGAIN, or -ECONNRESET: the client is gone.
 * Sets `object` in any case. */
int fds_receive(const struct fs *fs, int fd, uint32_t uid, struct fds_received *received);

/* Returns true if the client has closed its socket or has exited: an order that was given up is not
 * carried out later, when another client may hold its object. */
bool fds_is_abandoned(int fd);

#endif
