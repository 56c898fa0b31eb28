/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_watch - what NVML says of a GPU, asked for on a thread of its own
 *
 * NVML's calls may hang behind the kernel module's lock for as long as somebody else's large
 * operation takes, so nobody but the thread here makes them. It sleeps until it is asked.
 *
 * Threads: cuda_watch_measure from any thread; it waits CUDA_WATCH_PATIENCE_MS at most.
 */
#ifndef GMSFS_VMM_CUDA_WATCH_H
#define GMSFS_VMM_CUDA_WATCH_H

#include <stddef.h>
#include <stdint.h>

#define CUDA_WATCH_PATIENCE_MS 10

struct cuda_watch;

/* -ENODEV: no NVML, or it does not know the GPU; `error` says why, and all else works. */
int cuda_watch_new(const uint8_t uuid[16], struct cuda_watch **watch, char *error,
                   size_t error_bytes);
/* Bytes of the device that nobody holds: now, or as last known where NVML lets one wait.
 * -EAGAIN: never known yet. */
int cuda_watch_measure(struct cuda_watch *watch, uint64_t *free_bytes);
void cuda_watch_free(struct cuda_watch *watch);

#endif
