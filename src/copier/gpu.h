/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - what the copier needs of a driver: a context, pieces that it maps, and copying
 *
 * One table of functions for each driver (cuda.c), used by copier.c. open and close by the first
 * thread, while there is no other; the rest by any thread that has entered. What changes a window
 * and what uses it must not come at the same time; the worker sees to it. 0 or a negative errno;
 * `why` (COPIER_WHY_BYTES) then tells the cause.
 */
#ifndef GMSFS_COPIER_GPU_H
#define GMSFS_COPIER_GPU_H

#include "copier/protocol.h"

struct copier_gpu {
    /* Makes the context, and pins `ring` if the driver can (else copies are slower). */
    int (*open)(const uint8_t uuid[16], void *ring, size_t ring_bytes, void **gpu, char *why);
    void (*close)(void *gpu);

    /* `stream` is the thread's own, for its copies. It runs near the device from then on. */
    int (*enter)(void *gpu, void **stream, char *why);
    void (*leave)(void *gpu, void *stream);

    /* The descriptor stays the caller's. */
    int (*map)(void *gpu, unsigned window, int fd, uint64_t bytes, char *why);
    int (*unmap)(void *gpu, unsigned window, char *why);
    /* To its end: `block` may be used for something else afterwards. -EINVAL: not inside the
     * piece. */
    int (*copy)(void *gpu, void *stream, const struct copier_request *request, void *block,
                char *why);

    /* For lanes.c: copies that go on while the thread does something else. Memory that could not be
     * pinned does as well, but is slower. */
    int (*pin)(void *gpu, void *at, size_t bytes);
    void (*unpin)(void *gpu, void *at);
    /* What tells that a copy is done. */
    int (*make_mark)(void *gpu, void **mark, char *why);
    void (*drop_mark)(void *gpu, void *mark);
    /* `part` of a MOVE, from or to `buffer`, and the mark behind it. -EINVAL as above. */
    int (*begin)(void *gpu, void *stream, const struct copier_request *part, void *buffer,
                 void *mark, char *why);
    int (*await)(void *gpu, void *mark, char *why);
};

extern const struct copier_gpu copier_gpu_cuda;

#endif
