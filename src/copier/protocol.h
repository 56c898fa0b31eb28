/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol - the messages between worker and copier
 *
 * The worker (src/vmm/copier_*.c) sends requests over a SOCK_SEQPACKET socket, one a message, with
 * the descriptor of the memory for a MAP, and of a file for a MOVE. The copier sends HELLO over it
 * once, when it is ready or knows why not, and nothing else: each request has an entry in memory
 * that both map, for its result and, for the bytes of a GET or a PUT, a block of the ring. The
 * bytes of a MOVE go through buffers of the copier's own (lanes.h). An entry has one request at a
 * time; requests in different entries may be carried out in any order and at the same time.
 *
 * Both sides check the other's messages before they use them: the functions here do all the
 * decoding, and are pure. Units: bytes; errors: 0 or a negative errno.
 */
#ifndef GMSFS_COPIER_PROTOCOL_H
#define GMSFS_COPIER_PROTOCOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Descriptors that the copier starts with, beside stdin, stdout and stderr. */
#define COPIER_SOCKET_FD 3
#define COPIER_RING_FD   4

#define COPIER_MAGIC        0x676d6304u /* changes with any change of this protocol */
#define COPIER_BLOCK_BYTES  (UINT64_C(1) << 20)
#define COPIER_BLOCKS       32u
#define COPIER_CONTROLS     8u  /* entries of requests without a block */
#define COPIER_MOVES        16u /* entries of moves, behind the controls */
#define COPIER_FIRST_MOVE   (COPIER_BLOCKS + COPIER_CONTROLS)
#define COPIER_ENTRIES      (COPIER_FIRST_MOVE + COPIER_MOVES)
#define COPIER_WINDOWS      64u /* mapped pieces */
#define COPIER_HEADER_BYTES (UINT64_C(64) << 10)
#define COPIER_SHARED_BYTES (COPIER_HEADER_BYTES + COPIER_BLOCKS * COPIER_BLOCK_BYTES)
#define COPIER_MOVE_BYTES   (UINT64_C(64) << 20) /* of one request at most */
#define COPIER_WHY_BYTES    180

enum copier_act {
    COPIER_MAP = 1, /* maps the descriptor's piece, `bytes` long, into an empty window */
    COPIER_UNMAP,   /* empties the window: nothing of the piece stays */
    COPIER_GET,     /* copies `bytes` at `offset` of the window's piece into the entry's block */
    COPIER_PUT,     /* copies the other way */
    /* copies `bytes` at `offset` of the window's piece to the same place of the descriptor's
     * file */
    COPIER_MOVE_OUT,
    COPIER_MOVE_IN, /* copies the other way */
    COPIER_FORGET,  /* drops the file of this number: nothing of it stays */
};

struct copier_request {
    uint32_t act;
    uint32_t entry;
    uint32_t sequence; /* its number, from COPIER_FIRST_SEQUENCE on; becomes `done` */
    uint32_t window;
    uint64_t offset, bytes;
    /* MOVE and FORGET: the file's number, never reused, under which the copier keeps it mapped
     * until it is forgotten. 0: it is not kept. */
    uint64_t file;
};

struct copier_hello {
    uint32_t magic;
    int32_t error; /* 0: it is ready */
    char why[COPIER_WHY_BYTES];
};

/* Special values of `done`. */
#define COPIER_PENDING        1u
#define COPIER_DEAD           2u /* set by the worker when its copier is gone */
#define COPIER_FIRST_SEQUENCE 16u

struct copier_result {
    _Atomic uint32_t done; /* a futex; the rest is valid once it is the request's sequence */
    int32_t error;
    char why[COPIER_WHY_BYTES + 4];
};

/* The beginning of the shared memory; the blocks follow at COPIER_HEADER_BYTES. */
struct copier_shared {
    uint32_t magic;
    uint32_t reserved;
    uint8_t uuid[16]; /* of the device */
    char driver[16];  /* name of the backend */
    struct copier_result results[COPIER_ENTRIES];
};

_Static_assert(sizeof(struct copier_request) == 40, "the request is as both sides know it");
_Static_assert(sizeof(struct copier_hello) == 188, "the hello is as both sides know it");
_Static_assert(sizeof(struct copier_result) == 192, "no two results share a cache line");
_Static_assert(sizeof(struct copier_shared) <= COPIER_HEADER_BYTES, "the header fits");
_Static_assert(COPIER_BLOCK_BYTES % 4096 == 0, "blocks are whole pages");

/* Returns true if the request's bytes are in a window. */
static inline bool copier_uses_window(uint32_t act)
{
    return act >= COPIER_GET && act <= COPIER_MOVE_IN;
}

/* For the copier: checks a request by itself. -EINVAL */
int copier_check_request(const void *message, size_t bytes, bool has_descriptor,
                         struct copier_request *request);
/* For the worker: 0, with the copier's own error in hello->error and its text printable;
 * -EPROTO. */
int copier_check_hello(const void *message, size_t bytes, struct copier_hello *hello);
/* For the worker. -EAGAIN: not done; -EPIPE: the copier is gone, or the result is invalid; else the
 * result of the request, its text (COPIER_WHY_BYTES, may be NULL) printable. */
int copier_check_result(const struct copier_result *result, uint32_t sequence, char *why);
/* For the copier: `why` may be NULL. The caller wakes the waiting thread. */
void copier_put_result(struct copier_result *result, uint32_t sequence, int error, const char *why);

#endif
