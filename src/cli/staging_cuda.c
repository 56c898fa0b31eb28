/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of pinned buffers, and every call of the driver.
 *
 * A buffer goes round like this: wait until the driver is done with it, fill it, ask the driver to
 * copy it, record an event behind that; or the other way: ask for a copy into it, record, wait,
 * hand it out. An event belongs to a context, a pinned buffer to all of them (PORTABLE).
 */
#include "cli/staging_parts.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DOING_OPEN "prepare copying"
#define DOING_PIN  "pin memory for copying"
#define DOING_SEND "copy to the GPU"
#define DOING_GET  "copy from the GPU"

#define CALL(device, doing, call, arguments) \
    cuda_result(device, doing, #call, (device)->driver->call arguments)

static int cuda_result(struct staging_device *device, const char *doing, const char *call,
                       enum drv_result result)
{
    char text[STAGING_ERROR_BYTES];
    int error;

    if (result == DRV_SUCCESS)
        return 0;
    error = drv_explain(device->driver, call, result, text, sizeof(text));
    return staging_fail(device->staging, device->store, doing, text, error);
}

/* ---- the device ---------------------------------------------------------------------------- */

int staging_device_open(struct staging_device *device, char text[STAGING_ERROR_BYTES])
{
    enum drv_result result;
    int r = drv_open(&device->driver, text, STAGING_ERROR_BYTES);

    if (!r)
        r = drv_find(device->driver, device->uuid, &device->device, text, STAGING_ERROR_BYTES);
    if (r)
        return r;
    result = device->driver->cuDevicePrimaryCtxRetain(&device->context, device->device);
    if (result != DRV_SUCCESS)
        return drv_explain(device->driver, "cuDevicePrimaryCtxRetain", result, text,
                           STAGING_ERROR_BYTES);
    return 0;
}

void staging_device_close(struct staging_device *device)
{
    device->driver->cuDevicePrimaryCtxRelease_v2(device->device);
}

static int cuda_enter(struct staging_lane *lane, struct staging_device *device)
{
    int r;

    if (lane->current == device)
        return 0;
    r = CALL(device, DOING_OPEN, cuCtxSetCurrent, (device->context));
    if (!r)
        lane->current = device;
    return r;
}

static int cuda_stream(struct staging_lane *lane, struct staging_device *device,
                       struct drv_stream **stream)
{
    int r = cuda_enter(lane, device);

    if (!r && !lane->streams[device->index])
        r = CALL(device, DOING_OPEN, cuStreamCreate,
                 (&lane->streams[device->index], DRV_STREAM_NON_BLOCKING));
    *stream = lane->streams[device->index];
    return r;
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Until the driver is done with it, on whichever device that was. */
static int buffer_wait(struct staging_lane *lane, struct staging_buffer *buffer, const char *doing)
{
    int r;

    if (!buffer->is_busy)
        return 0;
    r = cuda_enter(lane, buffer->device);
    if (!r)
        r = CALL(buffer->device, doing, cuEventSynchronize, (buffer->event));
    buffer->is_busy = r != 0;
    return r;
}

static void buffer_drop_event(struct staging_lane *lane, struct staging_buffer *buffer)
{
    if (buffer->device && cuda_enter(lane, buffer->device) == 0)
        buffer->device->driver->cuEventDestroy_v2(buffer->event);
    buffer->device = NULL;
}

/* It is not in use by the driver; then it is pinned and has an event of this device. */
static int buffer_prepare(struct staging_lane *lane, struct staging_buffer *buffer,
                          struct staging_device *device)
{
    void *bytes = NULL;
    int r;

    if (buffer->device != device)
        buffer_drop_event(lane, buffer);
    r = cuda_enter(lane, device);
    if (!r && !buffer->bytes) {
        r = CALL(device, DOING_PIN, cuMemHostAlloc,
                 (&bytes, lane->staging->buffer_bytes, DRV_HOST_ALLOC_PORTABLE));
        buffer->bytes = bytes;
    }
    if (!r && !buffer->device) {
        r = CALL(device, DOING_OPEN, cuEventCreate, (&buffer->event, DRV_EVENT_DISABLE_TIMING));
        buffer->device = r ? NULL : device;
    }
    return r;
}

/* The driver may have begun even where the event could not be recorded: so it counts as busy. */
static int buffer_record(struct staging_buffer *buffer, struct drv_stream *stream,
                         const char *doing)
{
    buffer->is_busy = true;
    return CALL(buffer->device, doing, cuEventRecord, (buffer->event, stream));
}

/* ---- lanes --------------------------------------------------------------------------------- */

int staging_lane_settle(struct staging_lane *lane)
{
    const struct staging *staging = lane->staging;
    int r = 0;

    for (size_t i = 0; i < staging->device_count; i++) {
        struct staging_device *device = staging->devices[i];
        int failed;

        if (!lane->streams[i])
            continue;
        failed = cuda_enter(lane, device);
        if (!failed)
            failed = CALL(device, "finish copying", cuStreamSynchronize, (lane->streams[i]));
        r = r ? r : failed;
    }
    for (size_t i = 0; i < STAGING_BUFFERS; i++)
        lane->buffers[i].is_busy = false;
    lane->left_bytes = lane->ahead_bytes = 0;
    lane->turn = 0; /* a little work is done by the buffers that are pinned already */
    if (lane->current)
        lane->current->driver->cuCtxSetCurrent(NULL);
    lane->current = NULL;
    return r;
}

/* Streams first: what a failure left on them may still be on its way through the buffers. */
void staging_lane_release(struct staging_lane *lane)
{
    const struct staging *staging = lane->staging;

    for (size_t i = 0; i < staging->device_count; i++) {
        const struct drv *driver = staging->devices[i]->driver;

        if (!lane->streams[i] || cuda_enter(lane, staging->devices[i]) != 0)
            continue;
        driver->cuStreamSynchronize(lane->streams[i]);
        driver->cuStreamDestroy_v2(lane->streams[i]);
        lane->streams[i] = NULL;
    }
    for (size_t i = 0; i < STAGING_BUFFERS; i++) {
        struct staging_buffer *buffer = &lane->buffers[i];

        buffer_drop_event(lane, buffer);
        if (buffer->bytes && cuda_enter(lane, staging->devices[0]) == 0)
            staging->devices[0]->driver->cuMemFreeHost(buffer->bytes);
        buffer->bytes = NULL;
    }
    if (lane->current)
        lane->current->driver->cuCtxSetCurrent(NULL);
    lane->current = NULL;
}

/* ---- towards the GPU ----------------------------------------------------------------------- */

int staging_cuda_room(struct staging_lane *lane, struct staging_device *device, uint8_t **room)
{
    struct staging_buffer *buffer = &lane->buffers[lane->turn];
    int r = buffer_wait(lane, buffer, DOING_SEND);

    if (!r)
        r = buffer_prepare(lane, buffer, device);
    *room = buffer->bytes;
    return r;
}

int staging_cuda_send(struct staging_lane *lane, struct staging_device *device, void *to,
                      const uint8_t *room, size_t size_bytes)
{
    struct staging_buffer *buffer = &lane->buffers[lane->turn];
    struct drv_stream *stream;
    int r = cuda_stream(lane, device, &stream);

    if (!r)
        r = CALL(device, DOING_SEND, cuMemcpyHtoDAsync_v2,
                 ((drv_pointer)(uintptr_t)to, room, size_bytes, stream));
    if (!r)
        r = buffer_record(buffer, stream, DOING_SEND);
    lane->turn = (lane->turn + 1) % STAGING_BUFFERS;
    return r;
}

/* ---- from the GPU -------------------------------------------------------------------------- */

/* What an earlier fetch still had under way is waited for. */
int staging_cuda_fetch(struct staging_lane *lane)
{
    int r = 0;

    for (size_t i = 0; !r && i < STAGING_BUFFERS; i++)
        r = buffer_wait(lane, &lane->buffers[i], DOING_GET);
    lane->turn = 0;
    return r;
}

/* The part behind those that were asked for. */
static int cuda_ask(struct staging_lane *lane, struct staging_buffer *buffer)
{
    uint64_t left = lane->left_bytes - lane->ahead_bytes;
    size_t step = left < lane->step_bytes ? (size_t)left : lane->step_bytes;
    struct staging_device *device = lane->memory->device;
    struct drv_stream *stream;
    int r = buffer_prepare(lane, buffer, device);

    if (!r)
        r = cuda_stream(lane, device, &stream);
    if (!r)
        r = CALL(device, DOING_GET, cuMemcpyDtoHAsync_v2,
                 (buffer->bytes, (drv_pointer)(uintptr_t)(lane->from + lane->ahead_bytes), step,
                  stream));
    if (!r)
        r = buffer_record(buffer, stream, DOING_GET);
    lane->ahead_bytes += step;
    return r;
}

/* All buffers but those under way are free: the caller is done with the one it had. */
int staging_cuda_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes)
{
    struct staging_buffer *buffer = &lane->buffers[lane->turn];
    int r = 0;

    for (unsigned i = 0; !r && i < STAGING_BUFFERS && lane->ahead_bytes < lane->left_bytes; i++) {
        struct staging_buffer *free_one = &lane->buffers[(lane->turn + i) % STAGING_BUFFERS];
        if (!free_one->is_busy)
            r = cuda_ask(lane, free_one);
    }
    if (!r)
        r = buffer_wait(lane, buffer, DOING_GET);
    *part = buffer->bytes;
    lane->ahead_bytes -= *size_bytes;
    lane->turn = (lane->turn + 1) % STAGING_BUFFERS;
    return r;
}
