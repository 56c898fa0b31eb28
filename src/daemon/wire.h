/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire - messages between keeper and worker
 *
 * Two socket pairs (SOCK_SEQPACKET): `control` for both event loops, `keep` for helper threads of
 * the worker that wait for an acknowledgement. Fixed-size messages, at most one descriptor each.
 * Both ends are one program, so the format may change with every build.
 */
#ifndef GMSFS_DAEMON_WIRE_H
#define GMSFS_DAEMON_WIRE_H

#include <stdint.h>

enum wire_type {
    /* worker to keeper, control */
    WIRE_PREPARED = 1, /* there is memory: mount */
    WIRE_READY,        /* FUSE_INIT was answered: bind `.fds` */
    WIRE_UNMOUNT,      /* a client asks for it; the worker has closed its listener */
    WIRE_ENDED,        /* id: files that were still open, value: stores with a layout */
    /* keeper to worker, control */
    WIRE_FUSE,     /* descriptor: /dev/fuse, mounted */
    WIRE_LISTENER, /* descriptor: `.fds`, listening */
    WIRE_DETACHED, /* the mount is not in the tree any more */
    WIRE_END,      /* end in order */
    /* keep */
    WIRE_KEEP, /* id: memory, value: its bytes, 0: its file tells; descriptor */
    WIRE_DROP, /* id: memory */
    WIRE_ACK,  /* id: memory; KEEP (error) or DROP is done */
};

struct wire_message {
    uint32_t type;
    int32_t error;
    uint64_t id, value;
};

/* 0 or a negative errno; a pair of connected sockets, closed on exec. */
int wire_pair(int fds[2]);
/* Both try again for some milliseconds when the kernel lacks memory; then -ENOMEM or -ENOBUFS.
 * `passed_fd` -1: none. Waits for room unless the socket is non-blocking. -EPIPE: the other end is
 * gone. */
int wire_send(int fd, const struct wire_message *message, int passed_fd);
/* *passed_fd is -1 if none came. -EAGAIN; -EPIPE: the other end is gone; -EMFILE: a descriptor was
 * lost because there are too many (the message is valid); -EPROTO: not a message. */
int wire_receive(int fd, struct wire_message *message, int *passed_fd);

#endif
