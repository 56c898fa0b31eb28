/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept - the state of connections in memory that outlives the worker
 *
 * For src/rpc. The keeper makes the memory and only holds it; each connection has a place in it
 * with the received bytes that are not served yet, their senders, and the answer that is being
 * sent. So the next worker reads the same request again, or sends the rest of the same answer.
 *
 * The kernel itself writes how much was read or sent, within the call (msg_len of recvmmsg(2) and
 * sendmmsg(2)): a process is killed either before the call or after it, and there is no moment at
 * which bytes have moved without a count. All other values are changed in a copy, which one store
 * makes current.
 */
#ifndef GMSFS_RPC_KEPT_H
#define GMSFS_RPC_KEPT_H

#include "core/core.h"
#include "rpc/message.h"
#include "service/bounds.h"

#include <stdatomic.h>
#include <sys/socket.h>

#define KEPT_MAX_CONNECTIONS SERVICE_MAX_CONNECTIONS
#define KEPT_MAX_SENDERS     8u /* of bytes read ahead; more senders count as unknown */
/* Bytes of the requests of one connection that are read ahead; a longer frame makes the input
 * grow. */
#define KEPT_AHEAD_BYTES 16384u
/* Bytes read ahead lie before a frame at most once. */
#define KEPT_INPUT_BYTES \
    (2 * KEPT_AHEAD_BYTES + MESSAGE_HEADER_BYTES + MESSAGE_V0_MAX_REQUEST_BYTES)
/* An answer to a request that changes something is shorter; if a client has read a part of a longer
 * one, the rest is lost with the worker. */
#define KEPT_ANSWER_BYTES (80u << 10)

/* The sender of some received bytes, up to the next sender's. */
struct kept_sender {
    uint64_t pid;                /* 0: it cannot be seen */
    struct core_process process; /* pid 0: it cannot be seen, or has gone */
    char comm[CORE_COMM_BYTES];
    int error;        /* the lookup failed */
    size_t end_bytes; /* counted from the frame at the front */
};

struct kept_input {
    uint64_t consumed;              /* frames served and answered so far */
    size_t begin_bytes, size_bytes; /* of the place's input, without `read`'s bytes */
    unsigned sender_count;
    bool brought_descriptor; /* a descriptor came with the bytes, and was closed */
    struct kept_sender senders[KEPT_MAX_SENDERS];
    struct mmsghdr read; /* msg_len: received bytes; `control`: their sender */
    union {              /* room for the sender alone: the kernel closes descriptors */
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
};

struct kept_output {
    uint64_t frame; /* the number of the answered frame, from 1; 0: none was sent */
    uint64_t total_bytes, sent_bytes; /* without the bytes that `send` sent */
    struct mmsghdr send;              /* msg_len: bytes sent */
};

/* A connection's place. */
struct kept {
    _Atomic uint64_t id; /* of its connection; 0: the place is free */
    uint32_t domain, protocol;
    _Atomic uint32_t input_at, output_at; /* index of the current one */
    struct kept_input inputs[2];
    struct kept_output outputs[2];
    /* The bytes of an answer. */
    _Atomic uint64_t answer_frame;
    uint64_t answer_bytes;
    bool has_grown; /* its memory is freed when the place is free again */
    /* Time when the request at the front was first served, so that a new worker does not extend its
     * wait. */
    _Atomic uint64_t asked_frame;
    uint64_t asked_us;
};

struct kept_memory; /* opaque */

/* Makes empty memory, as a descriptor. 0 or a negative errno. */
int kept_make(int *fd);
/* Maps the memory; the descriptor stays the caller's. Content of another version of gmsfs, with
 * which no worker continues (abi.c), is discarded with a message. */
int kept_open(int fd, struct kept_memory **memory);
void kept_close(struct kept_memory *memory);
/* Returns a number for a connection, never used before. */
uint64_t kept_next_id(struct kept_memory *memory);
/* Takes a free place for the connection. NULL: none is free, or no memory for it. */
struct kept *kept_take(struct kept_memory *memory, uint64_t id, uint32_t domain, uint32_t protocol);
void kept_give(struct kept_memory *memory, struct kept *kept);
/* Takes the place of a connection of the last worker. NULL: none with valid content. */
struct kept *kept_find(struct kept_memory *memory, uint64_t id);

uint8_t *kept_get_input_bytes(struct kept *kept);
uint8_t *kept_get_answer_bytes(struct kept *kept);
/* Makes memory for this many bytes of input. 0, -ENOMEM */
int kept_reserve_input(struct kept *kept, size_t bytes);
/* Frees the memory behind `bytes`. */
void kept_shrink_input(struct kept *kept, size_t bytes);

const struct kept_input *kept_get_input(const struct kept *kept);
/* Returns a copy of the current input, with the read bytes counted; kept_set_input makes it
 * current. */
struct kept_input *kept_change_input(struct kept *kept);
void kept_set_input(struct kept *kept);
const struct kept_output *kept_get_output(const struct kept *kept);
struct kept_output *kept_change_output(struct kept *kept);
void kept_set_output(struct kept *kept);
/* Returns the time when this frame was first served; now if it was not yet. */
uint64_t kept_get_asked_us(struct kept *kept, uint64_t frame, uint64_t now_us);
/* Keeps the answer to this frame, if it is not too long. */
void kept_set_answer(struct kept *kept, uint64_t frame, const void *bytes, size_t size);

#endif
