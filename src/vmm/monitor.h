/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_watch - what NVML says of a GPU, asked for on a thread of its own
 *
 * NVML's calls may hang behind the kernel module's lock for as long as somebody else's large
 * operation takes, so nobody but the thread here makes them, opening NVML included. It sleeps until
 * it is asked. Events are waited for by another one (nvml_events.h).
 *
 * Threads: cuda_watch_measure from any thread; it waits CUDA_WATCH_PATIENCE_MS at most, and not at
 * all while NVML still owes an answer that somebody gave up waiting for. cuda_watch_look, for
 * helper threads, waits CUDA_WATCH_LOOK_MS.
 */
#ifndef GMSFS_VMM_CUDA_WATCH_H
#define GMSFS_VMM_CUDA_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CUDA_WATCH_PATIENCE_MS 10
#define CUDA_WATCH_LOOK_MS     1000
#define CUDA_WATCH_OPEN_MS     3000

struct health;
struct cuda_watch;

/* From then on bad news go to `health`. An NVML that has not answered after CUDA_WATCH_OPEN_MS is
 * said in the log, and is opened in the background. -ENODEV: there is none, or it does not know the
 * GPU; `error` says why, and all else works. */
int cuda_watch_new(const uint8_t uuid[16], struct health *health, struct cuda_watch **watch,
                   char *error, size_t error_bytes);
/* Bytes of the device that nobody holds: now, or as last known where NVML lets one wait.
 * -EAGAIN: never known yet. */
int cuda_watch_measure(struct cuda_watch *watch, uint64_t *free_bytes);
/* Does NVML answer, and well? What it says is no older than CUDA_WATCH_LOOK_MS. */
enum cuda_watch_word {
    CUDA_WATCH_SILENT, /* it hangs, or fails in another way */
    CUDA_WATCH_THERE,
    CUDA_WATCH_GONE, /* the GPU is lost, it says */
} cuda_watch_look(struct cuda_watch *watch);
void cuda_watch_free(struct cuda_watch *watch);

#endif
