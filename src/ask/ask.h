/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ask - the client's end of a mount's socket `.fds`
 *
 * For libgmsfs, which this belongs to, the commands and a keeper that takes over. Knows addresses,
 * waiting and descriptors, and nothing of what is asked. Keeps no state and prints nothing; errors
 * are negative errno.
 */
#ifndef GMSFS_ASK_ASK_H
#define GMSFS_ASK_ASK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Bounds for the waits of a non-blocking socket. */
struct ask_limits {
    unsigned timeout_ms;
    int (*is_cancelled)(void *context); /* asked every 100 ms */
    void *context;
};

/* Of the monotonic clock. */
uint64_t ask_now_ms(void);

/* Makes a socket, with these SOCK_* flags besides. */
int ask_socket(int flags);

/* Connects the socket to the mount whose root is open as `root`. `path` leads there where there is
 * no /proc. -ENAMETOOLONG: it is longer than an address, which is tried without /proc alone. */
int ask_connect(int fd, int root, const char *path);

/* Waits after -EAGAIN of ask_connect(): of a full backlog poll(2) does not tell when it empties.
 * start_ms: ask_now_ms() when the first try began. -ECANCELED, -ETIMEDOUT */
int ask_pause(const struct ask_limits *limits, uint64_t start_ms);

/* Waits for POLLIN or POLLOUT. -ECANCELED, -ETIMEDOUT */
int ask_wait(int fd, short events, const struct ask_limits *limits);

/* Sends one message to a non-blocking socket; passed_fd goes along, -1: none. */
int ask_send(int fd, const void *bytes, size_t size, int passed_fd,
             const struct ask_limits *limits);

/* Receives one message without waiting, and at most *fd_count descriptors (253 or fewer). Sets
 * *fd_count to the number received; the caller closes them, also after an error. Returns the
 * message's bytes; -ECONNRESET: the end; -EMFILE: descriptors were lost; -EPROTO: the message is
 * longer. */
ssize_t ask_receive(int fd, void *bytes, size_t room, int *fds, size_t *fd_count);

#endif
