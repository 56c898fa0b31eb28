/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pipe_copy - copies bytes of a file in the page cache into another file, with one copy
 *
 * For source_files.c; the receiver of the bytes owns the pipe (source.h). read(2) into a buffer and
 * write(2) from it touch each byte twice; splice(2) passes the pages of the first file through a
 * pipe to the write. A refusal (a file system without splice, no descriptors left) is no error: the
 * caller then copies. For one thread at a time.
 */
#ifndef GMSFS_SOURCE_PIPE_COPY_H
#define GMSFS_SOURCE_PIPE_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pipe_copy {
    int ends[2]; /* -1: none, or splice was refused */
};

/* Never fails. */
void pipe_copy_open(struct pipe_copy *pipe);
/* A pipe that is not open is fine. */
void pipe_copy_close(struct pipe_copy *pipe);
bool pipe_copy_is_open(const struct pipe_copy *pipe);

/*
 * Copies the next 1..size_bytes (*copied); usually all, up to 256 KiB. -EOPNOTSUPP: splice is
 * refused now and later, and nothing was copied; -ENODATA: the file is shorter; or the error of
 * splice(2).
 */
int pipe_copy_some(struct pipe_copy *pipe, int from_fd, uint64_t from, int to_fd, uint64_t to,
                   size_t size_bytes, size_t *copied);

#endif
