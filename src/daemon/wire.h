/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire - messages between keeper and worker
 *
 * Two socket pairs (SOCK_SEQPACKET): `control` for both event loops, with messages of a fixed size
 * and at most one descriptor each; `keep` for helper threads of the worker, which send a batch of
 * memory with its descriptors and wait for one message that acknowledges all of it. The two ends
 * may be two builds (`gmsfs upgrade`): a change is another WIRE_VERSION.
 */
#ifndef GMSFS_DAEMON_WIRE_H
#define GMSFS_DAEMON_WIRE_H

#include "service/host.h"

#include <stdint.h>

#define WIRE_VERSION 2u

enum wire_type {
    /* worker to keeper, control */
    /* There is memory: mount. id and value: the device's UUID, 16 bytes. Descriptor, where the
     * kernel can: a lifeline of the worker (lifeline.h). */
    WIRE_PREPARED = 1,
    WIRE_READY,   /* FUSE_INIT was answered: bind `.fds` */
    WIRE_RESUMED, /* it goes on where the last worker was. value: after so many microseconds */
    WIRE_UNMOUNT, /* a client asks for it; the worker has closed its listener */
    WIRE_ENDED,   /* id: files that were still open */
    /* keeper to worker, control */
    WIRE_FUSE,     /* descriptor: /dev/fuse, mounted */
    WIRE_LISTENER, /* descriptor: `.fds`, listening */
    WIRE_DETACHED, /* the mount is not in the tree any more */
    WIRE_END,      /* end in order */
    WIRE_AUDIT,    /* descriptor: the audit's file, opened (again) */
    WIRE_GMS,      /* descriptor: a socket of GMS clients, listening. id: domain, value: protocol */
    /* keep */
    WIRE_KEEP, /* batch: a descriptor for each memory. All of them are kept, or none */
    WIRE_DROP, /* batch: no descriptors */
    WIRE_ACK,  /* id: that of the batch; KEEP (error) or DROP is done */
    /* both ways on control, as they came later */
    WIRE_VISITOR, /* worker: descriptor: a client's connection that asks the keeper. id: the op */
    WIRE_YIELD,   /* keeper: end at once, all recorded: another worker goes on */
};

struct wire_message {
    uint32_t type;
    int32_t error;
    uint64_t id, value;
};

/* What is kept under such a number is a GMS client's connection, else it is memory. */
#define WIRE_CONNECTION SERVICE_CONNECTION
/* Of such: one of `.fds`, whose client may have descriptors unread. */
#define WIRE_UNREAD (WIRE_CONNECTION | UINT64_C(1) << 62)

/* As many descriptors as the kernel passes in one message (SCM_MAX_FD). */
#define WIRE_BATCH_MAX 253u

struct wire_memory {
    uint64_t id;
    uint64_t bytes; /* KEEP: what it costs; 0: its file tells */
};

struct wire_batch {
    struct wire_message head; /* id: whatever the sender likes; value: how many follow */
    struct wire_memory memories[WIRE_BATCH_MAX];
};

/* Into and out of id and value. */
void wire_set_uuid(struct wire_message *message, const uint8_t uuid[16]);
void wire_get_uuid(const struct wire_message *message, uint8_t uuid[16]);

/* 0 or a negative errno; a pair of connected sockets, closed on exec. */
int wire_pair(int fds[2]);
/* Both try again for some milliseconds when the kernel lacks memory; then -ENOMEM or -ENOBUFS.
 * `passed_fd` -1: none. Waits for room unless the socket is non-blocking. -EPIPE: the other end is
 * gone. */
int wire_send(int fd, const struct wire_message *message, int passed_fd);
/* *passed_fd is -1 if none came. -EAGAIN; -EPIPE: the other end is gone; -EMFILE: a descriptor was
 * lost because there are too many (the message is valid); -EPROTO: not a message. */
int wire_receive(int fd, struct wire_message *message, int *passed_fd);
/* head.value memories, 1..WIRE_BATCH_MAX (else -EINVAL), and as many descriptors if it is KEEP. */
int wire_send_batch(int fd, const struct wire_batch *batch, const int *fds);
/* Once, for the event loop: where it would have to wait or to try again, it fails. */
int wire_try_batch(int fd, const struct wire_batch *batch, const int *fds);
/* With KEEP, and 0 returned, the descriptors are the caller's; else there are none. Errors as
 * wire_receive; with -EMFILE the head is valid. */
int wire_receive_batch(int fd, struct wire_batch *batch, int fds[WIRE_BATCH_MAX]);

#endif
