/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_message - messages of the opener and of leases to a CUDA helper, and the answers
 *
 * The opener talks to a helper over a SOCK_SEQPACKET pair, in messages of opener_send. A lease is
 * one end of another such pair: its holder reads and writes the bytes of one region's memory, and
 * the memory stays open until every copy of the lease is closed.
 */
#ifndef GMSFS_TRITON_CUDA_MESSAGE_H
#define GMSFS_TRITON_CUDA_MESSAGE_H

#include "gmsfs_abi.h"

#include <stddef.h>
#include <stdint.h>

#define CUDA_HELPER_FD  3      /* the helper's end of the pair */
#define CUDA_PART_BYTES 65536u /* of a lease's message; a socket always has room for one */
#define CUDA_MAX_LEASES 1024u

enum cuda_op {
    CUDA_OPEN = 1, /* for a region; each is closed by one CUDA_CLOSE */
    CUDA_CLOSE,    /* no answer */
    CUDA_LEASE,    /* no answer; passes a socket, on which each request fails if the memory does not
                      open */
};

struct cuda_request {
    uint64_t id; /* repeated in the answer; 0: no answer wanted */
    uint32_t op;
    uint32_t reserved;
    int64_t device_id; /* the device that the client named, tried first */
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
};

/* error: -EINVAL: the handle does not open; -ENODEV: there is no device; or another errno */
struct cuda_reply {
    uint64_t id;
    int32_t error;
    uint32_t reserved;
    uint64_t size_bytes; /* of the whole allocation */
};

enum cuda_move_op {
    CUDA_READ = 1,
    CUDA_WRITE,
};

/* A lease's request, and its answer; `bytes` only for data read or written. */
struct cuda_move {
    uint64_t offset;
    uint32_t op;
    int32_t error; /* in an answer; -ESTALE: the memory no longer opens */
    uint32_t size_bytes, reserved;
    uint8_t bytes[CUDA_PART_BYTES];
};

#define CUDA_MOVE_BYTES(count) (offsetof(struct cuda_move, bytes) + (count))

#endif
