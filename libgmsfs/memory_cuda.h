/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_cuda - shared by the parts of GPU memory through the CUDA driver; included by them alone
 *
 *   memory_cuda.c          addresses, mappings, rights, copies, turns: the table of functions
 *   memory_cuda_context.c  the device, and the context in which a thread calls the driver
 *
 * A thread calls the driver in a scope, where a context of the device is current and the thread's
 * capture mode is relaxed: so no call invalidates a capture, of this or another thread.
 */
#ifndef GMSFS_LIB_MEMORY_CUDA_H
#define GMSFS_LIB_MEMORY_CUDA_H

#include "cuda/driver.h"
#include "internal.h"

#define GFS_CUDA_LEGACY_STREAM ((struct drv_stream *)1) /* CU_STREAM_LEGACY */

struct gfs_cuda {
    const struct drv *driver;
    drv_device device;
    struct drv_context *primary; /* retained; NULL if not needed so far */
    /* A byte of the device that stays allocated until the handle is closed (gfs_cuda_anchor
     * explains it); 0 if none. */
    drv_pointer anchor;
    uint64_t anchor_id;
    int anchored; /* true if the anchor was made, or tried */
};

/* Calls the driver; 0 or a negative errno, with the call and its error in memory->error. */
#define GFS_CUDA_CALL(memory, call, arguments) \
    gfs_cuda_result(memory, #call, ((struct gfs_cuda *)(memory)->device)->driver->call arguments)

int gfs_cuda_result(struct gfs_memory *memory, const char *call, enum drv_result result);

int gfs_cuda_open(struct gfs_memory *memory);
void gfs_cuda_close(struct gfs_memory *memory);
int gfs_cuda_enter(struct gfs_memory *memory, struct gfs_scope *scope, int must);
void gfs_cuda_leave(struct gfs_memory *memory, const struct gfs_scope *scope);

/* Finds the device with this uuid, as this process counts devices. */
int gfs_cuda_find(struct gfs_memory *memory, const uint8_t uuid[16], drv_device *found);

/* Returns the driver's id of the allocation at an address, 0 if the driver has none. A program may
 * end the context of an allocation; then other memory, or none, is at the address, and the id
 * differs. */
uint64_t gfs_cuda_identify(const struct gfs_cuda *cuda, drv_pointer address);
int gfs_cuda_is_gone(const struct gfs_cuda *cuda, drv_pointer address, uint64_t id);

/* Returns the anchor for the caller to free at once; the next scope makes another. 0: there is none
 * in the current context. */
drv_pointer gfs_cuda_take_anchor(struct gfs_cuda *cuda);

#endif
