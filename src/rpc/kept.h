/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept - what connections have in memory that outlives the worker
 *
 * For src/rpc. The keeper makes the memory and only holds it; each connection has a place in it
 * with the bytes that have come and are not served yet, who sent them, and the answer that is on
 * its way. So the next worker reads the same request again, or sends the rest of the same answer.
 *
 * How much was read or sent is written by the kernel itself, within the call (msg_len of
 * recvmmsg(2) and sendmmsg(2)): a process that is killed is so before the call or after it, and
 * there is no moment at which bytes are gone and nobody knows how many. All else is changed in a
 * copy, which one store makes the present one.
 */
#ifndef GMSFS_RPC_KEPT_H
#define GMSFS_RPC_KEPT_H

#include "core/core.h"
#include "rpc/message.h"
#include "service/bounds.h"

#include <stdatomic.h>
#include <sys/socket.h>

#define KEPT_MAX_CONNECTIONS SERVICE_MAX_CONNECTIONS
#define KEPT_MAX_SENDERS     8u /* of what is read ahead; of more nobody is known */
/* Of the requests of one connection that are read ahead; a longer frame makes it grow. */
#define KEPT_AHEAD_BYTES 16384u
/* What is read ahead lies before a frame at most once. */
#define KEPT_INPUT_BYTES \
    (2 * KEPT_AHEAD_BYTES + MESSAGE_HEADER_BYTES + MESSAGE_V0_MAX_REQUEST_BYTES)
/* An answer to whatever changes something is shorter; of a longer one that the client has read in
 * part the rest is lost with the worker. */
#define KEPT_ANSWER_BYTES (80u << 10)

/* Of some bytes of what came, up to the next sender's. */
struct kept_sender {
    uint64_t pid;                /* 0: it cannot be seen */
    struct core_process process; /* pid 0: it cannot be seen, or was gone */
    char comm[CORE_COMM_BYTES];
    int error;        /* it could not be looked up */
    size_t end_bytes; /* counted from the frame at the front */
};

struct kept_input {
    uint64_t consumed;              /* frames so far: they are answered */
    size_t begin_bytes, size_bytes; /* of the place's input; without what `read` has brought */
    unsigned sender_count;
    bool brought_descriptor; /* one came with what was read, and was closed */
    struct kept_sender senders[KEPT_MAX_SENDERS];
    struct mmsghdr read; /* msg_len: of bytes that came behind; and `control` says from whom */
    union {              /* room for who sends alone: the kernel closes descriptors */
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
    } control;
};

struct kept_output {
    uint64_t frame;                   /* whose answer it is: the first is 1; 0: none was sent */
    uint64_t total_bytes, sent_bytes; /* without what `send` took */
    struct mmsghdr send;              /* msg_len: of bytes that left */
};

/* A place. */
struct kept {
    _Atomic uint64_t id; /* of its connection; 0: the place is free */
    uint32_t domain, protocol;
    _Atomic uint32_t input_at, output_at; /* which of two is the present one */
    struct kept_input inputs[2];
    struct kept_output outputs[2];
    /* The bytes of an answer. */
    _Atomic uint64_t answer_frame;
    uint64_t answer_bytes;
    bool has_grown; /* its memory is given back when the place is free again */
    /* When the request at the front was first served: it waits no longer than it would have. */
    _Atomic uint64_t asked_frame;
    uint64_t asked_us;
};

struct kept_memory; /* opaque */

/* An empty one, as a descriptor. 0 or a negative errno */
int kept_make(int *fd);
/* The descriptor stays the caller's. What another version of gmsfs
 * would have left there, which nobody goes on with (abi.c), is forgotten, and told. */
int kept_open(int fd, struct kept_memory **memory);
void kept_close(struct kept_memory *memory);
/* A number for a connection, which none had before. */
uint64_t kept_next_id(struct kept_memory *memory);
/* A free place for it; NULL: there is none, or no memory for it. */
struct kept *kept_take(struct kept_memory *memory, uint64_t id, uint32_t domain, uint32_t protocol);
void kept_give(struct kept_memory *memory, struct kept *kept);
/* Of a connection of the last worker: it is taken then. NULL: there is none that makes sense. */
struct kept *kept_find(struct kept_memory *memory, uint64_t id);

uint8_t *kept_get_input_bytes(struct kept *kept);
uint8_t *kept_get_answer_bytes(struct kept *kept);
/* There is memory for so many bytes of input. 0, -ENOMEM */
int kept_reserve_input(struct kept *kept, size_t bytes);
/* Gives back what is beyond. */
void kept_shrink_input(struct kept *kept, size_t bytes);

const struct kept_input *kept_get_input(const struct kept *kept);
/* A copy of the present one, with what was read counted; kept_set_input makes it the present one.
 */
struct kept_input *kept_change_input(struct kept *kept);
void kept_set_input(struct kept *kept);
const struct kept_output *kept_get_output(const struct kept *kept);
struct kept_output *kept_change_output(struct kept *kept);
void kept_set_output(struct kept *kept);
/* When this frame was served first, which is now if it was not yet. */
uint64_t kept_get_asked_us(struct kept *kept, uint64_t frame, uint64_t now_us);
/* Keeps the answer to this frame, if it is not too long. */
void kept_set_answer(struct kept *kept, uint64_t frame, const void *bytes, size_t size);

#endif
