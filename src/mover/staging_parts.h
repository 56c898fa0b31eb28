/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_parts - what staging.c and staging_cuda.c share
 *
 * staging.c has the lanes and host memory, staging_cuda.c every call of the driver.
 */
#ifndef GMSFS_MOVER_STAGING_PARTS_H
#define GMSFS_MOVER_STAGING_PARTS_H

#include "cuda/driver.h"
#include "mover/staging.h"

#include <pthread.h>
#include <sched.h>

#define STAGING_ERROR_BYTES GMSFS_DEVICE_ERROR_BYTES

struct staging_device {
    struct staging *staging;
    const char *store; /* the first that lies there */
    const struct drv *driver;
    drv_device device;
    struct drv_context *context; /* retained */
    uint8_t uuid[16];
    bool has_near; /* `near` says which processors are near it */
    cpu_set_t near;
    size_t buffer_bytes; /* 0: not decided */
};

/* One of the ring. */
struct staging_buffer {
    uint8_t *bytes;
    struct drv_event *event; /* NULL: not pinned yet */
    bool is_busy;            /* the driver reads or writes it until the event */
};

struct staging_lane {
    struct staging *staging;
    struct staging_lane *next;     /* all lanes */
    struct staging_device *device; /* NULL: host memory */
    bool is_out;
    void *scratch;
    size_t scratch_bytes;

    /* The fetch under way. */
    const struct staging_memory *memory;
    const uint8_t *from;  /* of what is not handed out yet */
    uint64_t left_bytes;  /* not handed out */
    uint64_t ahead_bytes; /* of these: asked of the driver */
    size_t step_bytes;

    /* On a GPU. */
    bool is_current; /* this thread has the device's context */
    struct drv_stream *stream;
    uint8_t *ring; /* addresses of the buffers; NULL: none yet */
    struct staging_buffer buffers[STAGING_BUFFERS];
    unsigned pinned; /* buffers, from the first on */
    unsigned turn;   /* of the buffer that is used next */
};

struct staging {
    struct staging_device *devices[STAGING_MAX_DEVICES];
    size_t device_count;

    pthread_mutex_t lock; /* of all that follows */
    struct staging_lane *lanes;
    const char *failed_store; /* the first failure of a device; NULL: none */
    const char *failed_doing;
    int failed_error;
    bool is_told;
    char failed_text[STAGING_ERROR_BYTES];
};

/* The first failure stays. Returns `error`. */
int staging_fail(struct staging *staging, const char *store, const char *doing, const char *text,
                 int error);

/* ---- staging_cuda.c ------------------------------------------------------------------------- */

/* On failure `text` says why. */
int staging_device_open(struct staging_device *device, char text[STAGING_ERROR_BYTES]);
void staging_device_close(struct staging_device *device);

/* Waits until the driver is done with what the lane sent, and leaves the context to others. */
int staging_lane_settle(struct staging_lane *lane);
/* Gives back all that the driver has of it. */
void staging_lane_release(struct staging_lane *lane);

int staging_cuda_room(struct staging_lane *lane, uint8_t **room);
int staging_cuda_send(struct staging_lane *lane, void *to, const uint8_t *room, size_t size_bytes);
int staging_cuda_fetch(struct staging_lane *lane);
int staging_cuda_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes);

#endif
