/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - the copier's context, the pieces that it has mapped, and copying
 *
 * For copier.c. gpu_open and gpu_close by the first thread, while there is no other; the rest by
 * any thread that has entered. What changes a window and what uses it must not come at the same
 * time; the worker sees to it. Errors: as drv_errno says; `why` (COPIER_WHY_BYTES) then tells the
 * cause.
 */
#ifndef GMSFS_COPIER_GPU_H
#define GMSFS_COPIER_GPU_H

#include "copier/protocol.h"

struct drv;
struct drv_stream;
struct gpu;

/* Makes the context, and pins `ring` if the driver can (else copies are slower). */
int gpu_open(const uint8_t uuid[16], void *ring, size_t ring_bytes, struct gpu **gpu, char *why);
void gpu_close(struct gpu *gpu);

int gpu_enter(struct gpu *gpu, struct drv_stream **stream, char *why);
void gpu_leave(struct gpu *gpu, struct drv_stream *stream);

/* The descriptor stays the caller's. */
int gpu_map(struct gpu *gpu, unsigned window, int fd, uint64_t bytes, char *why);
int gpu_unmap(struct gpu *gpu, unsigned window, char *why);
/* To its end: `block` may be used for something else afterwards. -EINVAL: not inside the piece. */
int gpu_copy(struct gpu *gpu, struct drv_stream *stream, const struct copier_request *request,
             void *block, char *why);

#endif
