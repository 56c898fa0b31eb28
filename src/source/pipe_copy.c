/* SPDX-License-Identifier: Apache-2.0 */
#include "source/pipe_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* Twice the size of one request: a page that is wanted in part takes a whole slot. */
#define PIPE_BYTES (512 << 10)

void pipe_copy_open(struct pipe_copy *pipe)
{
    if (pipe2(pipe->ends, O_CLOEXEC) < 0)
        pipe->ends[0] = pipe->ends[1] = -1;
    else
        fcntl(pipe->ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* if that fails, it is smaller */
}

void pipe_copy_close(struct pipe_copy *pipe)
{
    for (int i = 0; i < 2; i++) {
        if (pipe->ends[i] >= 0)
            close(pipe->ends[i]);
        pipe->ends[i] = -1;
    }
}

bool pipe_copy_is_open(const struct pipe_copy *pipe)
{
    return pipe->ends[0] >= 0;
}

/* Closes the pipe, with the bytes in it. */
static int pipe_copy_refuse(struct pipe_copy *pipe)
{
    pipe_copy_close(pipe);
    return -EOPNOTSUPP;
}

static ssize_t splice_again(int from_fd, off_t *from, int to_fd, off_t *to, size_t size_bytes)
{
    ssize_t moved;

    do
        moved = splice(from_fd, from, to_fd, to, size_bytes, 0);
    while (moved < 0 && errno == EINTR);
    return moved < 0 ? -errno : moved;
}

int pipe_copy_some(struct pipe_copy *pipe, int from_fd, uint64_t from, int to_fd, uint64_t to,
                   size_t size_bytes, size_t *copied)
{
    off_t in = (off_t)from, out = (off_t)to;
    ssize_t held, moved = 0;

    *copied = 0;
    if (pipe->ends[0] < 0)
        return -EOPNOTSUPP;
    held = splice_again(from_fd, &in, pipe->ends[1], NULL, size_bytes);
    if (held == -EINVAL)
        return pipe_copy_refuse(pipe);
    if (held <= 0)
        return held < 0 ? (int)held : -ENODATA;
    for (ssize_t left = held; left > 0; left -= moved) {
        moved = splice_again(pipe->ends[0], NULL, to_fd, &out, (size_t)left);
        if (moved == -EINVAL && left == held)
            return pipe_copy_refuse(pipe);
        if (moved <= 0) {
            pipe_copy_close(pipe);
            return moved < 0 ? (int)moved : -EIO;
        }
    }
    *copied = (size_t)held;
    return 0;
}
