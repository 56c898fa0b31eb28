/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_cuda - a device and a lane for the memory of a CUDA GPU
 *
 * For staging_cuda.c, relay.c and tests.
 */
#ifndef GMSFS_MOVER_STAGING_CUDA_H
#define GMSFS_MOVER_STAGING_CUDA_H

#include "cuda/driver.h"
#include "mover/staging_parts.h"

/* All rings of several devices together: ring bytes beyond the processor's cache go through memory
 * twice, which costs more the more bytes are moved. Measured on 2 x H100 and 32 processors, with 12
 * threads for each GPU: with 24 MiB of ring for each 185 ms, with 96 MiB 330, and one GPU alone
 * 165. */
#define STAGING_SHARED_RING_BYTES (48u << 20)

struct cuda_device {
    const struct drv *driver;
    drv_device device;
    struct drv_context *context; /* retained */
    size_t buffer_bytes;         /* 0: not chosen yet */
    struct drv_stream *stream;   /* shared by all lanes if there are several devices; else NULL */
    uint8_t *block;              /* rings of the lanes that were warmed, or NULL */
    size_t block_bytes;
    bool is_block_pinned;
};

/* A buffer of the ring. */
struct cuda_buffer {
    uint8_t *bytes;
    struct drv_event *event; /* NULL: not pinned yet */
    bool is_busy;            /* used by the driver until the event */
};

struct cuda_lane {
    struct drv_stream *stream; /* its own, or the device's */
    uint8_t *ring;             /* memory of the buffers; NULL: none yet */
    struct cuda_buffer buffers[STAGING_BUFFERS];
    unsigned pinned;      /* number of pinned buffers, from the first on */
    bool is_whole;        /* the driver refuses to pin more */
    bool is_of_block;     /* the ring is a part of the device's block */
    unsigned turn;        /* index of the next buffer to use */
    size_t room_bytes;    /* maximum of the next room; 0: first room of a work */
    uint64_t ahead_bytes; /* bytes of left_bytes already asked of the driver */
};

/* Makes the device's context the calling thread's, and none. No other file of src/mover may. */
int staging_cuda_enter(struct staging_device *device);
void staging_cuda_leave(const struct staging_device *device);

static inline struct cuda_device *cuda_device(const struct staging_device *device)
{
    return (struct cuda_device *)(uintptr_t)device->own;
}

static inline struct cuda_lane *cuda_lane(const struct staging_lane *lane)
{
    return (struct cuda_lane *)(uintptr_t)lane->own;
}

#endif
