/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_ask - questions to the daemon of a mount through its socket `.fds`
 *
 * For `gmsfs umount`, `drain`, `fence`, `governor` and `clear-suspect`. A request to a daemon that
 * does not answer fails after some seconds. Never prints. gmsfs_abi.h lists the requests.
 */
#ifndef GMSFS_CLI_DAEMON_ASK_H
#define GMSFS_CLI_DAEMON_ASK_H

#include "gmsfs.h"

#include <stdint.h>

/* Connects to the daemon of the mount at `path`. A descriptor for close(2), or a negative errno.
 * -ENAMETOOLONG: the path is longer than a socket's address, and there is no /proc. */
int daemon_connect(const char *path);

/* Sends one request; returns the answer's error, or that of the connection. id: of a store, or
 * NULL. remaining: optional, as in the answer. */
int daemon_ask(int fd, enum gmsfs_fds_op op, const uint8_t *id, uint32_t batch,
               uint64_t *remaining);

/* Sends SERVE for the mount at `path`, over a connection to it; again if the connection breaks. */
int daemon_ask_serve(const char *path, int fd);

/* A drain. It outlives its connection if the daemon's worker is replaced: then these functions make
 * another connection, silently. */
struct daemon_drain {
    const char *path; /* the mount's */
    int fd;           /* by daemon_connect */
    uint8_t token[16];
};

/* Sends DRAIN, or STORE_DRAIN of the store `id`. As daemon_ask */
int daemon_drain_begin(struct daemon_drain *drain, enum gmsfs_fds_op op, const uint8_t id[16],
                       uint32_t batch);
/* Sends a later request of the drain. As daemon_ask */
int daemon_drain_ask(struct daemon_drain *drain, enum gmsfs_fds_op op, uint32_t batch,
                     uint64_t *remaining);
/* Connects again after the connection broke. 0, or the error of connecting */
int daemon_drain_mend(struct daemon_drain *drain);
/* Ends the drain, and returns once the daemon, perhaps the next worker, knows that. 0, or
 * -ETIMEDOUT: it does not answer */
int daemon_drain_end(struct daemon_drain *drain);

/* Connects to the daemon of the mount at `path`, and asks it for GOVERN. Never hangs in the mount.
 * fd: the connection, to be closed by close(2); -1 after an error. holder: with -EBUSY the pid of
 * the process that governs. -EINVAL: the daemon does not know this request */
int daemon_govern(const char *path, int *fd, uint64_t *holder);

/* Returns the pid of the process that serves the mount at `path`, as seen from here; 0 if it cannot
 * be seen; or a negative errno. If that process ends before it answers, asks the next one. */
int daemon_ask_pid(const char *path);

/* Connects, asks and closes; asks again if the daemon's worker ended before it answered. */
int daemon_ask_unmount(const char *path);
/* As daemon_ask, over a new connection. -EINVAL: the daemon does not know the request */
int daemon_ask_once(const char *path, enum gmsfs_fds_op op, const uint8_t *id, uint32_t batch,
                    uint64_t *remaining);
/* Sends one of the FENCE ops; token: of the fence to end. *answer is zeros if no answer came.
 * -EOPNOTSUPP: the daemon has no fences */
int daemon_ask_fence(const char *path, enum gmsfs_fds_op op, const uint8_t token[16],
                     struct gmsfs_fds_fence *answer);

#endif
