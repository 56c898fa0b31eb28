/* SPDX-License-Identifier: Apache-2.0 */
/* The lanes of the threads, host memory, and what is said of a device that failed. */
#include "mover/staging_parts.h"

#include "base/failure.h"
#include "mover/near.h"
#include "mover/populate.h"
#include "mover/work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- errors -------------------------------------------------------------------------------- */

static const char *staging_way_out(const char *text, int error)
{
    if (error == -ENOMEM && strncmp(text, "cuDevicePrimaryCtxRetain", 24) == 0)
        return "a CUDA context takes about half a gigabyte of the GPU, and so much is not free "
               "there: stop other programs on it, or mount with a smaller size=";
    if (error == -ENOMEM &&
        (strncmp(text, "cuMemHostRegister", 17) == 0 || strncmp(text, "mmap", 4) == 0))
        return "the machine has too little memory that can be pinned: free some, or give "
               "--threads 1, which needs the least";
    if (error == -ENOMEM)
        return "the GPU has too little free memory: stop other programs on it, or mount with a "
               "smaller size=";
    if (error == -ENODEV)
        return "'device' in the mount tells the GPU's health; CUDA_VISIBLE_DEVICES must not hide "
               "it from this command";
    if (error == -ELIBBAD)
        return "install a current NVIDIA driver";
    return "'device' in the mount tells the GPU's health, the kernel's log (dmesg) what the driver "
           "says of it";
}

int staging_explain(const char *store, const char *doing, const char *text, int error,
                    struct failure *failure)
{
    return failure_set(failure, error, "cannot %s: %s: %s; %s", doing, store, text,
                       staging_way_out(text, error));
}

int staging_fail(struct staging *staging, const char *store, const char *doing, const char *text,
                 int error)
{
    pthread_mutex_lock(&staging->lock);
    if (!staging->failed_store) {
        staging->failed_store = store;
        staging->failed_doing = doing;
        staging->failed_error = error;
        snprintf(staging->failed_text, STAGING_ERROR_BYTES, "%s", text);
    }
    pthread_mutex_unlock(&staging->lock);
    return error;
}

bool staging_get_failure(struct staging *staging, struct failure *failure, bool *is_told)
{
    bool is_failed;

    pthread_mutex_lock(&staging->lock);
    is_failed = staging->failed_store != NULL;
    *is_told = staging->is_told;
    staging->is_told = is_failed;
    pthread_mutex_unlock(&staging->lock);
    if (is_failed)
        staging_explain(staging->failed_store, staging->failed_doing, staging->failed_text,
                        staging->failed_error, failure);
    return is_failed;
}

/* ---- stores -------------------------------------------------------------------------------- */

struct staging *staging_new(void)
{
    struct staging *staging = calloc(1, sizeof(*staging));

    if (staging)
        pthread_mutex_init(&staging->lock, NULL);
    return staging;
}

void staging_free(struct staging *staging)
{
    struct staging_lane *lane;

    if (!staging)
        return;
    while ((lane = staging->lanes)) {
        staging->lanes = lane->next;
        if (lane->device)
            staging_lane_release(lane);
        free(lane->scratch);
        free(lane);
    }
    for (size_t i = 0; i < staging->device_count; i++) {
        staging_device_close(staging->devices[i]);
        free(staging->devices[i]);
    }
    pthread_mutex_destroy(&staging->lock);
    free(staging);
}

static int staging_add_device(struct staging *staging, const uint8_t uuid[16], const char *store,
                              struct staging_device **added, struct failure *failure)
{
    char text[STAGING_ERROR_BYTES] = "";
    struct staging_device *device;
    int error;

    if (staging->device_count == STAGING_MAX_DEVICES)
        return failure_set(failure, -E2BIG, "%s: one command works on at most %u GPUs", store,
                           STAGING_MAX_DEVICES);
    device = calloc(1, sizeof(*device));
    if (!device)
        return failure_no_memory(failure);
    device->staging = staging;
    device->store = store;
    memcpy(device->uuid, uuid, sizeof(device->uuid));
    error = staging_device_open(device, text);
    if (error) {
        free(device);
        return staging_explain(store, "open the GPU", text, error, failure);
    }
    staging->devices[staging->device_count++] = device;
    *added = device;
    return 0;
}

int staging_open_memory(struct staging *staging, enum gmsfs_memory kind, const uint8_t uuid[16],
                        const char *store, struct staging_memory *memory, struct failure *failure)
{
    *memory = (struct staging_memory){.store = store};
    if (kind == GMSFS_MEMORY_HOST)
        return 0;
    for (size_t i = 0; i < staging->device_count && !memory->device; i++)
        if (memcmp(staging->devices[i]->uuid, uuid, sizeof(staging->devices[i]->uuid)) == 0)
            memory->device = staging->devices[i];
    return memory->device ? 0 : staging_add_device(staging, uuid, store, &memory->device, failure);
}

bool staging_is_copied(const struct staging_memory *memory)
{
    return memory->device != NULL;
}

/* ---- lanes --------------------------------------------------------------------------------- */

/* One that is back from an earlier work has its buffers already. */
static struct staging_lane *staging_find_lane(struct staging *staging,
                                              struct staging_device *device)
{
    struct staging_lane *lane = staging->lanes;

    while (lane && (lane->is_out || lane->device != device))
        lane = lane->next;
    if (lane)
        return lane;
    lane = calloc(1, sizeof(*lane));
    if (lane) {
        lane->staging = staging;
        lane->device = device;
        lane->next = staging->lanes;
        staging->lanes = lane;
    }
    return lane;
}

static int staging_take_lane(struct staging *staging, struct staging_device *device, void **own)
{
    struct staging_lane *lane;

    pthread_mutex_lock(&staging->lock);
    lane = staging_find_lane(staging, device);
    if (lane)
        lane->is_out = true;
    pthread_mutex_unlock(&staging->lock);
    *own = lane;
    return lane ? 0 : -ENOMEM;
}

static int staging_begin_host(void *shared, void **own)
{
    return staging_take_lane(shared, NULL, own);
}

static int staging_begin_device(void *shared, void **own)
{
    struct staging_device *device = shared;

    if (device->has_near)
        near_stay(&device->near);
    return staging_take_lane(device->staging, device, own);
}

static int staging_end_lane(void *shared, void *own)
{
    struct staging_lane *lane = own;
    int r = lane->device ? staging_lane_settle(lane) : 0;

    (void)shared;
    lane->left_bytes = lane->ahead_bytes = 0;
    pthread_mutex_lock(&lane->staging->lock);
    lane->is_out = false;
    pthread_mutex_unlock(&lane->staging->lock);
    return r;
}

static void staging_choose_buffers(struct staging_device *device, unsigned threads)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t share = STAGING_RING_BYTES / (threads * STAGING_BUFFERS);

    if (!device->buffer_bytes)
        device->buffer_bytes =
            share < STAGING_BUFFER_MAX_BYTES ? share & ~(page - 1) : STAGING_BUFFER_MAX_BYTES;
}

void staging_equip(struct staging *staging, struct work *work, const struct staging_memory *memory,
                   uint64_t threads)
{
    struct staging_device *device = memory ? memory->device : NULL;
    unsigned most = device ? STAGING_GPU_THREADS : WORK_MAX_THREADS;
    unsigned best = work_default_threads();

    work->threads = threads ? (unsigned)threads : best < most ? best : most;
    if (device)
        staging_choose_buffers(device, work->threads);
    work->shared = device ? (void *)device : staging;
    work->begin = device ? staging_begin_device : staging_begin_host;
    work->end = staging_end_lane;
}

void *staging_scratch(struct staging_lane *lane, size_t size_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (lane->scratch_bytes < size_bytes) {
        free(lane->scratch);
        size_bytes = (size_bytes + page - 1) & ~(page - 1);
        lane->scratch = aligned_alloc(page, size_bytes);
        lane->scratch_bytes = lane->scratch ? size_bytes : 0;
    }
    return lane->scratch;
}

/* ---- bytes --------------------------------------------------------------------------------- */

int staging_room(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 size_t most_bytes, uint8_t **room, size_t *size_bytes)
{
    if (memory->device) {
        size_t buffer_bytes = memory->device->buffer_bytes;
        *size_bytes = most_bytes < buffer_bytes ? most_bytes : buffer_bytes;
        return staging_cuda_room(lane, room);
    }
    populate(to, most_bytes);
    *room = to;
    *size_bytes = most_bytes;
    return 0;
}

int staging_send(struct staging_lane *lane, const struct staging_memory *memory, void *to,
                 const uint8_t *room, size_t size_bytes)
{
    return memory->device ? staging_cuda_send(lane, to, room, size_bytes) : 0;
}

int staging_fetch(struct staging_lane *lane, const struct staging_memory *memory, const void *from,
                  uint64_t size_bytes, size_t step_bytes)
{
    lane->memory = memory;
    lane->from = from;
    lane->left_bytes = size_bytes;
    lane->ahead_bytes = 0;
    lane->step_bytes = step_bytes;
    if (memory->device && memory->device->buffer_bytes < step_bytes)
        lane->step_bytes = memory->device->buffer_bytes;
    return memory->device ? staging_cuda_fetch(lane) : 0;
}

int staging_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes)
{
    size_t step = lane->left_bytes < lane->step_bytes ? (size_t)lane->left_bytes : lane->step_bytes;
    int r = 0;

    *part = lane->from;
    *size_bytes = step;
    if (step > 0 && lane->memory->device)
        r = staging_cuda_next(lane, part, size_bytes);
    lane->from += step;
    lane->left_bytes -= step;
    return r;
}
