/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - the copier's use of a driver: a context, mapped pieces, and copying
 *
 * One table of functions for each driver (cuda.c), used by copier.c. open and close by the first
 * thread, while there is no other; the rest by any thread that has entered. Calls that change a
 * window and calls that use it must not overlap; the worker ensures that. 0 or a negative errno;
 * `why` (COPIER_WHY_BYTES) then explains the cause.
 */
#ifndef GMSFS_COPIER_GPU_H
#define GMSFS_COPIER_GPU_H

#include "copier/protocol.h"

struct copier_gpu {
    /* Makes the context, and pins `ring` if the driver can (else copies are slower). */
    int (*open)(const uint8_t uuid[16], void *ring, size_t ring_bytes, void **gpu, char *why);
    void (*close)(void *gpu);

    /* Begins a thread. `stream` is its own, for its copies. The thread runs near the device from
     * then on. */
    int (*enter)(void *gpu, void **stream, char *why);
    void (*leave)(void *gpu, void *stream);

    /* Maps a piece; the descriptor stays the caller's. */
    int (*map)(void *gpu, unsigned window, int fd, uint64_t bytes, char *why);
    int (*unmap)(void *gpu, unsigned window, char *why);
    /* Copies and waits: `block` may be reused afterwards. -EINVAL: not inside the piece. */
    int (*copy)(void *gpu, void *stream, const struct copier_request *request, void *block,
                char *why);

    /* For lanes.c: copies that run while the thread does other work. Memory that could not be
     * pinned works as well, but is slower. */
    int (*pin)(void *gpu, void *at, size_t bytes);
    void (*unpin)(void *gpu, void *at);
    /* A mark reports that a copy is done. */
    int (*make_mark)(void *gpu, void **mark, char *why);
    void (*drop_mark)(void *gpu, void *mark);
    /* Begins the copy of a `part` of a MOVE, from or to `buffer`, and sets the mark behind it.
     * -EINVAL as above. */
    int (*begin)(void *gpu, void *stream, const struct copier_request *part, void *buffer,
                 void *mark, char *why);
    int (*await)(void *gpu, void *mark, char *why);
};

extern const struct copier_gpu copier_gpu_cuda;

#endif
