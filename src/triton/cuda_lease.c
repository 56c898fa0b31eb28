/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/cuda_lease.h"

#include "base/scope.h"
#include "triton/cuda_message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static int judge(int error)
{
    if (error == ECONNRESET || error == ENOTCONN)
        return -EPIPE;
    return error == EAGAIN ? -ETIMEDOUT : -error;
}

/* Sends a request with `with` bytes, and receives an answer with `back` bytes. */
static int exchange(int lease, struct cuda_move *move, size_t with, size_t back)
{
    ssize_t got;

    if (send(lease, move, CUDA_MOVE_BYTES(with), MSG_NOSIGNAL) < 0)
        return judge(errno);
    do
        got = recv(lease, move, sizeof *move, 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got == 0 ? -EPIPE : judge(errno);
    if (got < (ssize_t)CUDA_MOVE_BYTES(0))
        return -EPROTO;
    if (move->error)
        return move->error < 0 ? move->error : -EPROTO;
    return (size_t)got == CUDA_MOVE_BYTES(back) ? 0 : -EPROTO;
}

static size_t next_part(size_t left)
{
    return left < CUDA_PART_BYTES ? left : CUDA_PART_BYTES;
}

static void begin(struct cuda_move *move, enum cuda_move_op op, uint64_t offset, size_t size)
{
    memset(move, 0, CUDA_MOVE_BYTES(0));
    move->offset = offset;
    move->op = op;
    move->size_bytes = (uint32_t)size;
}

int cuda_lease_read(int lease, uint64_t offset, void *bytes, size_t size_bytes)
{
    SCOPED_FREE struct cuda_move *move = malloc(sizeof *move);
    uint8_t *to = bytes;
    int error = move ? 0 : -ENOMEM;

    for (size_t done = 0; !error && done < size_bytes;) {
        size_t part = next_part(size_bytes - done);
        begin(move, CUDA_READ, offset + done, part);
        error = exchange(lease, move, 0, part);
        if (!error)
            memcpy(to + done, move->bytes, part);
        done += part;
    }
    return error;
}

int cuda_lease_write(int lease, uint64_t offset, const void *bytes, size_t size_bytes)
{
    SCOPED_FREE struct cuda_move *move = malloc(sizeof *move);
    const uint8_t *from = bytes;
    int error = move ? 0 : -ENOMEM;

    for (size_t done = 0; !error && done < size_bytes;) {
        size_t part = next_part(size_bytes - done);
        begin(move, CUDA_WRITE, offset + done, part);
        memcpy(move->bytes, from + done, part);
        error = exchange(lease, move, part, 0);
        done += part;
    }
    return error;
}
