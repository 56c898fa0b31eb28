/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_memory - memory of other processes, opened by its 64 bytes in contexts of this one
 *
 * For cuda_helper.c alone, on its one thread. The driver is opened when there is something to open.
 * A handle that is open already is not opened again. Which device it is of, the driver says: a
 * context is made where the client thinks that it is, and on the others only if that is wrong.
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
    unsigned regions, leases; /* by whom it is held; cuda_helper.c counts */
    struct cuda_memory *next;
};

struct cuda_devices {
    const struct drv *driver;                       /* NULL: not yet */
    struct drv_context *contexts[CUDA_MAX_DEVICES]; /* NULL: none so far */
    struct cuda_memory *memory;
    bool is_broken; /* a context is lost, and what it had open with it */
};

/* 0; -ENODEV: no driver or no device; -EINVAL: the handle opens on none; -ENOMEM; another errno of
 * the driver's. */
int cuda_memory_open(struct cuda_devices *devices, const uint8_t handle[GMSFS_REGION_HANDLE_BYTES],
                     int64_t device_id, struct cuda_memory **memory);
/* NULL: it is not open. */
struct cuda_memory *cuda_memory_find(const struct cuda_devices *devices,
                                     const uint8_t handle[GMSFS_REGION_HANDLE_BYTES]);
void cuda_memory_close(struct cuda_devices *devices, struct cuda_memory *memory);
/* Bytes to or from it; -ERANGE: they are not all its own. */
int cuda_memory_read(struct cuda_devices *devices, const struct cuda_memory *memory,
                     uint64_t offset, void *bytes, size_t size_bytes);
int cuda_memory_write(struct cuda_devices *devices, const struct cuda_memory *memory,
                      uint64_t offset, const void *bytes, size_t size_bytes);

#endif
