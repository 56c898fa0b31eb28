/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_cuda - what the parts of GPU memory through the CUDA driver share; included by them alone
 *
 *   memory_cuda.c          addresses, mappings, rights, copies, waiting: the table of functions
 *   memory_cuda_context.c  the device, and the context in which a thread calls the driver
 *   memory_cuda_turn.c     one launch after the other: an event that the next one waits for
 *
 * The driver's calls of a thread are made in a scope, where a context of the device is current and
 * the thread's capture mode is relaxed: so none of them invalidates a capture, ours or another
 * thread's.
 */
#ifndef GMSFS_LIB_MEMORY_CUDA_H
#define GMSFS_LIB_MEMORY_CUDA_H

#include "cuda/driver.h"
#include "internal.h"

#define GFS_CUDA_LEGACY_STREAM ((struct drv_stream *)1) /* CU_STREAM_LEGACY */

struct gfs_cuda {
    const struct drv *driver;
    drv_device device;
    struct drv_context *primary; /* retained; NULL: was not needed so far */
    /* A byte of the device that stays until the handle is closed (gfs_cuda_anchor says why). 0:
     * there is none. */
    drv_pointer anchor;
    uint64_t anchor_id;
    int anchored; /* or tried to */
};

/* One call of the driver; 0 or a negative errno, and then memory->error says what failed. */
#define GFS_CUDA_CALL(memory, call, arguments) \
    gfs_cuda_result(memory, #call, ((struct gfs_cuda *)(memory)->device)->driver->call arguments)

int gfs_cuda_result(struct gfs_memory *memory, const char *call, enum drv_result result);

int gfs_cuda_open(struct gfs_memory *memory);
void gfs_cuda_close(struct gfs_memory *memory);
int gfs_cuda_enter(struct gfs_memory *memory, struct gfs_scope *scope, int must);
void gfs_cuda_leave(struct gfs_memory *memory, const struct gfs_scope *scope);

/* The device with this uuid, as this process counts them. */
int gfs_cuda_find(struct gfs_memory *memory, const uint8_t uuid[16], drv_device *found);

/* A program may end the context in which something was allocated; what is at the address then is
 * nobody's, or somebody else's. 0: the driver does not tell. */
uint64_t gfs_cuda_identify(const struct gfs_cuda *cuda, drv_pointer address);
int gfs_cuda_is_gone(const struct gfs_cuda *cuda, drv_pointer address, uint64_t id);

int gfs_cuda_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                       int refuse);
int gfs_cuda_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream);
void gfs_cuda_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn);
int gfs_cuda_ordinal(const struct gfs_memory *memory);

/* The anchor, to be given back at once; the next scope makes another. 0: there is none in the
 * context that is current. */
drv_pointer gfs_cuda_take_anchor(struct gfs_cuda *cuda);

#endif
