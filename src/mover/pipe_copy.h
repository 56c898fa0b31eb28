/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_copy - bytes of a file in the page cache into another file, copied once
 *
 * For the commands that load. read(2) into a buffer and write(2) out of it touch each byte twice;
 * splice(2) hands the pages of the one file through a pipe to where they are written from. What
 * refuses that (a file system without it, no descriptors left) is no error: then the caller copies.
 * One thread at a time. Knows nothing of stores.
 */
#ifndef GMSFS_MOVER_PIPE_COPY_H
#define GMSFS_MOVER_PIPE_COPY_H

#include <stddef.h>
#include <stdint.h>

struct pipe_copy {
    int ends[2]; /* -1: there is none, or it was refused */
};

/* Never fails. */
void pipe_copy_open(struct pipe_copy *pipe);
void pipe_copy_close(struct pipe_copy *pipe);

/*
 * Copies the next 1..size_bytes (*copied); as a rule all, if they are no more than 256 KiB.
 * -EOPNOTSUPP: not this way, now or later, and nothing was copied; -ENODATA: the file ends before;
 * or what splice(2) said.
 */
int pipe_copy_some(struct pipe_copy *pipe, int from_fd, uint64_t from, int to_fd, uint64_t to,
                   size_t size_bytes, size_t *copied);

#endif
