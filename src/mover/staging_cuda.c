/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring of pinned buffers, and every call of the driver.
 *
 * Use of a buffer: wait until the driver is done with it, fill it, ask the driver to copy it,
 * record an event after that; or in the other direction: ask for a copy into it, record, wait, hand
 * it out. The memory is ours, in huge pages if the machine has them, and registered with the
 * driver: that takes a quarter of the time of cuMemHostAlloc.
 */
#include "mover/staging_cuda.h"

#include "base/near.h"
#include "base/pages.h"
#include "base/timeline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES   ((size_t)2 << 20)
#define STAGING_PCI_BYTES 32

#define DOING_OPEN "prepare copying"
#define DOING_PIN  "pin memory for copying"
#define DOING_SEND "copy to the GPU"
#define DOING_GET  "copy from the GPU"

#define CALL(device, doing, call, arguments) \
    cuda_result(device, doing, #call, cuda_device(device)->driver->call arguments)

static int cuda_result(struct staging_device *device, const char *doing, const char *call,
                       enum drv_result result)
{
    char text[STAGING_ERROR_BYTES];

    if (result == DRV_SUCCESS)
        return 0;
    int error = drv_explain(cuda_device(device)->driver, call, result, text, sizeof(text));
    return staging_fail(device, doing, text, error);
}

static const char *cuda_way_out(const char *text, int error)
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

/* ---- the device ---------------------------------------------------------------------------- */

static int cuda_find(struct staging_device *device, char text[STAGING_ERROR_BYTES])
{
    struct cuda_device *own = cuda_device(device);
    char pci_id[STAGING_PCI_BYTES];
    int error = drv_open(&own->driver, text, STAGING_ERROR_BYTES);

    if (!error)
        error = drv_find(own->driver, device->uuid, &own->device, text, STAGING_ERROR_BYTES);
    if (error)
        return error;
    device->has_near =
        own->driver->cuDeviceGetPCIBusId(pci_id, (int)sizeof(pci_id), own->device) == DRV_SUCCESS &&
        near_find(NEAR_SYSFS, pci_id, &device->near) == 0;
    return 0;
}

static int cuda_open(struct staging_device *device, char text[STAGING_ERROR_BYTES])
{
    struct cuda_device *own = cuda_device(device);
    enum drv_result result = own->driver->cuDevicePrimaryCtxRetain(&own->context, own->device);

    if (result == DRV_SUCCESS)
        return 0;
    own->context = NULL;
    return drv_explain(own->driver, "cuDevicePrimaryCtxRetain", result, text, STAGING_ERROR_BYTES);
}

static void cuda_close(struct staging_device *device)
{
    const struct cuda_device *own = cuda_device(device);

    if (own->context && own->driver->cuCtxSetCurrent(own->context) == DRV_SUCCESS) {
        if (own->stream)
            own->driver->cuStreamDestroy_v2(own->stream);
        if (own->is_block_pinned)
            own->driver->cuMemHostUnregister(own->block);
        own->driver->cuCtxSetCurrent(NULL);
    }
    if (own->block)
        munmap(own->block, own->block_bytes);
    if (own->context)
        own->driver->cuDevicePrimaryCtxRelease_v2(own->device);
}

/* Chooses the size of buffers: all threads of all devices share the ring bytes. */
static void cuda_prepare(struct staging_device *device, unsigned threads)
{
    struct cuda_device *own = cuda_device(device);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t devices = staging_count_sharing(device);
    size_t ring = devices > 1 ? STAGING_SHARED_RING_BYTES : STAGING_RING_BYTES;
    size_t share = ring / (devices * threads * STAGING_BUFFERS);

    if (own->buffer_bytes)
        return;
    if (share > STAGING_BUFFER_MAX_BYTES)
        share = STAGING_BUFFER_MAX_BYTES;
    if (share < STAGING_BUFFER_MIN_BYTES)
        share = STAGING_BUFFER_MIN_BYTES;
    own->buffer_bytes = share & ~(page - 1);
}

/* The context that this thread has; NULL: none of ours. A thread may have lanes of several GPUs. */
static _Thread_local const struct drv_context *current;

int staging_cuda_enter(struct staging_device *device)
{
    struct drv_context *context = cuda_device(device)->context;

    if (current == context)
        return 0;
    int error = CALL(device, DOING_OPEN, cuCtxSetCurrent, (context));
    current = error ? NULL : context;
    return error;
}

void staging_cuda_leave(const struct staging_device *device)
{
    if (current)
        cuda_device(device)->driver->cuCtxSetCurrent(NULL);
    current = NULL;
}

static int stream_create(struct staging_device *device, struct drv_stream **stream)
{
    return CALL(device, DOING_OPEN, cuStreamCreate, (stream, DRV_STREAM_NON_BLOCKING));
}

/* Returns the stream that all lanes of the device share: with several devices, small copies are
 * faster one after the other than side by side. */
static int stream_share(struct staging_device *device, struct drv_stream **stream)
{
    struct cuda_device *own = cuda_device(device);
    struct drv_stream *made = NULL;
    int error = 0;

    pthread_mutex_lock(&device->staging->lock);
    *stream = own->stream;
    pthread_mutex_unlock(&device->staging->lock);
    if (!*stream)
        error = stream_create(device, &made);
    if (error || !made)
        return error;
    pthread_mutex_lock(&device->staging->lock);
    if (!own->stream) {
        own->stream = made;
        made = NULL;
    }
    *stream = own->stream;
    pthread_mutex_unlock(&device->staging->lock);
    if (made) /* another lane was faster */
        own->driver->cuStreamDestroy_v2(made);
    return 0;
}

/* Makes the context current, and a stream. */
static int cuda_begin(struct staging_lane *lane)
{
    struct cuda_lane *own = cuda_lane(lane);
    int error = staging_cuda_enter(lane->device);

    if (error || own->stream)
        return error;
    return staging_count_sharing(lane->device) > 1 ? stream_share(lane->device, &own->stream)
                                                   : stream_create(lane->device, &own->stream);
}

/* ---- buffers ------------------------------------------------------------------------------- */

/* Waits until the driver is done with the buffer. */
static int buffer_wait(struct staging_lane *lane, struct cuda_buffer *buffer, const char *doing)
{
    if (!buffer->is_busy)
        return 0;
    int error = CALL(lane->device, doing, cuEventSynchronize, (buffer->event));
    buffer->is_busy = error != 0;
    return error;
}

/* Marks the buffer busy even if the event cannot be recorded, because the copy may have started. */
static int buffer_record(struct staging_lane *lane, struct cuda_buffer *buffer, const char *doing)
{
    buffer->is_busy = true;
    return CALL(lane->device, doing, cuEventRecord, (buffer->event, cuda_lane(lane)->stream));
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + HUGE_PAGE_BYTES - 1) & ~(HUGE_PAGE_BYTES - 1);
}

/* Reserves addresses for whole huge pages, aligned to them. NULL: see errno. */
static uint8_t *reserve(size_t bytes)
{
    uint8_t *at = mmap(NULL, bytes + HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    size_t head = -(uintptr_t)at & (HUGE_PAGE_BYTES - 1);
    if (head > 0)
        munmap(at, head);
    munmap(at + head + bytes, HUGE_PAGE_BYTES - head);
    madvise(at + head, bytes, MADV_HUGEPAGE);
    return at + head;
}

static size_t ring_bytes(const struct staging_lane *lane)
{
    return whole_pages(STAGING_BUFFERS * cuda_device(lane->device)->buffer_bytes);
}

static int ring_reserve(struct staging_lane *lane)
{
    char text[STAGING_ERROR_BYTES];

    cuda_lane(lane)->ring = reserve(ring_bytes(lane));
    if (cuda_lane(lane)->ring)
        return 0;
    snprintf(text, sizeof(text), "mmap: %s", strerror(errno));
    return staging_fail(lane->device, DOING_PIN, text, -ENOMEM);
}

static unsigned ring_size(const struct cuda_lane *own)
{
    return own->is_whole ? own->pinned : STAGING_BUFFERS;
}

/* Handles the driver's refusal: work needs one buffer, more are for speed, so a ring with at least
 * one stays as it is. */
static int ring_refused(struct staging_lane *lane, const char *doing, const char *call,
                        enum drv_result result)
{
    cuda_lane(lane)->is_whole = cuda_lane(lane)->pinned > 0;
    return cuda_lane(lane)->is_whole ? 0 : cuda_result(lane->device, doing, call, result);
}

/* Adds a buffer to the ring, or finds that it cannot grow. */
static int ring_grow(struct staging_lane *lane)
{
    const struct drv *driver = cuda_device(lane->device)->driver;
    size_t bytes = cuda_device(lane->device)->buffer_bytes;
    struct cuda_lane *own = cuda_lane(lane);
    struct cuda_buffer *buffer = &own->buffers[own->pinned];
    int error = own->ring ? 0 : ring_reserve(lane);
    enum drv_result result;

    if (error)
        return error;
    uint64_t span_us = timeline_begin();
    buffer->bytes = own->ring + own->pinned * bytes;
    pages_make(buffer->bytes, bytes);
    result = driver->cuMemHostRegister_v2(buffer->bytes, bytes, DRV_HOST_REGISTER_PORTABLE);
    timeline_end("load", "pin", span_us, NULL);
    if (result != DRV_SUCCESS)
        return ring_refused(lane, DOING_PIN, "cuMemHostRegister_v2", result);
    result = driver->cuEventCreate(&buffer->event, DRV_EVENT_DISABLE_TIMING);
    if (result != DRV_SUCCESS) {
        driver->cuMemHostUnregister(buffer->bytes);
        return ring_refused(lane, DOING_OPEN, "cuEventCreate", result);
    }
    own->pinned++;
    return 0;
}

static void ring_release(struct staging_lane *lane)
{
    const struct drv *driver = cuda_device(lane->device)->driver;
    struct cuda_lane *own = cuda_lane(lane);

    for (; own->pinned > 0; own->pinned--) {
        struct cuda_buffer *buffer = &own->buffers[own->pinned - 1];
        driver->cuEventDestroy_v2(buffer->event);
        if (!own->is_of_block)
            driver->cuMemHostUnregister(buffer->bytes);
        *buffer = (struct cuda_buffer){0};
    }
    if (own->ring && !own->is_of_block)
        munmap(own->ring, ring_bytes(lane));
    own->ring = NULL;
    own->is_whole = false;
    own->is_of_block = false;
}

/* ---- rings before there is work ------------------------------------------------------------ */

/* Makes one block for the rings of all lanes, mapped, populated and pinned by one call each. Calls
 * of the driver exclude each other, and so do mapping and making pages: lanes that made their own
 * rings did so one after the other, and delayed the mapping of the store's memory. */
static void block_make(struct cuda_device *own, size_t bytes)
{
    own->block_bytes = whole_pages(bytes);
    own->block = reserve(own->block_bytes);
    if (own->block)
        pages_make(own->block, own->block_bytes);
}

/* Gives back what devices that share the ring bytes leave unused of a block made before their
 * number was known. */
static void block_trim(struct cuda_device *own, size_t bytes)
{
    if (!own->block || whole_pages(bytes) >= own->block_bytes)
        return;
    munmap(own->block + whole_pages(bytes), own->block_bytes - whole_pages(bytes));
    own->block_bytes = whole_pages(bytes);
}

/* Makes pages for the largest buffers, because the size is not chosen yet. */
static void cuda_make_pages(struct staging_device *device, unsigned lanes)
{
    size_t most = (size_t)lanes * STAGING_BUFFERS * STAGING_BUFFER_MAX_BYTES;

    block_make(cuda_device(device), most < STAGING_RING_BYTES ? most : STAGING_RING_BYTES);
}

static void block_pin(struct cuda_device *own)
{
    own->is_block_pinned =
        own->block && own->driver->cuMemHostRegister_v2(own->block, own->block_bytes,
                                                        DRV_HOST_REGISTER_PORTABLE) == DRV_SUCCESS;
}

static bool block_make_events(const struct drv *driver, struct cuda_lane *own)
{
    unsigned made = 0;

    while (made < STAGING_BUFFERS && driver->cuEventCreate(&own->buffers[made].event,
                                                           DRV_EVENT_DISABLE_TIMING) == DRV_SUCCESS)
        made++;
    if (made == STAGING_BUFFERS)
        return true;
    while (made > 0) {
        driver->cuEventDestroy_v2(own->buffers[--made].event);
        own->buffers[made].event = NULL;
    }
    return false;
}

/* Gives the lane a ring from the block. A lane without room or events pins a ring of its own
 * later. */
static void block_cut(struct staging_lane *lane, unsigned index)
{
    const struct cuda_device *device = cuda_device(lane->device);
    struct cuda_lane *own = cuda_lane(lane);
    size_t bytes = STAGING_BUFFERS * device->buffer_bytes;

    if ((index + 1) * bytes > device->block_bytes || !block_make_events(device->driver, own))
        return;
    own->is_of_block = true;
    own->ring = device->block + index * bytes;
    for (; own->pinned < STAGING_BUFFERS; own->pinned++)
        own->buffers[own->pinned].bytes = own->ring + own->pinned * device->buffer_bytes;
}

/* ---- lanes --------------------------------------------------------------------------------- */

static void cuda_warm(struct staging_device *device, struct staging_lane *const *lanes,
                      unsigned count)
{
    struct cuda_device *own = cuda_device(device);

    const size_t bytes = count * STAGING_BUFFERS * own->buffer_bytes;

    if (staging_count_sharing(device) > 1)
        block_trim(own, bytes);
    if (!own->block)
        block_make(own, bytes);
    if (cuda_begin(lanes[0]) == 0)
        block_pin(own);
    for (unsigned i = 0; own->is_block_pinned && i < count; i++) {
        if (cuda_begin(lanes[i]) == 0)
            block_cut(lanes[i], i);
        staging_cuda_leave(lanes[i]->device);
    }
    staging_cuda_leave(lanes[0]->device);
    if (own->block && !own->is_block_pinned) { /* lanes will need the memory */
        munmap(own->block, own->block_bytes);
        own->block = NULL;
    }
}

static int cuda_settle(struct staging_lane *lane)
{
    struct cuda_lane *own = cuda_lane(lane);
    int error = 0;

    if (own->stream) {
        error = staging_cuda_enter(lane->device);
        if (!error)
            error = CALL(lane->device, "finish copying", cuStreamSynchronize, (own->stream));
    }
    for (size_t i = 0; i < STAGING_BUFFERS; i++)
        own->buffers[i].is_busy = false;
    /* A short work uses only the buffers that are pinned already. */
    own->turn = 0;
    own->room_bytes = 0;
    own->ahead_bytes = 0;
    staging_cuda_leave(lane->device);
    return error;
}

/* Synchronizes the stream first: copies of a failed work may still use the buffers. */
static void cuda_release(struct staging_lane *lane)
{
    const struct drv *driver = cuda_device(lane->device)->driver;
    struct cuda_lane *own = cuda_lane(lane);

    if (staging_cuda_enter(lane->device) != 0)
        return;
    if (own->stream) {
        driver->cuStreamSynchronize(own->stream);
        if (own->stream != cuda_device(lane->device)->stream)
            driver->cuStreamDestroy_v2(own->stream);
    }
    own->stream = NULL;
    ring_release(lane);
    staging_cuda_leave(lane->device);
}

/* ---- towards the GPU ----------------------------------------------------------------------- */

/* Returns true if, at the end of a round, the first buffer is still busy and the ring may grow. */
static bool ring_is_short(const struct staging_lane *lane)
{
    const struct cuda_lane *own = cuda_lane(lane);
    const struct cuda_buffer *first = &own->buffers[0];

    return own->pinned < ring_size(own) &&
           (own->pinned == 0 ||
            (first->is_busy &&
             cuda_device(lane->device)->driver->cuEventQuery(first->event) != DRV_SUCCESS));
}

/* Returns twice the size of the room before, up to a buffer. */
static size_t ring_room_bytes(struct cuda_lane *own, size_t buffer_bytes)
{
    size_t bytes = own->room_bytes ? own->room_bytes : STAGING_FIRST_BYTES;

    own->room_bytes = bytes < buffer_bytes ? bytes * 2 : buffer_bytes;
    return bytes < buffer_bytes ? bytes : buffer_bytes;
}

static int cuda_room(struct staging_lane *lane, void *to, size_t most_bytes, uint8_t **room,
                     size_t *size_bytes)
{
    struct cuda_lane *own = cuda_lane(lane);
    size_t room_bytes = ring_room_bytes(own, cuda_device(lane->device)->buffer_bytes);
    int error = cuda_begin(lane);

    (void)to;
    *size_bytes = most_bytes < room_bytes ? most_bytes : room_bytes;
    if (!error && own->turn == own->pinned && ring_is_short(lane))
        error = ring_grow(lane);
    if (error)
        return error;
    if (own->turn == own->pinned)
        own->turn = 0;
    *room = own->buffers[own->turn].bytes;
    return buffer_wait(lane, &own->buffers[own->turn], DOING_SEND);
}

static int cuda_send(struct staging_lane *lane, void *to, const uint8_t *room, size_t size_bytes)
{
    struct cuda_lane *own = cuda_lane(lane);
    struct cuda_buffer *buffer = &own->buffers[own->turn++];
    int error = CALL(lane->device, DOING_SEND, cuMemcpyHtoDAsync_v2,
                     ((drv_pointer)(uintptr_t)to, room, size_bytes, own->stream));

    return error ? error : buffer_record(lane, buffer, DOING_SEND);
}

/* ---- from the GPU -------------------------------------------------------------------------- */

/* Waits for copies of an earlier fetch. */
static int cuda_fetch(struct staging_lane *lane)
{
    size_t buffer_bytes = cuda_device(lane->device)->buffer_bytes;
    struct cuda_lane *own = cuda_lane(lane);
    int error = cuda_begin(lane);

    if (buffer_bytes < lane->step_bytes)
        lane->step_bytes = buffer_bytes;
    for (size_t i = 0; !error && i < own->pinned; i++)
        error = buffer_wait(lane, &own->buffers[i], DOING_GET);
    own->turn = 0;
    own->ahead_bytes = 0;
    return error;
}

/* Asks for the part after those asked for already. */
static int cuda_ask(struct staging_lane *lane, unsigned index)
{
    struct cuda_lane *own = cuda_lane(lane);
    uint64_t left = lane->left_bytes - own->ahead_bytes;
    size_t step = left < lane->step_bytes ? (size_t)left : lane->step_bytes;
    int error = CALL(lane->device, DOING_GET, cuMemcpyDtoHAsync_v2,
                     (own->buffers[index].bytes,
                      (drv_pointer)(uintptr_t)(lane->from + own->ahead_bytes), step, own->stream));

    if (!error)
        error = buffer_record(lane, &own->buffers[index], DOING_GET);
    own->ahead_bytes += step;
    return error;
}

/* All buffers without a copy in flight are free: the caller is done with the last one. */
static int cuda_next(struct staging_lane *lane, size_t size_bytes, const uint8_t **part)
{
    struct cuda_lane *own = cuda_lane(lane);
    struct cuda_buffer *buffer = &own->buffers[own->turn];
    int error = staging_cuda_enter(lane->device);

    for (unsigned i = 0; !error && i < ring_size(own) && own->ahead_bytes < lane->left_bytes; i++) {
        unsigned index = (own->turn + i) % ring_size(own);
        if (index == own->pinned)
            error = ring_grow(lane);
        /* the ring may not have grown */
        index = (own->turn + i) % ring_size(own);
        if (!error && !own->buffers[index].is_busy)
            error = cuda_ask(lane, index);
    }
    if (!error)
        error = buffer_wait(lane, buffer, DOING_GET);
    *part = buffer->bytes;
    own->ahead_bytes -= size_bytes;
    own->turn = (own->turn + 1) % ring_size(own);
    return error;
}

const struct staging_kind staging_cuda = {
    .is_copied = true,
    .wants_few = true,
    .most_threads = STAGING_GPU_THREADS,
    .device_bytes = sizeof(struct cuda_device),
    .lane_bytes = sizeof(struct cuda_lane),
    .find = cuda_find,
    .open = cuda_open,
    .close = cuda_close,
    .prepare = cuda_prepare,
    .make_pages = cuda_make_pages,
    .warm = cuda_warm,
    .settle = cuda_settle,
    .release = cuda_release,
    .send = cuda_send,
    .fetch = cuda_fetch,
    .room = cuda_room,
    .next = cuda_next,
    .way_out = cuda_way_out,
};
