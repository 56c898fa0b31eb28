/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_memory - memory of other processes, opened by its 64 bytes in contexts of this process
 *
 * For cuda_helper.c alone, on its one thread. The first open loads the driver. A handle that is
 * open already is not opened again. The driver says on which device the memory is: the first
 * context made is on the device that the client named, contexts on the others only if the client
 * was wrong.
 */
#ifndef GMSFS_TRITON_CUDA_MEMORY_H
#define GMSFS_TRITON_CUDA_MEMORY_H

#include "cuda/driver.h"
#include "gmsfs_abi.h"

#include <stdbool.h>

#define CUDA_MAX_DEVICES 64

struct cuda_memory {
    uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    drv_device device;
    drv_pointer address;
    uint64_t size_bytes;
    unsigned regions, leases; /* counts of users of the memory, by cuda_helper.c */
    struct cuda_memory *next;
};

struct cuda_devices {
    const struct drv *driver;                       /* NULL: not loaded yet */
    struct drv_context *contexts[CUDA_MAX_DEVICES]; /* NULL: none so far */
    struct cuda_memory *memory;
    bool is_broken; /* a context is lost, and all memory that it had open */
};

/* 0; -ENODEV: no driver or no device; -EINVAL: no device opens the handle; -ENOMEM; or another
 * errno for the driver's error. */
int cuda_memory_open(struct cuda_devices *devices, const uint8_t handle[GMSFS_REGION_HANDLE_BYTES],
                     int64_t device_id, struct cuda_memory **memory);
/* Returns NULL if the handle is not open. */
struct cuda_memory *cuda_memory_find(const struct cuda_devices *devices,
                                     const uint8_t handle[GMSFS_REGION_HANDLE_BYTES]);
void cuda_memory_close(struct cuda_devices *devices, struct cuda_memory *memory);
/* Copies bytes from or to the memory; -ERANGE: some of them lie outside of it. */
int cuda_memory_read(struct cuda_devices *devices, const struct cuda_memory *memory,
                     uint64_t offset, void *bytes, size_t size_bytes);
int cuda_memory_write(struct cuda_devices *devices, const struct cuda_memory *memory,
                      uint64_t offset, const void *bytes, size_t size_bytes);

#endif
