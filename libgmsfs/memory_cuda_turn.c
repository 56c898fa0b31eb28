/* SPDX-License-Identifier: Apache-2.0 */
/* One launch after the other on a GPU. Called for every launch, in the context that the program has
 * current: so no scope, and as few calls of the driver as may be. */
#include <errno.h>

#include "memory_cuda.h"

int gfs_cuda_ordinal(const struct gfs_memory *memory)
{
    return ((const struct gfs_cuda *)memory->device)->device;
}

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

int gfs_cuda_wait_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream,
                       int refuse)
{
    const struct drv *driver = ((const struct gfs_cuda *)memory->device)->driver;
    enum drv_result result;
    int error = turn_check_capture(driver, stream);

    if (error || !turn->event)
        return error;
    result = refuse ? driver->cuEventQuery(turn->event)
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

int gfs_cuda_end_turn(const struct gfs_memory *memory, struct gfs_turn *turn, void *stream)
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
void gfs_cuda_drop_turn(struct gfs_memory *memory, struct gfs_turn *turn)
{
    const struct drv *driver = ((struct gfs_cuda *)memory->device)->driver;
    struct drv_context *context = NULL;

    if (driver->cuCtxGetCurrent(&context) == DRV_SUCCESS && context == turn->context)
        driver->cuEventDestroy_v2(turn->event);
}
