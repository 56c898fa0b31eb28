/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_cuda - what a device and a lane have where the memory is a GPU's of CUDA
 *
 * For staging_cuda.c alone, and its tests.
 */
#ifndef GMSFS_MOVER_STAGING_CUDA_H
#define GMSFS_MOVER_STAGING_CUDA_H

#include "cuda/driver.h"
#include "mover/staging_parts.h"

/* Of all devices together where they are several: what their rings have beyond the processor's
 * cache goes through memory twice, and costs more the more of it is wanted. Measured on 2 x H100
 * and 32 processors, with 12 threads of each: 24 MiB of ring for each take 185 ms where 96 MiB take
 * 330, and one GPU alone 165. */
#define STAGING_SHARED_RING_BYTES (48u << 20)

struct cuda_device {
    const struct drv *driver;
    drv_device device;
    struct drv_context *context; /* retained */
    size_t buffer_bytes;         /* 0: not decided */
    struct drv_stream *stream;   /* of all lanes, where there are several devices; else NULL */
    uint8_t *block;              /* the rings of the lanes that were warmed, or NULL */
    size_t block_bytes;
    bool is_block_pinned;
};

/* One of the ring. */
struct cuda_buffer {
    uint8_t *bytes;
    struct drv_event *event; /* NULL: not pinned yet */
    bool is_busy;            /* the driver reads or writes it until the event */
};

struct cuda_lane {
    bool is_current;           /* this thread has the device's context */
    struct drv_stream *stream; /* its own, or the device's */
    uint8_t *ring;             /* addresses of the buffers; NULL: none yet */
    struct cuda_buffer buffers[STAGING_BUFFERS];
    unsigned pinned;      /* buffers, from the first on */
    bool is_whole;        /* the driver refuses more of them */
    bool is_of_block;     /* the ring is a part of the device's block */
    unsigned turn;        /* of the buffer that is used next */
    size_t room_bytes;    /* of the next room at most; 0: it is the first one of a work */
    uint64_t ahead_bytes; /* of what the fetch has left: asked of the driver */
};

static inline struct cuda_device *cuda_device(const struct staging_device *device)
{
    return (struct cuda_device *)(uintptr_t)device->own;
}

static inline struct cuda_lane *cuda_lane(const struct staging_lane *lane)
{
    return (struct cuda_lane *)(uintptr_t)lane->own;
}

#endif
