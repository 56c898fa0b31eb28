/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/gpu.h"

#include "cuda/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct window {
    drv_pointer address; /* 0: empty */
    drv_memory memory;
    uint64_t bytes;
};

struct gpu {
    const struct drv *driver;
    drv_device device;
    struct drv_context *context;
    void *pinned; /* NULL: the driver would not */
    struct window windows[COPIER_WINDOWS];
};

#define CALL(gpu, why, call, arguments) \
    explain((gpu)->driver, why, #call, (gpu)->driver->call arguments)

static int explain(const struct drv *driver, char *why, const char *call, enum drv_result result)
{
    if (result == DRV_SUCCESS)
        return 0;
    return drv_explain(driver, call, result, why, COPIER_WHY_BYTES);
}

/* ---- the context --------------------------------------------------------------------------- */

int gpu_open(const uint8_t uuid[16], void *ring, size_t ring_bytes, struct gpu **made, char *why)
{
    struct gpu *gpu = calloc(1, sizeof(*gpu));
    int rc;

    if (!gpu) {
        snprintf(why, COPIER_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    rc = drv_open(&gpu->driver, why, COPIER_WHY_BYTES);
    if (rc == 0)
        rc = drv_find(gpu->driver, uuid, &gpu->device, why, COPIER_WHY_BYTES);
    if (rc == 0)
        rc = CALL(gpu, why, cuDevicePrimaryCtxRetain, (&gpu->context, gpu->device));
    if (rc == 0)
        rc = CALL(gpu, why, cuCtxSetCurrent, (gpu->context));
    if (rc < 0) {
        free(gpu);
        return rc;
    }
    if (gpu->driver->cuMemHostRegister_v2(ring, ring_bytes, DRV_HOST_REGISTER_PORTABLE) ==
        DRV_SUCCESS)
        gpu->pinned = ring;
    *made = gpu;
    return 0;
}

void gpu_close(struct gpu *gpu)
{
    char why[COPIER_WHY_BYTES];

    for (unsigned window = 0; window < COPIER_WINDOWS; window++)
        gpu_unmap(gpu, window, why);
    if (gpu->pinned)
        gpu->driver->cuMemHostUnregister(gpu->pinned);
    gpu->driver->cuCtxSetCurrent(NULL);
    gpu->driver->cuDevicePrimaryCtxRelease_v2(gpu->device);
    free(gpu);
}

int gpu_enter(struct gpu *gpu, struct drv_stream **stream, char *why)
{
    int rc = CALL(gpu, why, cuCtxSetCurrent, (gpu->context));

    if (rc == 0)
        rc = CALL(gpu, why, cuStreamCreate, (stream, DRV_STREAM_NON_BLOCKING));
    return rc;
}

void gpu_leave(struct gpu *gpu, struct drv_stream *stream)
{
    gpu->driver->cuStreamDestroy_v2(stream);
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* What was reached so far is undone. */
static int map_memory(struct gpu *gpu, struct window *window, char *why)
{
    const struct drv_access_desc access = {
        .location = {.type = DRV_LOCATION_DEVICE, .id = gpu->device},
        .flags = DRV_ACCESS_READWRITE,
    };
    drv_pointer address = 0;
    int rc = CALL(gpu, why, cuMemAddressReserve, (&address, window->bytes, 0, 0, 0));

    if (rc < 0)
        return rc;
    rc = CALL(gpu, why, cuMemMap, (address, window->bytes, 0, window->memory, 0));
    if (rc == 0) {
        rc = CALL(gpu, why, cuMemSetAccess, (address, window->bytes, &access, 1));
        if (rc == 0) {
            window->address = address;
            return 0;
        }
        gpu->driver->cuMemUnmap(address, window->bytes);
    }
    gpu->driver->cuMemAddressFree(address, window->bytes);
    return rc;
}

int gpu_map(struct gpu *gpu, unsigned window_index, int fd, uint64_t bytes, char *why)
{
    struct window *window = &gpu->windows[window_index], made = {.bytes = bytes};
    int rc;

    if (window->address) {
        snprintf(why, COPIER_WHY_BYTES, "window %u is in use", window_index);
        return -EBUSY;
    }
    rc = CALL(gpu, why, cuMemImportFromShareableHandle,
              (&made.memory, (void *)(intptr_t)fd, DRV_HANDLE_POSIX_FILE_DESCRIPTOR));
    if (rc < 0)
        return rc;
    rc = map_memory(gpu, &made, why);
    if (rc < 0)
        gpu->driver->cuMemRelease(made.memory);
    else
        *window = made;
    return rc;
}

/* The first call that fails is told; the others are made all the same. */
int gpu_unmap(struct gpu *gpu, unsigned window_index, char *why)
{
    struct window *window = &gpu->windows[window_index];
    char next[COPIER_WHY_BYTES];
    int rc, rc_next;

    if (!window->address)
        return 0;
    rc = CALL(gpu, why, cuMemUnmap, (window->address, window->bytes));
    rc_next = CALL(gpu, rc ? next : why, cuMemAddressFree, (window->address, window->bytes));
    rc = rc ? rc : rc_next;
    rc_next = CALL(gpu, rc ? next : why, cuMemRelease, (window->memory));
    *window = (struct window){0};
    return rc ? rc : rc_next;
}

int gpu_copy(struct gpu *gpu, struct drv_stream *stream, const struct copier_request *request,
             void *block, char *why)
{
    const struct window *window = &gpu->windows[request->window];
    size_t bytes = request->bytes;
    char later[COPIER_WHY_BYTES];
    int rc, waited;

    if (!window->address || request->offset > window->bytes ||
        bytes > window->bytes - request->offset) {
        snprintf(why, COPIER_WHY_BYTES, "no such bytes in window %u", request->window);
        return -EINVAL;
    }
    if (request->act == COPIER_GET)
        rc = CALL(gpu, why, cuMemcpyDtoHAsync_v2,
                  (block, window->address + request->offset, bytes, stream));
    else
        rc = CALL(gpu, why, cuMemcpyHtoDAsync_v2,
                  (window->address + request->offset, block, bytes, stream));
    /* Also after a failure: then nothing of the driver is in the block any more. */
    waited = CALL(gpu, rc ? later : why, cuStreamSynchronize, (stream));
    return rc ? rc : waited;
}
