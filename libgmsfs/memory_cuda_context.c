/* SPDX-License-Identifier: Apache-2.0 */
/* The device of GPU memory, and the context in which a thread of the program calls the driver. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "memory_cuda.h"

#include "base/scope.h"

int gfs_cuda_result(struct gfs_memory *memory, const char *call, enum drv_result result)
{
    const struct gfs_cuda *cuda = memory->device;

    if (result == DRV_SUCCESS)
        return 0;
    return drv_explain(cuda->driver, call, result, memory->error, sizeof memory->error);
}

/* ---- the device --------------------------------------------------------------------------- */

int gfs_cuda_find(struct gfs_memory *memory, const uint8_t uuid[16], drv_device *found)
{
    const struct gfs_cuda *cuda = memory->device;

    return drv_find(cuda->driver, uuid, found, memory->error, sizeof memory->error);
}

uint64_t gfs_cuda_identify(const struct gfs_cuda *cuda, drv_pointer address)
{
    unsigned long long id = 0;

    if (cuda->driver->cuPointerGetAttribute(&id, DRV_POINTER_BUFFER_ID, address) != DRV_SUCCESS)
        id = 0;
    return id;
}

int gfs_cuda_is_gone(const struct gfs_cuda *cuda, drv_pointer address, uint64_t id)
{
    unsigned long long now = 0;
    enum drv_result result =
        cuda->driver->cuPointerGetAttribute(&now, DRV_POINTER_BUFFER_ID, address);

    return id && (result == DRV_INVALID_VALUE || (result == DRV_SUCCESS && now != id));
}

/* A program that resets the primary context ends our reference with it; releasing it again would
 * release the program's next one. The anchor shows such a reset, as does a primary context that is
 * not active. */
static void cuda_check_primary(struct gfs_cuda *cuda)
{
    unsigned flags;
    int active = 1;

    if (!cuda->primary)
        return;
    if (cuda->anchor ? !gfs_cuda_is_gone(cuda, cuda->anchor, cuda->anchor_id)
                     : cuda->driver->cuDevicePrimaryCtxGetState(cuda->device, &flags, &active) !=
                               DRV_SUCCESS ||
                           active)
        return;
    cuda->primary = NULL;
    cuda->anchor = 0;
    cuda->anchored = 0;
}

static void cuda_drop_anchor(struct gfs_cuda *cuda)
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

void gfs_cuda_close(struct gfs_memory *memory)
{
    SCOPED_FREE struct gfs_cuda *cuda = memory->device;

    cuda_check_primary(cuda);
    if (cuda->anchor)
        cuda_drop_anchor(cuda);
    if (cuda->primary)
        cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
}

int gfs_cuda_open(struct gfs_memory *memory)
{
    struct gfs_cuda *cuda = calloc(1, sizeof *cuda);
    int error;

    if (!cuda)
        return -ENOMEM;
    error = drv_open(&cuda->driver, memory->error, sizeof memory->error);
    if (!error) {
        memory->device = cuda;
        error = gfs_cuda_find(memory, memory->uuid, &cuda->device);
    }
    if (error) {
        memory->device = NULL;
        free(cuda);
    }
    return error;
}

/* ---- entering ----------------------------------------------------------------------------- */

/* True if a stream is capturing. A blocking stream that captures is visible at the legacy stream;
 * other streams are known only if the caller named them. */
static int cuda_check_captures(struct gfs_memory *memory)
{
    struct gfs_cuda *cuda = memory->device;
    enum drv_capture_status status;
    enum drv_result result;

    for (size_t i = 0; i <= memory->wishes.stream_count; i++) {
        struct drv_stream *stream =
            i < memory->wishes.stream_count ? memory->wishes.streams[i] : GFS_CUDA_LEGACY_STREAM;
        status = DRV_CAPTURE_NONE;
        result = cuda->driver->cuStreamIsCapturing(stream, &status);
        if (result == DRV_STREAM_CAPTURE_IMPLICIT || (!result && status != DRV_CAPTURE_NONE)) {
            snprintf(memory->error, sizeof memory->error, "a stream is capturing");
            return -EBUSY;
        }
        if (result != DRV_SUCCESS)
            return gfs_cuda_result(memory, "cuStreamIsCapturing", result);
    }
    return 0;
}

/* The caller's context, if it is one of the device; else the primary one. */
static int cuda_take_context(struct gfs_memory *memory, struct gfs_scope *scope)
{
    struct gfs_cuda *cuda = memory->device;
    struct drv_context *current = NULL;
    drv_device device;
    int error = GFS_CUDA_CALL(memory, cuCtxGetCurrent, (&current));

    if (error)
        return error;
    if (current && cuda->driver->cuCtxGetDevice(&device) == DRV_SUCCESS && device == cuda->device)
        return 0;
    if (!cuda->primary)
        error = GFS_CUDA_CALL(memory, cuDevicePrimaryCtxRetain, (&cuda->primary, cuda->device));
    if (!error)
        error = GFS_CUDA_CALL(memory, cuCtxPushCurrent_v2, (cuda->primary));
    scope->pushed = !error;
    return error;
}

/* Retains the primary context if it is this thread's current one. A program with another context
 * chose that, and may have no use for its primary one. */
static int cuda_is_in_primary(struct gfs_cuda *cuda)
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
static void cuda_anchor(struct gfs_cuda *cuda)
{
    cuda->anchored = 1;
    if (!cuda_is_in_primary(cuda))
        return;
    if (cuda->driver->cuMemAlloc_v2(&cuda->anchor, 1) == DRV_SUCCESS)
        cuda->anchor_id = gfs_cuda_identify(cuda, cuda->anchor);
    else
        cuda->anchor = 0;
}

void gfs_cuda_leave(struct gfs_memory *memory, const struct gfs_scope *scope)
{
    const struct gfs_cuda *cuda = memory->device;
    enum drv_capture_mode mode = (enum drv_capture_mode)scope->mode;
    struct drv_context *popped;

    if (scope->pushed)
        cuda->driver->cuCtxPopCurrent_v2(&popped);
    cuda->driver->cuThreadExchangeStreamCaptureMode(&mode);
}

int gfs_cuda_enter(struct gfs_memory *memory, struct gfs_scope *scope, int must)
{
    struct gfs_cuda *cuda = memory->device;
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_RELAXED;
    int error = GFS_CUDA_CALL(memory, cuThreadExchangeStreamCaptureMode, (&mode));

    if (error)
        return error;
    /* from here on there is something to put back */
    scope->mode = (int)mode;
    cuda_check_primary(cuda);
    error = cuda_take_context(memory, scope);
    if (!error) {
        error = cuda_check_captures(memory);
        scope->capturing = error == -EBUSY;
        if (must)
            error = 0;
    }
    if (error)
        gfs_cuda_leave(memory, scope);
    else if (!cuda->anchored && !scope->capturing)
        cuda_anchor(cuda);
    return error;
}

drv_pointer gfs_cuda_take_anchor(struct gfs_cuda *cuda)
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
