/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_message - what a process that opens CUDA memory is asked, by the opener and by leases
 *
 * The opener speaks with it over a SOCK_SEQPACKET pair of their own, in messages of opener_send. A
 * lease is one end of another such pair: whoever has it reads and writes the bytes of one region's
 * memory, and the memory stays open as long as somebody does.
 */
#ifndef GMSFS_TRITON_CUDA_MESSAGE_H
#define GMSFS_TRITON_CUDA_MESSAGE_H

#include "gmsfs_abi.h"

#include <stddef.h>
#include <stdint.h>

#define CUDA_HELPER_FD  3      /* its end */
#define CUDA_PART_BYTES 65536u /* of a lease's message; a socket has room for one at any time */
#define CUDA_MAX_LEASES 1024u

enum cuda_op {
    CUDA_OPEN = 1, /* for a region; each is to be closed */
    CUDA_CLOSE,    /* no answer */
    CUDA_LEASE,    /* no answer; with a socket, on which it may be told that nothing opens */
};

struct cuda_request {
    uint64_t id; /* in the answer, too; 0: none is wanted */
    uint32_t op;
    uint32_t reserved;
    int64_t device_id; /* which device the client thinks it is: looked at first */
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
};

/* error: -EINVAL: the handle does not open; -ENODEV: there is no device; or another one */
struct cuda_reply {
    uint64_t id;
    int32_t error;
    uint32_t reserved;
    uint64_t size_bytes; /* as it was allocated */
};

enum cuda_move_op {
    CUDA_READ = 1,
    CUDA_WRITE,
};

/* A lease's request, and its answer: `bytes` where there are any. */
struct cuda_move {
    uint64_t offset;
    uint32_t op;
    int32_t error; /* of an answer; -ESTALE: the memory does not open any more */
    uint32_t size_bytes, reserved;
    uint8_t bytes[CUDA_PART_BYTES];
};

#define CUDA_MOVE_BYTES(count) (offsetof(struct cuda_move, bytes) + (count))

#endif
