/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - the client's end of a mount's socket `.fds`
 *
 * Part of libgmsfs; for the commands and a new keeper as well. Handles addresses, waits and
 * descriptors, not the contents of messages. Keeps no state and prints nothing; errors are negative
 * errno.
 */
#ifndef GMSFS_ASK_ASK_H
#define GMSFS_ASK_ASK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Limits of a wait on a non-blocking socket. */
struct ask_limits {
    unsigned timeout_ms;
    int (*is_cancelled)(void *context); /* called every 100 ms */
    void *context;
};

/* Reads the monotonic clock. */
uint64_t ask_now_ms(void);

/* Makes a socket, with these additional SOCK_* flags. */
int ask_socket(int flags);

/* Connects the socket to the mount with its root open as `root`. Uses `path` only if there is no
 * /proc; -ENAMETOOLONG: `path` is longer than an address. */
int ask_connect(int fd, int root, const char *path);

/* Waits after -EAGAIN of ask_connect(): poll(2) does not report when a full backlog has room.
 * start_ms: ask_now_ms() when the first try began. -ECANCELED, -ETIMEDOUT */
int ask_pause(const struct ask_limits *limits, uint64_t start_ms);

/* Waits for POLLIN or POLLOUT. -ECANCELED, -ETIMEDOUT */
int ask_wait(int fd, short events, const struct ask_limits *limits);

/* Sends one message to a non-blocking socket, with passed_fd (-1: none). */
int ask_send(int fd, const void *bytes, size_t size, int passed_fd,
             const struct ask_limits *limits);

/* Receives one message without waiting, and at most *fd_count descriptors (253 or fewer). Sets
 * *fd_count to the number received; the caller closes them, also after an error. Returns the
 * message's bytes; -ECONNRESET: the connection ended; -EMFILE: descriptors were lost; -EPROTO: the
 * message was longer. */
ssize_t ask_receive(int fd, void *bytes, size_t room, int *fds, size_t *fd_count);
/* Closes the descriptors that are not negative. One call closes those with numbers in a row, as
 * most numbers of a message's descriptors are. */
void ask_close(const int *fds, size_t count);

#endif
