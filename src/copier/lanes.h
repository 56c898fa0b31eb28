/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes - threads that move bytes between windows and files, some for each direction
 *
 * For copier.c. One call of the driver copies at the link's full speed, but only from and to pinned
 * memory. If the file's own memory is pinned (files.h), a lane only orders the copies, a few parts
 * ahead. Otherwise filling or emptying pinned memory takes several threads, so each lane has a
 * small ring of buffers of its own: while it reads one part from the file, or writes it there, the
 * driver copies others. A ring stays in the processor's cache. Each direction has lanes of its own:
 * moves in both directions run at the same time.
 *
 * The lanes of a direction are started, with their memory, at its first move, and stay until
 * lanes_free.
 */
#ifndef GMSFS_COPIER_LANES_H
#define GMSFS_COPIER_LANES_H

#include "copier/files.h"

#define LANES_MOST         16u /* of each direction */
#define LANES_BUFFERS      3u
#define LANES_BUFFER_BYTES ((size_t)2 << 20)
/* Parts of a file's own memory: only as many in progress as keep the link busy, because other moves
 * wait behind them. */
#define LANES_DIRECT_BYTES ((size_t)16 << 20)
#define LANES_DIRECT_PARTS 4u /* of each direction */

struct lanes;

/* Called by a lane's thread when the move is over: 0 or a negative errno, explained by `why`. */
typedef void (*lanes_finish)(void *context, const struct copier_request *request, int error,
                             const char *why);

/* NULL: out of memory. `gpu` and `files` must live longer. */
struct lanes *lanes_new(const struct copier_gpu *driver, void *gpu, struct files *files,
                        lanes_finish finish, void *context);
/* Adds a MOVE_OUT or MOVE_IN, checked; takes `fd` over. False: the entry has a move already, and
 * nothing is done. Any thread. */
bool lanes_add(struct lanes *lanes, const struct copier_request *request, int fd);
/* Finishes all begun parts first. */
void lanes_free(struct lanes *lanes);

#endif
