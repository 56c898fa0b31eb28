/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_ask - questions to the daemon of a mount through its socket `.fds`
 *
 * For `gmsfs umount`, `drain`, `fence`, `governor` and `clear-suspect`. A daemon that does not
 * answer is given up after some seconds. Never prints. gmsfs_abi.h has what may be asked.
 */
#ifndef GMSFS_CLI_DAEMON_ASK_H
#define GMSFS_CLI_DAEMON_ASK_H

#include "gmsfs.h"

#include <stdint.h>

/* A connection to the daemon of the mount at `path`, to be closed by close(2); a negative errno.
 * -ENAMETOOLONG: the path is longer than a socket's address, and there is no /proc. */
int daemon_connect(const char *path);

/* Sends one request and takes its answer: its error, or that of the way there. remaining: optional,
 * what the answer says of it. */
int daemon_ask(int fd, enum gmsfs_fds_op op, uint32_t batch, uint64_t *remaining);

/* The same of one store, by its id. */
int daemon_ask_of(int fd, enum gmsfs_fds_op op, const uint8_t id[16], uint32_t batch,
                  uint64_t *remaining);

/* SERVE of the mount at `path`, over a connection to it. Asks again, as the next. */
int daemon_ask_serve(const char *path, int fd);

/* A drain outlives the connection by which it was asked for, where the daemon's worker is replaced:
 * then another connection is made, unheard. */
struct daemon_drain {
    const char *path; /* the mount's */
    int fd;           /* by daemon_connect */
    uint8_t token[16];
};

/* DRAIN, or STORE_DRAIN of the store `id`. As daemon_ask */
int daemon_drain_begin(struct daemon_drain *drain, enum gmsfs_fds_op op, const uint8_t id[16],
                       uint32_t batch);
/* What is asked of it from then on. As daemon_ask_of */
int daemon_drain_ask(struct daemon_drain *drain, enum gmsfs_fds_op op, uint32_t batch,
                     uint64_t *remaining);
/* Makes the connection anew where it has broken. 0, or that of the way there */
int daemon_drain_mend(struct daemon_drain *drain);
/* Gives it up, and returns when the daemon has heard that, be it the next worker. 0, or
 * -ETIMEDOUT: it does not answer */
int daemon_drain_end(struct daemon_drain *drain);

/* Connects to the daemon of the mount at `path`, and asks it for GOVERN. Never hangs in the mount.
 * fd: the connection, to be closed by close(2); -1 after an error. holder: with -EBUSY the pid of
 * the process that governs. -EINVAL: the daemon does not know this request */
int daemon_govern(const char *path, int *fd, uint64_t *holder);

/* The process that serves the mount at `path`: its pid as seen from here, 0 where it cannot be
 * seen, or a negative errno. Where that one ends before it has answered, the next. */
int daemon_ask_pid(const char *path);

/* Connects, asks and closes; asks again where the daemon's worker ended before it had answered. */
int daemon_ask_unmount(const char *path);
/* The same of one store, by its id; zeros: of all. */
int daemon_ask_store(const char *path, enum gmsfs_fds_op op, const uint8_t id[16]);
/* One of the FENCE ops; token: that of who ends it. *answer is zeros where none came. -EOPNOTSUPP:
 * the daemon knows of no fence */
int daemon_ask_fence(const char *path, enum gmsfs_fds_op op, const uint8_t token[16],
                     struct gmsfs_fds_fence *answer);

#endif
