/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes - threads that move bytes between windows and files, some for each direction
 *
 * For copier.c. One call of the driver copies at the link's full speed, but only from and to pinned
 * memory. Where the file's own memory is pinned (files.h), a lane only asks for it, a few parts
 * ahead. Else filling or emptying pinned memory takes several threads, so each lane has a small
 * ring of buffers of its own: while it reads one part from the file, or writes it there, the driver
 * copies others. A ring stays in the processor's cache. The lanes of one direction do not use those
 * of the other: moves both ways go on at the same time.
 *
 * The lanes of a direction come, with their memory, with the first move there, and stay until
 * lanes_free.
 */
#ifndef GMSFS_COPIER_LANES_H
#define GMSFS_COPIER_LANES_H

#include "copier/files.h"

#define LANES_MOST         16u /* of each direction */
#define LANES_BUFFERS      3u
#define LANES_BUFFER_BYTES ((size_t)2 << 20)
/* Of a file's own memory: no more on their way than keep the link busy, for others wait behind. */
#define LANES_DIRECT_BYTES ((size_t)16 << 20)
#define LANES_DIRECT_PARTS 4u /* of each direction */

struct lanes;

/* The move is over: 0 or a negative errno, of which `why` tells the cause. By a lane's thread. */
typedef void (*lanes_finish)(void *context, const struct copier_request *request, int error,
                             const char *why);

/* NULL: out of memory. `gpu` and `files` live longer. */
struct lanes *lanes_new(const struct copier_gpu *driver, void *gpu, struct files *files,
                        lanes_finish finish, void *context);
/* A MOVE_OUT or MOVE_IN, checked; `fd` is the lanes' from then on. False: the entry has one
 * already, and nothing is done. Any thread. */
bool lanes_add(struct lanes *lanes, const struct copier_request *request, int fd);
/* What was begun is finished first. */
void lanes_free(struct lanes *lanes);

#endif
