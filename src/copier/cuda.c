/* SPDX-License-Identifier: Apache-2.0 */
/* The copier's functions for CUDA (gpu.h declares them). Errors as drv_errno. */
#include "copier/gpu.h"

#include "base/near.h"
#include "base/scope.h"
#include "cuda/driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define PCI_ID_BYTES 32

struct window {
    drv_pointer address; /* 0: empty */
    drv_memory memory;
    uint64_t bytes;
};

struct cuda {
    const struct drv *driver;
    drv_device device;
    struct drv_context *context;
    void *pinned;  /* NULL: the driver refused */
    bool has_near; /* `near` has the processors near the device */
    cpu_set_t near;
    struct window windows[COPIER_WINDOWS];
};

#define CALL(cuda, why, call, arguments) \
    explain((cuda)->driver, why, #call, (cuda)->driver->call arguments)

static int explain(const struct drv *driver, char *why, const char *call, enum drv_result result)
{
    if (result == DRV_SUCCESS)
        return 0;
    return drv_explain(driver, call, result, why, COPIER_WHY_BYTES);
}

/* ---- the context --------------------------------------------------------------------------- */

static void find_near(struct cuda *cuda)
{
    char pci_id[PCI_ID_BYTES];

    cuda->has_near = cuda->driver->cuDeviceGetPCIBusId(pci_id, (int)sizeof(pci_id), cuda->device) ==
                         DRV_SUCCESS &&
                     near_find(NEAR_SYSFS, pci_id, &cuda->near) == 0;
}

static int cuda_open(const uint8_t uuid[16], void *ring, size_t ring_bytes, void **made, char *why)
{
    struct cuda *cuda = calloc(1, sizeof(*cuda));

    if (!cuda) {
        snprintf(why, COPIER_WHY_BYTES, "out of memory");
        return -ENOMEM;
    }
    int error = drv_open(&cuda->driver, why, COPIER_WHY_BYTES);
    if (error == 0)
        error = drv_find(cuda->driver, uuid, &cuda->device, why, COPIER_WHY_BYTES);
    if (error == 0)
        error = CALL(cuda, why, cuDevicePrimaryCtxRetain, (&cuda->context, cuda->device));
    if (error == 0)
        error = CALL(cuda, why, cuCtxSetCurrent, (cuda->context));
    if (error < 0) {
        free(cuda);
        return error;
    }
    find_near(cuda);
    if (cuda->driver->cuMemHostRegister_v2(ring, ring_bytes, DRV_HOST_REGISTER_PORTABLE) ==
        DRV_SUCCESS)
        cuda->pinned = ring;
    *made = cuda;
    return 0;
}

static int cuda_enter(void *gpu, void **stream, char *why)
{
    struct cuda *cuda = gpu;
    struct drv_stream *made;
    int error = CALL(cuda, why, cuCtxSetCurrent, (cuda->context));

    if (cuda->has_near)
        near_stay(&cuda->near);
    if (error == 0)
        error = CALL(cuda, why, cuStreamCreate, (&made, DRV_STREAM_NON_BLOCKING));
    if (error == 0)
        *stream = made;
    return error;
}

static void cuda_leave(void *gpu, void *stream)
{
    const struct cuda *cuda = gpu;

    cuda->driver->cuStreamDestroy_v2(stream);
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* Maps the window's memory; undone on failure. */
static int map_memory(struct cuda *cuda, struct window *window, char *why)
{
    const struct drv_access_desc access = {
        .location = {.type = DRV_LOCATION_DEVICE, .id = cuda->device},
        .flags = DRV_ACCESS_READWRITE,
    };
    drv_pointer address = 0;
    int error = CALL(cuda, why, cuMemAddressReserve, (&address, window->bytes, 0, 0, 0));

    if (error < 0)
        return error;
    error = CALL(cuda, why, cuMemMap, (address, window->bytes, 0, window->memory, 0));
    if (error == 0) {
        error = CALL(cuda, why, cuMemSetAccess, (address, window->bytes, &access, 1));
        if (error == 0) {
            window->address = address;
            return 0;
        }
        cuda->driver->cuMemUnmap(address, window->bytes);
    }
    cuda->driver->cuMemAddressFree(address, window->bytes);
    return error;
}

static int cuda_map(void *gpu, unsigned window_index, int fd, uint64_t bytes, char *why)
{
    struct cuda *cuda = gpu;
    struct window *window = &cuda->windows[window_index], made = {.bytes = bytes};

    if (window->address) {
        snprintf(why, COPIER_WHY_BYTES, "window %u is in use", window_index);
        return -EBUSY;
    }
    int error = CALL(cuda, why, cuMemImportFromShareableHandle,
                     (&made.memory, (void *)(intptr_t)fd, DRV_HANDLE_POSIX_FILE_DESCRIPTOR));
    if (error < 0)
        return error;
    error = map_memory(cuda, &made, why);
    if (error < 0)
        cuda->driver->cuMemRelease(made.memory);
    else
        *window = made;
    return error;
}

/* Empties the window, making all calls; returns the error of the first that fails. */
static int cuda_unmap(void *gpu, unsigned window_index, char *why)
{
    struct cuda *cuda = gpu;
    struct window *window = &cuda->windows[window_index];
    char next[COPIER_WHY_BYTES];
    int error, rc_next;

    if (!window->address)
        return 0;
    error = CALL(cuda, why, cuMemUnmap, (window->address, window->bytes));
    rc_next = CALL(cuda, error ? next : why, cuMemAddressFree, (window->address, window->bytes));
    error = error ? error : rc_next;
    rc_next = CALL(cuda, error ? next : why, cuMemRelease, (window->memory));
    *window = (struct window){0};
    return error ? error : rc_next;
}

/* Asks for a copy between the window's bytes and `at`. */
static int ask(struct cuda *cuda, void *stream, const struct copier_request *request, void *at,
               char *why)
{
    const struct window *window = &cuda->windows[request->window];
    size_t bytes = request->bytes;

    if (!window->address || request->offset > window->bytes ||
        bytes > window->bytes - request->offset) {
        snprintf(why, COPIER_WHY_BYTES, "no such bytes in window %u", request->window);
        return -EINVAL;
    }
    if (request->act == COPIER_GET || request->act == COPIER_MOVE_OUT)
        return CALL(cuda, why, cuMemcpyDtoHAsync_v2,
                    (at, window->address + request->offset, bytes, stream));
    return CALL(cuda, why, cuMemcpyHtoDAsync_v2,
                (window->address + request->offset, at, bytes, stream));
}

static int cuda_copy(void *gpu, void *stream, const struct copier_request *request, void *block,
                     char *why)
{
    struct cuda *cuda = gpu;
    char later[COPIER_WHY_BYTES];
    int error = ask(cuda, stream, request, block, why);

    /* also after a failure: the driver then no longer uses the block */
    int waited = CALL(cuda, error ? later : why, cuStreamSynchronize, (stream));
    return error ? error : waited;
}

/* ---- lanes --------------------------------------------------------------------------------- */

static int cuda_pin(void *gpu, void *at, size_t bytes)
{
    const struct cuda *cuda = gpu;

    return drv_errno(cuda->driver->cuMemHostRegister_v2(at, bytes, DRV_HOST_REGISTER_PORTABLE));
}

static void cuda_unpin(void *gpu, void *at)
{
    const struct cuda *cuda = gpu;

    cuda->driver->cuMemHostUnregister(at);
}

static int cuda_make_mark(void *gpu, void **mark, char *why)
{
    struct cuda *cuda = gpu;
    struct drv_event *event;
    int error = CALL(cuda, why, cuEventCreate, (&event, DRV_EVENT_DISABLE_TIMING));

    if (error == 0)
        *mark = event;
    return error;
}

static void cuda_drop_mark(void *gpu, void *mark)
{
    const struct cuda *cuda = gpu;

    cuda->driver->cuEventDestroy_v2(mark);
}

/* Begins a copy; if its mark fails, waits for the copy here. */
static int cuda_begin(void *gpu, void *stream, const struct copier_request *part, void *buffer,
                      void *mark, char *why)
{
    struct cuda *cuda = gpu;
    int error = ask(cuda, stream, part, buffer, why);

    if (error == 0)
        error = CALL(cuda, why, cuEventRecord, (mark, stream));
    if (error < 0)
        cuda->driver->cuStreamSynchronize(stream);
    return error;
}

static int cuda_await(void *gpu, void *mark, char *why)
{
    struct cuda *cuda = gpu;

    return CALL(cuda, why, cuEventSynchronize, (mark));
}

/* ---- the end ----------------------------------------------------------------------------- */

static void cuda_close(void *gpu)
{
    SCOPED_FREE struct cuda *cuda = gpu;
    char why[COPIER_WHY_BYTES];

    for (unsigned window = 0; window < COPIER_WINDOWS; window++)
        cuda_unmap(cuda, window, why);
    if (cuda->pinned)
        cuda->driver->cuMemHostUnregister(cuda->pinned);
    cuda->driver->cuCtxSetCurrent(NULL);
    cuda->driver->cuDevicePrimaryCtxRelease_v2(cuda->device);
}

const struct copier_gpu copier_gpu_cuda = {
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .leave = cuda_leave,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .copy = cuda_copy,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .make_mark = cuda_make_mark,
    .drop_mark = cuda_drop_mark,
    .begin = cuda_begin,
    .await = cuda_await,
};
