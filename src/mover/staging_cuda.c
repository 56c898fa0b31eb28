/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of pinned buffers, and every call of the driver.
 *
 * A buffer goes round like this: wait until the driver is done with it, fill it, ask the driver to
 * copy it, record an event behind that; or the other way: ask for a copy into it, record, wait,
 * hand it out. Its memory is ours, in huge pages where the machine has them, and registered with
 * the driver: that takes a quarter of the time of cuMemHostAlloc.
 */
#include "mover/staging_parts.h"

#include "mover/near.h"
#include "mover/populate.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE_BYTES   ((size_t)2 << 20)
#define STAGING_PCI_BYTES 32

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
    char pci_id[STAGING_PCI_BYTES];
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
    device->has_near = device->driver->cuDeviceGetPCIBusId(pci_id, (int)sizeof(pci_id),
                                                           device->device) == DRV_SUCCESS &&
                       near_find(NEAR_SYSFS, pci_id, &device->near) == 0;
    return 0;
}

void staging_device_close(struct staging_device *device)
{
    device->driver->cuDevicePrimaryCtxRelease_v2(device->device);
}

static int cuda_enter(struct staging_lane *lane)
{
    int r;

    if (lane->is_current)
        return 0;
    r = CALL(lane->device, DOING_OPEN, cuCtxSetCurrent, (lane->device->context));
    lane->is_current = r == 0;
    return r;
}

static void cuda_leave(struct staging_lane *lane)
{
    if (lane->is_current)
        lane->device->driver->cuCtxSetCurrent(NULL);
    lane->is_current = false;
}

/* The context is current, and there is a stream. */
static int cuda_begin(struct staging_lane *lane)
{
    int r = cuda_enter(lane);

    if (!r && !lane->stream)
        r = CALL(lane->device, DOING_OPEN, cuStreamCreate,
                 (&lane->stream, DRV_STREAM_NON_BLOCKING));
    return r;
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Until the driver is done with it. */
static int buffer_wait(struct staging_lane *lane, struct staging_buffer *buffer, const char *doing)
{
    int r;

    if (!buffer->is_busy)
        return 0;
    r = CALL(lane->device, doing, cuEventSynchronize, (buffer->event));
    buffer->is_busy = r != 0;
    return r;
}

/* The driver may have begun even where the event could not be recorded: so it counts as busy. */
static int buffer_record(struct staging_lane *lane, struct staging_buffer *buffer,
                         const char *doing)
{
    buffer->is_busy = true;
    return CALL(lane->device, doing, cuEventRecord, (buffer->event, lane->stream));
}

static size_t ring_bytes(const struct staging_lane *lane)
{
    size_t bytes = STAGING_BUFFERS * lane->device->buffer_bytes;

    return (bytes + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
}

/* Addresses alone; a huge page wants one that it divides. */
static int ring_reserve(struct staging_lane *lane)
{
    char text[STAGING_ERROR_BYTES];
    size_t bytes = ring_bytes(lane), head;
    uint8_t *at = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        snprintf(text, sizeof(text), "mmap: %s", strerror(errno));
        return staging_fail(lane->staging, lane->device->store, DOING_PIN, text, -ENOMEM);
    }
    head = -(uintptr_t)at & (HUGE_PAGE_BYTES - 1);
    if (head > 0)
        munmap(at, head);
    munmap(at + head + bytes, HUGE_PAGE_BYTES - head);
    lane->ring = at + head;
    madvise(lane->ring, bytes, MADV_HUGEPAGE);
    return 0;
}

/* The next one of the ring. */
static int ring_grow(struct staging_lane *lane)
{
    size_t bytes = lane->device->buffer_bytes;
    struct staging_buffer *buffer = &lane->buffers[lane->pinned];
    int r = lane->ring ? 0 : ring_reserve(lane);

    if (r)
        return r;
    buffer->bytes = lane->ring + lane->pinned * bytes;
    populate(buffer->bytes, bytes);
    r = CALL(lane->device, DOING_PIN, cuMemHostRegister_v2,
             (buffer->bytes, bytes, DRV_HOST_REGISTER_PORTABLE));
    if (r)
        return r;
    r = CALL(lane->device, DOING_OPEN, cuEventCreate, (&buffer->event, DRV_EVENT_DISABLE_TIMING));
    if (r)
        lane->device->driver->cuMemHostUnregister(buffer->bytes);
    else
        lane->pinned++;
    return r;
}

static void ring_release(struct staging_lane *lane)
{
    const struct drv *driver = lane->device->driver;

    for (; lane->pinned > 0; lane->pinned--) {
        struct staging_buffer *buffer = &lane->buffers[lane->pinned - 1];
        driver->cuEventDestroy_v2(buffer->event);
        driver->cuMemHostUnregister(buffer->bytes);
        *buffer = (struct staging_buffer){0};
    }
    if (lane->ring)
        munmap(lane->ring, ring_bytes(lane));
    lane->ring = NULL;
}

/* ---- lanes --------------------------------------------------------------------------------- */

int staging_lane_settle(struct staging_lane *lane)
{
    int r = 0;

    if (lane->stream) {
        r = cuda_enter(lane);
        if (!r)
            r = CALL(lane->device, "finish copying", cuStreamSynchronize, (lane->stream));
    }
    for (size_t i = 0; i < STAGING_BUFFERS; i++)
        lane->buffers[i].is_busy = false;
    lane->turn = 0; /* a little work is done by the buffers that are pinned already */
    cuda_leave(lane);
    return r;
}

/* The stream first: what a failure left on it may still be on its way through the buffers. */
void staging_lane_release(struct staging_lane *lane)
{
    const struct drv *driver = lane->device->driver;

    if (cuda_enter(lane) != 0)
        return;
    if (lane->stream) {
        driver->cuStreamSynchronize(lane->stream);
        driver->cuStreamDestroy_v2(lane->stream);
    }
    lane->stream = NULL;
    ring_release(lane);
    cuda_leave(lane);
}

/* ---- towards the GPU ----------------------------------------------------------------------- */

/* At the end of a round: whether the first buffer is still under way and there could be more. */
static bool ring_is_short(const struct staging_lane *lane)
{
    const struct staging_buffer *first = &lane->buffers[0];

    return lane->pinned < STAGING_BUFFERS &&
           (lane->pinned == 0 ||
            (first->is_busy && lane->device->driver->cuEventQuery(first->event) != DRV_SUCCESS));
}

int staging_cuda_room(struct staging_lane *lane, uint8_t **room)
{
    struct staging_buffer *buffer;
    int r = cuda_begin(lane);

    if (!r && lane->turn == lane->pinned) {
        if (!ring_is_short(lane))
            lane->turn = 0;
        else
            r = ring_grow(lane);
    }
    if (r)
        return r;
    buffer = &lane->buffers[lane->turn];
    *room = buffer->bytes;
    return buffer_wait(lane, buffer, DOING_SEND);
}

int staging_cuda_send(struct staging_lane *lane, void *to, const uint8_t *room, size_t size_bytes)
{
    struct staging_buffer *buffer = &lane->buffers[lane->turn++];
    int r = CALL(lane->device, DOING_SEND, cuMemcpyHtoDAsync_v2,
                 ((drv_pointer)(uintptr_t)to, room, size_bytes, lane->stream));

    return r ? r : buffer_record(lane, buffer, DOING_SEND);
}

/* ---- from the GPU -------------------------------------------------------------------------- */

/* What an earlier fetch still had under way is waited for. */
int staging_cuda_fetch(struct staging_lane *lane)
{
    int r = cuda_begin(lane);

    for (size_t i = 0; !r && i < lane->pinned; i++)
        r = buffer_wait(lane, &lane->buffers[i], DOING_GET);
    lane->turn = 0;
    return r;
}

/* The part behind those that were asked for. */
static int cuda_ask(struct staging_lane *lane, unsigned index)
{
    uint64_t left = lane->left_bytes - lane->ahead_bytes;
    size_t step = left < lane->step_bytes ? (size_t)left : lane->step_bytes;
    int r = index < lane->pinned ? 0 : ring_grow(lane);

    if (!r)
        r = CALL(lane->device, DOING_GET, cuMemcpyDtoHAsync_v2,
                 (lane->buffers[index].bytes,
                  (drv_pointer)(uintptr_t)(lane->from + lane->ahead_bytes), step, lane->stream));
    if (!r)
        r = buffer_record(lane, &lane->buffers[index], DOING_GET);
    lane->ahead_bytes += step;
    return r;
}

/* All buffers but those under way are free: the caller is done with the one it had. */
int staging_cuda_next(struct staging_lane *lane, const uint8_t **part, size_t *size_bytes)
{
    struct staging_buffer *buffer = &lane->buffers[lane->turn];
    int r = 0;

    for (unsigned i = 0; !r && i < STAGING_BUFFERS && lane->ahead_bytes < lane->left_bytes; i++) {
        unsigned index = (lane->turn + i) % STAGING_BUFFERS;
        if (!lane->buffers[index].is_busy)
            r = cuda_ask(lane, index);
    }
    if (!r)
        r = buffer_wait(lane, buffer, DOING_GET);
    *part = buffer->bytes;
    lane->ahead_bytes -= *size_bytes;
    lane->turn = (lane->turn + 1) % STAGING_BUFFERS;
    return r;
}
