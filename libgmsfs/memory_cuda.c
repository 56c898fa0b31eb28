/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's memory: imported descriptors, mapped through the CUDA driver. */
#include <errno.h>
#include <stdio.h>

#include "memory_cuda.h"

static int gfs_cuda_ordinal(const struct gfs_memory *memory)
{
    return ((const struct gfs_cuda *)memory->device)->device;
}

/* Turns: one launch after the other on a GPU. Called for every launch, in the context that the
 * program has current: so no scope, and as few calls of the driver as may be. */

/* The event ended with its context, and so did the launch before it. */
static int turn_is_gone(enum drv_result result)
{
    return result == DRV_INVALID_HANDLE || result == DRV_CONTEXT_IS_DESTROYED;
}

/* Waiting for work outside of it would break a capture. */
static int turn_check_capture(const struct drv *driver, struct drv_stream *stream)
{
    enum drv_capture_status status = DRV_CAPTURE_NONE;
    enum drv_result result = driver->cuStreamIsCapturing(stream, &status);

    if (result == DRV_SUCCESS && status != DRV_CAPTURE_NONE)
        return -EBUSY;
    return drv_errno(result);
}

static int gfs_cuda_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                              int refuse)
{
    const struct drv *driver = ((const struct gfs_cuda *)memory->device)->driver;
    int error = turn_check_capture(driver, stream);

    if (error || !turn->event)
        return error;
    enum drv_result result = refuse ? driver->cuEventQuery(turn->event)
                                    : driver->cuStreamWaitEvent(stream, turn->event, 0);
    if (turn_is_gone(result)) {
        *turn = (struct gfs_turn){0};
        return 0;
    }
    return result == DRV_NOT_READY ? -EBUSY : drv_errno(result);
}

static enum drv_result turn_make(const struct drv *driver, struct gfs_turn *turn)
{
    struct drv_context *context = NULL;
    struct drv_event *event = NULL;
    enum drv_result result = driver->cuCtxGetCurrent(&context);

    if (result == DRV_SUCCESS)
        result = driver->cuEventCreate(&event, DRV_EVENT_DISABLE_TIMING);
    if (result == DRV_SUCCESS)
        *turn = (struct gfs_turn){.event = event, .context = context};
    return result;
}

static int gfs_cuda_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream)
{
    const struct drv *driver = ((const struct gfs_cuda *)memory->device)->driver;
    enum drv_result result = turn->event ? DRV_SUCCESS : turn_make(driver, turn);

    if (result == DRV_SUCCESS)
        result = driver->cuEventRecord(turn->event, stream);
    if (turn_is_gone(result)) {
        result = turn_make(driver, turn);
        if (result == DRV_SUCCESS)
            result = driver->cuEventRecord(turn->event, stream);
    }
    return drv_errno(result);
}

/* An event of another context goes with that, which may have ended. */
static void gfs_cuda_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn)
{
    const struct drv *driver = ((struct gfs_cuda *)memory->device)->driver;
    struct drv_context *context = NULL;

    if (driver->cuCtxGetCurrent(&context) == DRV_SUCCESS && context == turn->context)
        driver->cuEventDestroy_v2(turn->event);
}

#define CUDA_DEVICES_MAX 64 /* bits of a set of devices */

/* ---- waiting ------------------------------------------------------------------------------ */

/* For non-blocking streams that the program did not name. cuCtxSynchronize breaks a capture on one
 * of them, in every mode of the thread; freeing memory also waits for all work of the context, and
 * breaks none (measured: H200, driver 580; 50 to 600 us with nothing to wait for, 2 with the
 * anchor). If there is no memory for an allocation, the anchor itself is freed. Without an anchor
 * an unknown capture is at risk rather than the data, but never a known one. */
static int cuda_wait_for_all(struct gfs_memory *memory)
{
    struct gfs_cuda *cuda = memory->device;
    drv_pointer bait = 0;
    enum drv_result result = cuda->driver->cuMemAlloc_v2(&bait, 1);

    if (result == DRV_OUT_OF_MEMORY) { /* no complaint: nothing that was asked for failed */
        bait = gfs_cuda_take_anchor(cuda);
        if (!bait)
            return memory->scope->capturing ? 0 : GFS_CUDA_CALL(memory, cuCtxSynchronize, ());
    } else if (result != DRV_SUCCESS) {
        return gfs_cuda_result(memory, "cuMemAlloc_v2", result);
    }
    return GFS_CUDA_CALL(memory, cuMemFree_v2, (bait));
}

/* Waiting for a capturing stream would break the capture; the captured work is not on the device
 * yet. */
static int cuda_wait_for_stream(struct gfs_memory *memory, struct drv_stream *stream)
{
    const struct gfs_cuda *cuda = memory->device;
    enum drv_capture_status status = DRV_CAPTURE_NONE;

    if (memory->scope->capturing &&
        (cuda->driver->cuStreamIsCapturing(stream, &status) != DRV_SUCCESS ||
         status != DRV_CAPTURE_NONE))
        return 0;
    return GFS_CUDA_CALL(memory, cuStreamSynchronize, (stream));
}

/* Unmapping does not wait for kernels (measured), nor does a change of rights. The legacy stream
 * says by an error that a blocking stream captures. */
static int cuda_synchronise(struct gfs_memory *memory)
{
    int error = 0;

    if (!memory->device)
        return 0;
    if (memory->wishes.synchronise)
        return memory->wishes.synchronise(memory->wishes.synchronise_context);
    for (size_t i = 0; i < memory->wishes.stream_count && !error; i++)
        error = cuda_wait_for_stream(memory, memory->wishes.streams[i]);
    if (!error)
        error = cuda_wait_for_stream(memory, GFS_CUDA_LEGACY_STREAM);
    return error ? error : cuda_wait_for_all(memory);
}

/* ---- addresses ---------------------------------------------------------------------------- */

static int cuda_reserve(struct gfs_memory *memory, uint64_t size_bytes, uintptr_t *base)
{
    drv_pointer address = 0;
    int error = GFS_CUDA_CALL(memory, cuMemAddressReserve,
                              (&address, size_bytes, memory->granularity_bytes, 0, 0));

    if (!error)
        *base = (uintptr_t)address;
    return error;
}

static void cuda_release(struct gfs_memory *memory, uintptr_t base, uint64_t size_bytes)
{
    GFS_CUDA_CALL(memory, cuMemAddressFree, (base, size_bytes));
}

/* ---- mappings ----------------------------------------------------------------------------- */

/* The mapping keeps the memory: the handle is released at once, also after a failure. */
static int cuda_map(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                    enum gmsfs_access access, int fd)
{
    drv_memory imported;
    int error = GFS_CUDA_CALL(memory, cuMemImportFromShareableHandle,
                              (&imported, (void *)(intptr_t)fd, DRV_HANDLE_POSIX_FILE_DESCRIPTOR));

    (void)access;
    if (error)
        return error;
    error = GFS_CUDA_CALL(memory, cuMemMap, (va, size_bytes, 0, imported, 0));
    ((struct gfs_cuda *)memory->device)->driver->cuMemRelease(imported);
    return error;
}

static int cuda_append(struct gfs_memory *memory, struct gfs_range *range, uint64_t size_bytes,
                       uint64_t used_bytes, enum gmsfs_access access, int fd)
{
    (void)used_bytes;
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
    drv_device device = ((struct gfs_cuda *)memory->device)->device;
    int error = cuda_add_device(memory, device, devices);

    for (size_t i = 0; i < memory->wishes.device_count && !error; i++) {
        error = gfs_cuda_find(memory, memory->wishes.devices[i], &device);
        if (!error)
            error = cuda_add_device(memory, device, devices);
    }
    return error;
}

/* Replaces the rights of these devices; other devices keep theirs (measured). */
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
    return GFS_CUDA_CALL(memory, cuMemSetAccess, (va, size_bytes, rights, count));
}

/* ---- the way back --------------------------------------------------------------------------- */

static int cuda_unmap(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes)
{
    return GFS_CUDA_CALL(memory, cuMemUnmap, (va, size_bytes));
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
    int error = GFS_CUDA_CALL(memory, cuMemAlloc_v2, (&made, copy->size_bytes));

    if (error)
        return error;
    copy->id = gfs_cuda_identify(memory->device, made);
    error = GFS_CUDA_CALL(memory, cuMemcpyDtoD_v2, (made, from, copy->size_bytes));
    if (!error)
        error = GFS_CUDA_CALL(memory, cuStreamSynchronize, (GFS_CUDA_LEGACY_STREAM));
    if (error)
        ((struct gfs_cuda *)memory->device)->driver->cuMemFree_v2(made);
    else
        copy->va = (uintptr_t)made;
    return error;
}

static void cuda_drop_copy(struct gfs_memory *memory, const struct gfs_copy *copy)
{
    if (!gfs_cuda_is_gone(memory->device, copy->va, copy->id))
        GFS_CUDA_CALL(memory, cuMemFree_v2, (copy->va));
}

/* ---- memory that is mapped at several places ------------------------------------------------ */

/* Importing costs far more than mapping: once for each piece of memory, however often it is mapped.
 */
static int cuda_hold(struct gfs_memory *memory, uint64_t size_bytes, int fd, struct gfs_held *held)
{
    drv_memory imported;
    int error = GFS_CUDA_CALL(memory, cuMemImportFromShareableHandle,
                              (&imported, (void *)(intptr_t)fd, DRV_HANDLE_POSIX_FILE_DESCRIPTOR));

    (void)size_bytes;
    if (!error)
        held->id = imported;
    return error;
}

static int cuda_map_held(struct gfs_memory *memory, uintptr_t va, uint64_t size_bytes,
                         const struct gfs_held *held)
{
    return GFS_CUDA_CALL(memory, cuMemMap, (va, size_bytes, 0, held->id, 0));
}

static void cuda_let_go(struct gfs_memory *memory, uint64_t size_bytes, const struct gfs_held *held)
{
    (void)size_bytes;
    GFS_CUDA_CALL(memory, cuMemRelease, (held->id));
}

const struct gfs_memory_kind gfs_memory_cuda = {
    .name = "cuda",
    .open = gfs_cuda_open,
    .close = gfs_cuda_close,
    .enter = gfs_cuda_enter,
    .leave = gfs_cuda_leave,
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
    .hold = cuda_hold,
    .map_held = cuda_map_held,
    .let_go = cuda_let_go,
    .wait_turn = gfs_cuda_wait_turn,
    .end_turn = gfs_cuda_end_turn,
    .drop_turn = gfs_cuda_drop_turn,
    .ordinal = gfs_cuda_ordinal,
};
