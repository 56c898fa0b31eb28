/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's memory: imported descriptors, mapped through the CUDA driver.
 *
 * The driver's calls of a thread go between cuda_enter and cuda_leave, where a context of the
 * device is current and the thread's capture mode is relaxed: so none of them invalidates a
 * capture, ours or another thread's. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "internal.h"

#define CUDA_LEGACY_STREAM ((struct drv_stream *)1) /* CU_STREAM_LEGACY */
#define CUDA_DEVICES_MAX   64                       /* bits of a set of devices */

struct cuda_device {
    const struct drv *driver;
    drv_device device;
    struct drv_context *primary; /* retained; NULL: was not needed so far */
    drv_pointer anchor;          /* see cuda_anchor; 0: none */
    uint64_t anchor_id;
    int anchored; /* or tried to */
    int pushed;
    int capturing; /* only where it could not be refused */
    enum drv_capture_mode mode;
};

static int cuda_failed(struct gfs_memory *memory, const char *call, enum drv_result result)
{
    const struct cuda_device *cuda = memory->device;

    return drv_explain(cuda->driver, call, result, memory->error, sizeof memory->error);
}

#define CUDA_CALL(memory, call, arguments) \
    cuda_result(memory, #call, ((struct cuda_device *)(memory)->device)->driver->call arguments)

static int cuda_result(struct gfs_memory *memory, const char *call, enum drv_result result)
{
    return result == DRV_SUCCESS ? 0 : cuda_failed(memory, call, result);
}

/* ---- the device --------------------------------------------------------------------------- */

static int cuda_find(struct gfs_memory *memory, const uint8_t uuid[16], drv_device *found)
{
    const struct cuda_device *cuda = memory->device;

    return drv_find(cuda->driver, uuid, found, memory->error, sizeof memory->error);
}

/* A program may end the context in which something was allocated; what is at the address then is
 * nobody's, or somebody else's. 0: the driver does not tell. */
static uint64_t cuda_identify(const struct cuda_device *cuda, drv_pointer address)
{
    unsigned long long id = 0;

    if (cuda->driver->cuPointerGetAttribute(&id, DRV_POINTER_BUFFER_ID, address) != DRV_SUCCESS)
        id = 0;
    return id;
}

static int cuda_is_gone(const struct cuda_device *cuda, drv_pointer address, uint64_t id)
{
    unsigned long long now = 0;
    enum drv_result result =
        cuda->driver->cuPointerGetAttribute(&now, DRV_POINTER_BUFFER_ID, address);

    return id && (result == DRV_INVALID_VALUE || (result == DRV_SUCCESS && now != id));
}

/* A program that resets the primary context ends our reference with it; a reference that is given
 * back all the same would be the program's next one. The anchor tells, or that nobody has it. */
static void cuda_check_primary(struct cuda_device *cuda)
{
    unsigned flags;
    int active = 1;

    if (!cuda->primary)
        return;
    if (cuda->anchor ? !cuda_is_gone(cuda, cuda->anchor, cuda->anchor_id)
                     : cuda->driver->cuDevicePrimaryCtxGetState(cuda->device, &flags, &active) !=
                               DRV_SUCCESS ||
                           active)
        return;
    cuda->primary = NULL;
    cuda->anchor = 0;
    cuda->anchored = 0;
}

static void cuda_drop_anchor(struct cuda_device *cuda)
{
    const struct drv *driver = cuda->driver;
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_RELAXED;
    struct drv_context *popped;

    driver->cuThreadExchangeStreamCaptureMode(&mode);
    if (driver->cuCtxPushCurrent_v2(cuda->primary) == DRV_SUCCESS) {
        driver->cuMemFree_v2(cuda->anchor);
        driver->cuCtxPopCurrent_v2(&popped);
    }
    driver->cuThreadExchangeStreamCaptureMode(&mode);
}

static void cuda_close(struct gfs_memory *memory)
{
    struct cuda_device *cuda = memory->device;

    cuda_check_primary(cuda);
    if (cuda->anchor)
        cuda_drop_anchor(cuda);
    if (cuda->primary)
        cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
    free(cuda);
}

static int cuda_open(struct gfs_memory *memory)
{
    struct cuda_device *cuda = calloc(1, sizeof *cuda);
    int r;

    if (!cuda)
        return -ENOMEM;
    r = drv_open(&cuda->driver, memory->error, sizeof memory->error);
    if (!r) {
        memory->device = cuda;
        r = cuda_find(memory, memory->uuid, &cuda->device);
    }
    if (r) {
        memory->device = NULL;
        free(cuda);
    }
    return r;
}

/* ---- entering ----------------------------------------------------------------------------- */

/* Does some stream record what it is given, instead of doing it? A blocking stream that does shows
 * itself at the legacy one; others are known only if the caller named them. */
static int cuda_check_captures(struct gfs_memory *memory)
{
    struct cuda_device *cuda = memory->device;
    enum drv_capture_status status;
    enum drv_result result;

    for (size_t i = 0; i <= memory->wishes.stream_count; i++) {
        struct drv_stream *stream =
            i < memory->wishes.stream_count ? memory->wishes.streams[i] : CUDA_LEGACY_STREAM;
        status = DRV_CAPTURE_NONE;
        result = cuda->driver->cuStreamIsCapturing(stream, &status);
        if (result == DRV_STREAM_CAPTURE_IMPLICIT || (!result && status != DRV_CAPTURE_NONE)) {
            snprintf(memory->error, sizeof memory->error, "a stream is capturing");
            return -EBUSY;
        }
        if (result != DRV_SUCCESS)
            return cuda_failed(memory, "cuStreamIsCapturing", result);
    }
    return 0;
}

/* The caller's context, if it is one of the device; else the primary one. */
static int cuda_take_context(struct gfs_memory *memory)
{
    struct cuda_device *cuda = memory->device;
    struct drv_context *current = NULL;
    drv_device device;
    int r = CUDA_CALL(memory, cuCtxGetCurrent, (&current));

    if (r)
        return r;
    if (current && cuda->driver->cuCtxGetDevice(&device) == DRV_SUCCESS && device == cuda->device)
        return 0;
    if (!cuda->primary)
        r = CUDA_CALL(memory, cuDevicePrimaryCtxRetain, (&cuda->primary, cuda->device));
    if (!r)
        r = CUDA_CALL(memory, cuCtxPushCurrent_v2, (cuda->primary));
    cuda->pushed = !r;
    return r;
}

/* Is the primary context what this thread works in? Then it is kept. Another context is the
 * program's choice: its primary one, which it may have no use for, is not held for it. */
static int cuda_is_in_primary(struct cuda_device *cuda)
{
    struct drv_context *current = NULL, *primary = NULL;
    unsigned flags;
    int active = 0;

    if (cuda->driver->cuCtxGetCurrent(&current) != DRV_SUCCESS || !current)
        return 0;
    if (cuda->primary)
        return current == cuda->primary;
    if (cuda->driver->cuDevicePrimaryCtxGetState(cuda->device, &flags, &active) != DRV_SUCCESS ||
        !active || cuda->driver->cuDevicePrimaryCtxRetain(&primary, cuda->device) != DRV_SUCCESS)
        return 0;
    if (current == primary)
        cuda->primary = primary;
    else
        cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
    return current == primary;
}

/* A byte of the device that stays until the handle is closed, so that the one of cuda_wait_for_all
 * lies beside it, in memory that is mapped already: 2 us instead of 50 to 600 (measured there).
 * Only in the primary context: that of a caller may be gone when the byte is given back. Without
 * it, all works as well. */
static void cuda_anchor(struct cuda_device *cuda)
{
    cuda->anchored = 1;
    if (!cuda_is_in_primary(cuda))
        return;
    if (cuda->driver->cuMemAlloc_v2(&cuda->anchor, 1) == DRV_SUCCESS)
        cuda->anchor_id = cuda_identify(cuda, cuda->anchor);
    else
        cuda->anchor = 0;
}

static void cuda_leave(struct gfs_memory *memory)
{
    struct cuda_device *cuda = memory->device;
    struct drv_context *popped;

    if (cuda->pushed)
        cuda->driver->cuCtxPopCurrent_v2(&popped);
    cuda->pushed = 0;
    cuda->driver->cuThreadExchangeStreamCaptureMode(&cuda->mode);
}

static int cuda_enter(struct gfs_memory *memory, int must)
{
    struct cuda_device *cuda = memory->device;
    int r;

    cuda->mode = DRV_CAPTURE_MODE_RELAXED;
    r = CUDA_CALL(memory, cuThreadExchangeStreamCaptureMode, (&cuda->mode));
    if (r)
        return r;
    cuda_check_primary(cuda);
    r = cuda_take_context(memory);
    cuda->capturing = 0;
    if (!r) {
        r = cuda_check_captures(memory);
        cuda->capturing = r == -EBUSY;
        if (must)
            r = 0;
    }
    if (r)
        cuda_leave(memory);
    else if (!cuda->anchored && !cuda->capturing)
        cuda_anchor(cuda);
    return r;
}

/* The anchor, to be given back at once; the next enter makes another. 0: there is none in the
 * context that is current. */
static drv_pointer cuda_take_anchor(struct cuda_device *cuda)
{
    struct drv_context *current = NULL;
    drv_pointer anchor = cuda->anchor;

    if (!anchor || cuda->driver->cuCtxGetCurrent(&current) != DRV_SUCCESS ||
        current != cuda->primary)
        return 0;
    cuda->anchor = 0;
    cuda->anchored = 0;
    return anchor;
}

/* For streams that nobody named and that do not block. cuCtxSynchronize breaks a capture on one of
 * them, whatever the thread's mode; giving memory back waits for all work of the context as well,
 * and breaks none (measured: H200, driver 580; 50 to 600 us where there is nothing to wait for, 2
 * with the anchor). Where there is no memory for it, the anchor itself is given back; without one,
 * a capture that cannot be known of is at risk rather than the data, but never one that is known.
 */
static int cuda_wait_for_all(struct gfs_memory *memory)
{
    struct cuda_device *cuda = memory->device;
    drv_pointer bait = 0;
    enum drv_result result = cuda->driver->cuMemAlloc_v2(&bait, 1);

    if (result == DRV_OUT_OF_MEMORY) { /* no complaint: nothing that was asked for failed */
        bait = cuda_take_anchor(cuda);
        if (!bait)
            return cuda->capturing ? 0 : CUDA_CALL(memory, cuCtxSynchronize, ());
    } else if (result != DRV_SUCCESS) {
        return cuda_failed(memory, "cuMemAlloc_v2", result);
    }
    return CUDA_CALL(memory, cuMemFree_v2, (bait));
}

/* Waiting for a stream that captures would break the capture; what is captured has not been given
 * to the device yet. */
static int cuda_wait_for_stream(struct gfs_memory *memory, struct drv_stream *stream)
{
    const struct cuda_device *cuda = memory->device;
    enum drv_capture_status status = DRV_CAPTURE_NONE;

    if (cuda->capturing && (cuda->driver->cuStreamIsCapturing(stream, &status) != DRV_SUCCESS ||
                            status != DRV_CAPTURE_NONE))
        return 0;
    return CUDA_CALL(memory, cuStreamSynchronize, (stream));
}

/* Unmapping does not wait for kernels (measured), nor does a change of rights. The legacy stream
 * says by an error that a blocking stream captures. */
static int cuda_synchronise(struct gfs_memory *memory)
{
    int r = 0;

    if (!memory->device)
        return 0;
    if (memory->wishes.synchronise)
        return memory->wishes.synchronise(memory->wishes.synchronise_context);
    for (size_t i = 0; i < memory->wishes.stream_count && !r; i++)
        r = cuda_wait_for_stream(memory, memory->wishes.streams[i]);
    if (!r)
        r = cuda_wait_for_stream(memory, CUDA_LEGACY_STREAM);
    return r ? r : cuda_wait_for_all(memory);
}

/* ---- addresses ---------------------------------------------------------------------------- */

static int cuda_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base)
{
    drv_pointer address = 0;
    int r = CUDA_CALL(memory, cuMemAddressReserve,
                      (&address, size_bytes, memory->granularity_bytes, 0, 0));

    if (!r)
        *base = (uintptr_t)address;
    return r;
}

static void cuda_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes)
{
    CUDA_CALL(memory, cuMemAddressFree, (base, size_bytes));
}

/* ---- mappings ----------------------------------------------------------------------------- */

/* The mapping keeps the memory: the handle goes at once, whatever came of it. */
static int cuda_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                    enum gmsfs_access access, int fd)
{
    drv_memory imported;
    int r = CUDA_CALL(memory, cuMemImportFromShareableHandle,
                      (&imported, (void *)(intptr_t)fd, DRV_HANDLE_POSIX_FILE_DESCRIPTOR));

    (void)access;
    if (r)
        return r;
    r = CUDA_CALL(memory, cuMemMap, (va, size_bytes, 0, imported, 0));
    ((struct cuda_device *)memory->device)->driver->cuMemRelease(imported);
    return r;
}

static int cuda_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                       enum gmsfs_access access, int fd)
{
    return cuda_map(memory, range->base + range->mapped_bytes, size_bytes, access, fd);
}

/* ---- rights: each device's own -------------------------------------------------------------- */

/* A set has a bit for each ordinal of this process. */
static int cuda_add_device(struct gfs_memory *memory, drv_device device, uint64_t *devices)
{
    if (device < 0 || device >= CUDA_DEVICES_MAX) {
        snprintf(memory->error, sizeof memory->error,
                 "device %d: gmsfs lets in the first %d devices of a process", device,
                 CUDA_DEVICES_MAX);
        return -EOPNOTSUPP;
    }
    *devices |= UINT64_C(1) << device;
    return 0;
}

static int cuda_find_devices(struct gfs_memory *memory, uint64_t *devices)
{
    drv_device device = ((struct cuda_device *)memory->device)->device;
    int r = cuda_add_device(memory, device, devices);

    for (size_t i = 0; i < memory->wishes.device_count && !r; i++) {
        r = cuda_find(memory, memory->wishes.devices[i], &device);
        if (!r)
            r = cuda_add_device(memory, device, devices);
    }
    return r;
}

/* Replaces what these devices had; a device that is not named keeps what it has (measured). */
static int cuda_set_access(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                           enum gmsfs_access access, uint64_t devices)
{
    struct drv_access_desc rights[CUDA_DEVICES_MAX];
    size_t count = 0;

    for (drv_device device = 0; device < CUDA_DEVICES_MAX; device++)
        if (devices >> device & 1)
            rights[count++] = (struct drv_access_desc){
                .location = {.type = DRV_LOCATION_DEVICE, .id = device},
                .flags = access == GMSFS_ACCESS_WRITE ? DRV_ACCESS_READWRITE : DRV_ACCESS_READ,
            };
    return CUDA_CALL(memory, cuMemSetAccess, (va, size_bytes, rights, count));
}

/* ---- the way back --------------------------------------------------------------------------- */

static int cuda_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes)
{
    return CUDA_CALL(memory, cuMemUnmap, (va, size_bytes));
}

static void cuda_cancel(struct gfs_memory *memory, const struct gfs_range *range)
{
    if (range->mapped_bytes)
        cuda_unmap(memory, range->base, range->mapped_bytes);
    cuda_release(memory, range->base, range->reserved_bytes);
}

/* ---- private copies ------------------------------------------------------------------------- */

/* A copy between two places of the device is done some time after the call. */
static int cuda_copy(struct gfs_memory *memory, uintptr_t from, struct gfs_copy *copy)
{
    drv_pointer made;
    int r = CUDA_CALL(memory, cuMemAlloc_v2, (&made, copy->size_bytes));

    if (r)
        return r;
    copy->id = cuda_identify(memory->device, made);
    r = CUDA_CALL(memory, cuMemcpyDtoD_v2, (made, from, copy->size_bytes));
    if (!r)
        r = CUDA_CALL(memory, cuStreamSynchronize, (CUDA_LEGACY_STREAM));
    if (r)
        ((struct cuda_device *)memory->device)->driver->cuMemFree_v2(made);
    else
        copy->va = (uintptr_t)made;
    return r;
}

static void cuda_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy)
{
    if (!cuda_is_gone(memory->device, copy->va, copy->id))
        CUDA_CALL(memory, cuMemFree_v2, (copy->va));
}

const struct gfs_memory_kind gfs_memory_cuda = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .synchronise = cuda_synchronise,
    .reserve = cuda_reserve,
    .map = cuda_map,
    .append = cuda_append,
    .find_devices = cuda_find_devices,
    .settle = cuda_set_access,
    .protect = cuda_set_access,
    .unmap = cuda_unmap,
    .release = cuda_release,
    .cancel = cuda_cancel,
    .copy = cuda_copy,
    .drop_copy = cuda_drop_copy,
};
