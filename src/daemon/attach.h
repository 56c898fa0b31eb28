/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach - brings the file system into the tree and takes it out
 *
 * Mounts through libfuse (by itself as root, else by fusermount3), binds the socket `.fds`,
 * detaches, aborts. Whatever looks into the mount runs in a child process, for the keeper must
 * never wait for the worker. For keeper.c and mount.c.
 */
#ifndef GMSFS_DAEMON_ATTACH_H
#define GMSFS_DAEMON_ATTACH_H

#include "daemon/mountinfo.h"

#include <stdbool.h>
#include <sys/types.h>

/* Mounts at `mountpoint` (absolute). *fuse_fd is /dev/fuse; *mount tells the new mount. The reason
 * of a failure was logged. */
int attach_mount(const char *mountpoint, const char *backend, bool allow_other, int *fuse_fd,
                 struct mountinfo *mount);

/* So many requests may be under way that nobody waits for, once the worker has answered FUSE_INIT:
 * what that says the kernel takes from root's capabilities only, which the worker has not. As root;
 * an ordinary user's stays at fs.fuse.max_user_bgreq's like. */
void attach_widen(const struct mountinfo *mount, unsigned max_background);

/* A child that binds and listens. *fd becomes readable when it is through: attach_finish_bind. */
int attach_start_bind(const char *mountpoint, pid_t *child, int *fd);
/* Takes the listening socket, ends the child; closes fd. A negative errno, logged, on failure. */
int attach_finish_bind(pid_t child, int fd, int *listen_fd);

/* A child that unmounts, once nobody holds a file or, with `lazy`, at once for the tree. Its exit
 * status is 0 when it did. Tries for a moment, for who asked may be about to let go. */
pid_t attach_start_unmount(const char *mountpoint, bool lazy);
/* Detaches and waits. False: it is still there (logged). */
bool attach_detach(const char *mountpoint);

/* Ends the connection, so that nobody waits for answers any more. As root; else closing the last
 * /dev/fuse does it. */
void attach_abort(const struct mountinfo *mount);

#endif
