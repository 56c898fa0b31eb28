/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wire - messages between keeper and worker
 *
 * Two socket pairs (SOCK_SEQPACKET): `control` for both event loops, with messages of a fixed size
 * and at most one descriptor each; `keep` for helper threads of the worker, which send a batch of
 * memory with its descriptors and wait for one message that acknowledges all of it. The two ends
 * may be two builds (`gmsfs upgrade`): each change needs a new WIRE_VERSION.
 */
#ifndef GMSFS_DAEMON_WIRE_H
#define GMSFS_DAEMON_WIRE_H

#include "service/host.h"

#include <stdint.h>

#define WIRE_VERSION 2u

enum wire_type {
    /* worker to keeper, control */
    /* The worker has memory: mount. id and value: the device's UUID, 16 bytes. Descriptor, if the
     * kernel allows: a lifeline of the worker (lifeline.h). */
    WIRE_PREPARED = 1,
    WIRE_READY,   /* FUSE_INIT was answered: bind `.fds` */
    WIRE_RESUMED, /* it continues where the last worker ended. value: microseconds that this took */
    WIRE_UNMOUNT, /* a client asks for it; the worker has closed its listener */
    WIRE_ENDED,   /* id: files that were still open */
    /* keeper to worker, control */
    /* descriptor: /dev/fuse, mounted. value: 1 if the keeper takes WIRE_BACK */
    WIRE_FUSE,
    WIRE_LISTENER, /* descriptor: `.fds`, listening */
    WIRE_DETACHED, /* the mount has left the tree */
    WIRE_END,      /* end in order */
    WIRE_AUDIT,    /* descriptor: the audit's file, newly opened */
    WIRE_GMS,      /* descriptor: a socket of GMS clients, listening. id: domain, value: protocol */
    /* keep */
    WIRE_KEEP, /* batch: a descriptor for each memory. The keeper holds all of them, or none */
    WIRE_DROP, /* batch: no descriptors */
    WIRE_ACK,  /* id: that of the batch; KEEP (error), DROP or BACK (error) is done */
    /* both ways on control; later additions */
    WIRE_VISITOR, /* worker: a client asks the keeper. id: the op; descriptor: its connection */
    WIRE_YIELD,   /* keeper: end at once, with all recorded; another worker continues */
    /* keep; a later addition, only to a keeper that takes it. Batch of one memory: register its
     * file with the kernel until WIRE_DROP, or until BACK with WIRE_BACK_ENDS, which an earlier
     * keeper takes for one more registration. WIRE_ACK, value: the number of the file there */
    WIRE_BACK,
    /* Both ways on control; a later addition, only with the option trace. Worker: the file is full.
     * Keeper: descriptor: the trace's file, newly opened */
    WIRE_TRACE,
};

struct wire_message {
    uint32_t type;
    int32_t error;
    uint64_t id, value;
};

/* A descriptor with such a number is a GMS client's connection, else memory. */
#define WIRE_CONNECTION SERVICE_CONNECTION
/* A connection of `.fds`, whose client may not have read all its descriptors. */
#define WIRE_UNREAD (WIRE_CONNECTION | UINT64_C(1) << 62)

/* As many descriptors as the kernel passes in one message (SCM_MAX_FD). */
#define WIRE_BATCH_MAX 253u

#define WIRE_BACK_ENDS 1u

struct wire_memory {
    uint64_t id;
    uint64_t bytes; /* KEEP: its size; 0 if its file has to say. BACK: 0 or WIRE_BACK_ENDS */
};

struct wire_batch {
    struct wire_message head; /* id: chosen by the sender; value: number of memories */
    struct wire_memory memories[WIRE_BATCH_MAX];
};

/* Put the UUID into id and value, and read it back. */
void wire_set_uuid(struct wire_message *message, const uint8_t uuid[16]);
void wire_get_uuid(const struct wire_message *message, uint8_t uuid[16]);

/* Makes a pair of connected sockets, closed on exec. Returns 0 or a negative errno. */
int wire_pair(int fds[2]);
/* wire_send and wire_receive try again for some milliseconds while the kernel has no memory; then
 * -ENOMEM or -ENOBUFS. `passed_fd` is -1 for none. wire_send waits for room unless the socket is
 * non-blocking. -EPIPE: the other end has closed. */
int wire_send(int fd, const struct wire_message *message, int passed_fd);
/* *passed_fd is -1 if none came. -EAGAIN; -EPIPE: the other end has closed; -EMFILE: a descriptor
 * was lost because there are too many (the message is valid); -EPROTO: not a message. */
int wire_receive(int fd, struct wire_message *message, int *passed_fd);
/* Sends head.value memories, 1..WIRE_BATCH_MAX (else -EINVAL), and as many descriptors for KEEP. */
int wire_send_batch(int fd, const struct wire_batch *batch, const int *fds);
/* Sends once, for the event loop: fails instead of waiting or trying again. */
int wire_try_batch(int fd, const struct wire_batch *batch, const int *fds);
/* The descriptors of a KEEP belong to the caller if 0 is returned; else there are none. Errors as
 * wire_receive; with -EMFILE the head is valid. */
int wire_receive_batch(int fd, struct wire_batch *batch, int fds[WIRE_BATCH_MAX]);

#endif
