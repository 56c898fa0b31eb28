/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attach - puts the file system into the tree and takes it out
 *
 * Mounts through libfuse (by itself as root, else by fusermount3), binds the socket `.fds`,
 * detaches, aborts. Code that looks into the mount runs in a child process, because the keeper must
 * never wait for the worker. For keeper.c and mount.c.
 */
#ifndef GMSFS_DAEMON_ATTACH_H
#define GMSFS_DAEMON_ATTACH_H

#include "daemon/errand.h"
#include "daemon/mountinfo.h"

#include <stdbool.h>
#include <sys/types.h>

/* Mounts at `mountpoint` (absolute). *fuse_fd is /dev/fuse; *mount describes the new mount. On
 * failure the reason was logged. */
int attach_mount(const char *mountpoint, const char *backend, bool allow_other, int *fuse_fd,
                 struct mountinfo *mount);

/* Raises the kernel's limit of background requests, once the worker has answered FUSE_INIT: the
 * kernel accepts such a limit in that answer only from a process with capabilities that the worker
 * has not. Works as root; for an ordinary user the limit stays at fs.fuse.max_user_bgreq. */
void attach_widen(const struct mountinfo *mount, unsigned max_background);

/* Starts a child that binds and listens. Call attach_finish_bind when it has finished. */
int attach_start_bind(const char *mountpoint, struct errand *binder);
/* Receives the listening socket. On failure returns a negative errno, which was logged. */
int attach_finish_bind(struct errand *binder, int *listen_fd);

/* Starts a child that unmounts: once no file is open or, with `lazy`, at once for the tree. It
 * exits with 0 on success. It tries for a moment, because the caller may be about to close its
 * files. */
pid_t attach_start_unmount(const char *mountpoint, bool lazy);
/* Detaches and waits. Returns false if the mount is still there (logged). */
bool attach_detach(const char *mountpoint);

/* Ends the connection, so that no process waits for an answer any more. Works as root; for another
 * user closing the last /dev/fuse does it. */
void attach_abort(const struct mountinfo *mount);

#endif
