/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/cuda_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Marks the context broken after an error that makes all its later calls fail. */
static int judge(struct cuda_devices *devices, enum drv_result result)
{
    switch (result) {
    case DRV_DEVICE_UNAVAILABLE:
    case DRV_ECC_UNCORRECTABLE:
    case DRV_ILLEGAL_ADDRESS:
    case DRV_CONTEXT_IS_DESTROYED:
    case DRV_LAUNCH_FAILED:
        devices->is_broken = true;
        break;
    default:
        break;
    }
    return drv_errno(result);
}

/* ---- devices ------------------------------------------------------------------------------- */

/* Makes the device's context current in this thread; *made: the context is new. */
static int enter(struct cuda_devices *devices, drv_device device, bool *made)
{
    const struct drv *driver = devices->driver;
    enum drv_result result = DRV_SUCCESS;

    *made = !devices->contexts[device];
    if (*made)
        result = driver->cuDevicePrimaryCtxRetain(&devices->contexts[device], device);
    if (result == DRV_SUCCESS)
        result = driver->cuCtxSetCurrent(devices->contexts[device]);
    else
        devices->contexts[device] = NULL;
    return judge(devices, result);
}

static void leave(struct cuda_devices *devices, drv_device device)
{
    devices->driver->cuCtxSetCurrent(NULL);
    devices->driver->cuDevicePrimaryCtxRelease_v2(device);
    devices->contexts[device] = NULL;
}

/* Opens the memory in the context of this device. Refuses memory of another device that opens here
 * too, because every access would go through a peer. *found: the memory's device; -1: unknown. */
static int open_here(struct cuda_devices *devices, drv_device device, struct cuda_memory *memory,
                     int *found)
{
    const struct drv *driver = devices->driver;
    struct drv_ipc_handle handle;
    drv_pointer start;
    size_t bytes = 0;
    enum drv_result result;

    *found = -1;
    memcpy(&handle, memory->handle, sizeof handle);
    result =
        driver->cuIpcOpenMemHandle_v2(&memory->address, handle, DRV_IPC_LAZY_ENABLE_PEER_ACCESS);
    if (result != DRV_SUCCESS)
        return judge(devices, result);
    result = driver->cuPointerGetAttribute(found, DRV_POINTER_DEVICE_ORDINAL, memory->address);
    if (result == DRV_SUCCESS)
        result = driver->cuMemGetAddressRange_v2(&start, &bytes, memory->address);
    if (result == DRV_SUCCESS && *found == device) {
        memory->device = device;
        memory->size_bytes = start + bytes - memory->address;
        return 0;
    }
    driver->cuIpcCloseMemHandle(memory->address);
    return result == DRV_SUCCESS ? -EXDEV : judge(devices, result);
}

/* Tries one device. A context costs hundreds of megabytes: a new one that opened nothing is
 * released. */
static int try_device(struct cuda_devices *devices, drv_device device, struct cuda_memory *memory,
                      int *found)
{
    bool made;
    int error = enter(devices, device, &made);

    *found = -1;
    if (error)
        return error;
    error = open_here(devices, device, memory, found);
    if (error && made)
        leave(devices, device);
    return error;
}

/* Without memory or a device, the handle may open another time; all other errors are the handle's
 * fault. */
static int weigh(int before, int error)
{
    return error == -ENOMEM || error == -ENODEV ? error : before;
}

static int try_devices(struct cuda_devices *devices, int count, int first,
                       struct cuda_memory *memory)
{
    int found, last = -EINVAL;

    for (int i = 0; i < count; i++) {
        int device = (first + i) % count;
        int error = try_device(devices, device, memory, &found);

        if (error == -EXDEV && found >= 0 && found < count)
            error = try_device(devices, found, memory, &found);
        if (error == 0 || devices->is_broken)
            return error;
        last = weigh(last, error);
    }
    return last;
}

/* ---- memory -------------------------------------------------------------------------------- */

struct cuda_memory *cuda_memory_find(const struct cuda_devices *devices,
                                     const uint8_t handle[GMSFS_REGION_HANDLE_BYTES])
{
    struct cuda_memory *at = devices->memory;

    while (at && memcmp(at->handle, handle, sizeof at->handle) != 0)
        at = at->next;
    return at;
}

static int open_new(struct cuda_devices *devices, struct cuda_memory *memory, int64_t device_id)
{
    int count = 0;
    int error = devices->driver ? 0 : drv_open(&devices->driver, NULL, 0);

    if (error)
        return -ENODEV;
    error = judge(devices, devices->driver->cuDeviceGetCount(&count));
    if (error || count == 0)
        return -ENODEV;
    if (count > CUDA_MAX_DEVICES)
        count = CUDA_MAX_DEVICES;
    return try_devices(devices, count, device_id > 0 ? (int)(device_id % count) : 0, memory);
}

int cuda_memory_open(struct cuda_devices *devices, const uint8_t handle[GMSFS_REGION_HANDLE_BYTES],
                     int64_t device_id, struct cuda_memory **memory)
{
    struct cuda_memory *made;

    *memory = cuda_memory_find(devices, handle);
    if (*memory)
        return 0;
    made = calloc(1, sizeof *made);
    if (!made)
        return -ENOMEM;
    memcpy(made->handle, handle, sizeof made->handle);
    int error = open_new(devices, made, device_id);
    if (error) {
        free(made);
        return error;
    }
    made->next = devices->memory;
    devices->memory = made;
    *memory = made;
    return 0;
}

void cuda_memory_close(struct cuda_devices *devices, struct cuda_memory *memory)
{
    struct cuda_memory **link = &devices->memory;
    bool made;

    while (*link != memory)
        link = &(*link)->next;
    *link = memory->next;
    if (enter(devices, memory->device, &made) == 0)
        judge(devices, devices->driver->cuIpcCloseMemHandle(memory->address));
    free(memory);
}

/* ---- bytes --------------------------------------------------------------------------------- */

static int check(struct cuda_devices *devices, const struct cuda_memory *memory, uint64_t offset,
                 size_t size_bytes)
{
    bool made;

    if (offset > memory->size_bytes || size_bytes > memory->size_bytes - offset)
        return -ERANGE;
    return enter(devices, memory->device, &made);
}

int cuda_memory_read(struct cuda_devices *devices, const struct cuda_memory *memory,
                     uint64_t offset, void *bytes, size_t size_bytes)
{
    int error = check(devices, memory, offset, size_bytes);

    return error ? error
                 : judge(devices, devices->driver->cuMemcpyDtoH_v2(bytes, memory->address + offset,
                                                                   size_bytes));
}

int cuda_memory_write(struct cuda_devices *devices, const struct cuda_memory *memory,
                      uint64_t offset, const void *bytes, size_t size_bytes)
{
    int error = check(devices, memory, offset, size_bytes);

    return error ? error
                 : judge(devices, devices->driver->cuMemcpyHtoD_v2(memory->address + offset, bytes,
                                                                   size_bytes));
}
