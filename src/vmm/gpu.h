/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - memory of a GPU: all functions of a backend that need no driver
 *
 * A piece is a descriptor that the driver exported, once. A spool is host memory, made by the
 * host's backend, until it is sealed. This process has no context, so another one moves the bytes
 * (copier_client.h). Facts that the driver does not report come from a management library
 * (monitor.h).
 *
 * For backends of GPUs: they find and describe the device, call gpu_open at the end of their own
 * opening, and are GPU_BACKEND(open, reopen, is_asleep, wake). The driver's functions are a struct
 * gpu_driver. Threads are those of vmm.h.
 */
#ifndef GMSFS_VMM_GPU_H
#define GMSFS_VMM_GPU_H

#include "vmm/monitor.h"
#include "vmm/vmm_backend.h"

/* The driver's functions. `context` is its own. */
struct gpu_driver {
    const char *name; /* the backend's: "cuda", for messages and the copier */
    const char *tool; /* program that shows the machine's GPUs and their load: "nvidia-smi" */
    /* Makes memory that is cleared for its next owner, as its only descriptor, closed on exec.
     * Errors as vmm_create; -ENODEV counts when returned twice. */
    int (*create)(void *context, uint64_t bytes, int *fd);
    /* The last call. */
    void (*close)(void *context);
    const struct monitor_source *source; /* NULL: none; the driver alone then reports health */
};

/* Opens the described `device`; its state becomes gpu.c's. Takes `context` over, except on failure.
 * `is_late`: does not wait for the management library. */
int gpu_open(const char *root, const struct vmm_options *options, const struct gpu_driver *driver,
             void *context, bool is_late, struct vmm_device *device, char *why, size_t why_bytes);

void gpu_close(struct vmm_device *device);
int gpu_adopt(struct vmm_device *device, struct vmm_piece *piece);
int gpu_create(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
               struct vmm_piece *piece);
int gpu_grow(struct vmm_device *device, const struct vmm_piece *piece, uint64_t aligned_bytes);
int gpu_settle(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
               uint64_t aligned_bytes);
int gpu_seal(struct vmm_device *device, struct vmm_piece *piece, uint64_t size_bytes,
             uint64_t aligned_bytes);
int gpu_read(struct vmm_device *device, const struct vmm_piece *piece, void *to, size_t bytes,
             uint64_t offset);
int gpu_write(struct vmm_device *device, struct vmm_piece *piece, const void *from, size_t bytes,
              uint64_t offset);
int gpu_move(struct vmm_device *device, const struct vmm_piece *piece,
             const struct vmm_piece *other, bool out, uint64_t offset, uint64_t bytes);
void gpu_forget(struct vmm_device *device, const struct vmm_piece *other);
int gpu_lend(struct vmm_device *device, const struct vmm_piece *piece, const struct vmm_span *span,
             struct vmm_loan *loan);
int gpu_lend_now(struct vmm_device *device, const struct vmm_piece *piece,
                 const struct vmm_span *span, struct vmm_loan *loan);
void gpu_end_loan(struct vmm_device *device, struct vmm_loan *loan);
void gpu_end_reader(struct vmm_device *device, uint64_t reader);
void gpu_rest(struct vmm_device *device);
void gpu_release(struct vmm_device *device, const struct vmm_piece *piece);
int gpu_measure(struct vmm_device *device);

/* The table of a backend that opens its device by these functions. */
#define GPU_BACKEND(open_device, reopen_device, asleep, wake_up)                                  \
    {                                                                                             \
        .open = (open_device), .reopen = (reopen_device), .close = gpu_close,                     \
        .create = gpu_create, .grow = gpu_grow, .adopt = gpu_adopt, .settle = gpu_settle,         \
        .seal = gpu_seal, .read = gpu_read, .write = gpu_write, .move = gpu_move,                 \
        .forget = gpu_forget, .lend = gpu_lend, .lend_now = gpu_lend_now,                         \
        .end_loan = gpu_end_loan, .end_reader = gpu_end_reader, .rest = gpu_rest,                 \
        .release = gpu_release, .measure = gpu_measure, .is_asleep = (asleep), .wake = (wake_up), \
    }

#endif
