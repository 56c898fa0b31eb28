/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver - the CUDA driver library, opened at run time behind one table of functions
 *
 * For the daemon's memory (src/vmm) and for libgmsfs: no program links against libcuda. A process
 * that never asks for a GPU never opens it. Results of the driver become errnos here, and texts
 * with the call and the driver's own name for the error.
 *
 * Threads: all functions from any thread. The driver does not survive fork(2): a child that uses it
 * must be of a process that had not opened it before (the daemon's keeper never does).
 */
#ifndef GMSFS_CUDA_DRIVER_H
#define GMSFS_CUDA_DRIVER_H

#include "cuda/driver_abi.h"

#include <stdint.h>

/* A member per function, under the driver's name for it. */
struct drv {
#define DRV_FUNCTION(symbol, parameters) enum drv_result(*symbol) parameters;
#include "cuda/driver_functions.h"
#undef DRV_FUNCTION
};

/* Opens libcuda.so.1 and initialises it (cuInit), once a process; later calls return the same
 * table, which lives as long as the process. It creates no context. -ENODEV: no driver or no
 * device; -ELIBBAD: a driver too old, or a stub; else the errno of cuInit's result. `why` (may be
 * NULL) then explains the cause and the remedy, in one line. A failure is not remembered: the next
 * call tries again. */
int drv_open(const struct drv **driver, char *why, size_t why_bytes);

/* Must be called in the child, after fork(2). If the parent had called drv_open, or was in it,
 * drv_open returns -ECHILD in the child: the driver does not work there, and its locks stay
 * locked. */
void drv_fork_child(void);

/* Finds the device with this uuid: ordinals differ from process to process (CUDA_VISIBLE_DEVICES),
 * uuids do not. -ENODEV: this process does not see it; `error` as in drv_open. */
int drv_find(const struct drv *driver, const uint8_t uuid[16], drv_device *device, char *error,
             size_t error_bytes);

/* 0 or a negative errno: -ENOMEM, -ENODEV (gone), -EIO (the device's memory), -EINVAL,
 * -EOPNOTSUPP, -EPERM, -EBUSY (a stream is capturing), -EAGAIN (not ready); -EIO for the rest. */
int drv_errno(enum drv_result result);

/* The driver's name, "CUDA_ERROR_OUT_OF_MEMORY"; never NULL. */
const char *drv_error_name(const struct drv *driver, enum drv_result result);

/* Writes "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (out of memory)" into `error`; returns
 * drv_errno. */
int drv_explain(const struct drv *driver, const char *call, enum drv_result result, char *error,
                size_t error_bytes);

#endif
