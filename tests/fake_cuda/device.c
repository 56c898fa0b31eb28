/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, and the names of errors. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define DRIVER_VERSION 13000

static unsigned visible[FAKE_MAX_DEVICES];
static unsigned visible_count;

/* ---- errors -------------------------------------------------------------------------------- */

static const struct {
    enum drv_result result;
    const char *name, *text;
} errors[] = {
    {DRV_SUCCESS, "CUDA_SUCCESS", "no error"},
    {DRV_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {DRV_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {DRV_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {DRV_DEVICE_UNAVAILABLE, "CUDA_ERROR_DEVICE_UNAVAILABLE", "device unavailable"},
    {DRV_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device"},
    {DRV_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {DRV_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {DRV_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED", "already mapped"},
    {DRV_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error"},
    {DRV_PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
     "peer access is not supported between these two devices"},
    {DRV_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM", "a call to the system failed"},
    {DRV_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid handle"},
    {DRV_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "not found"},
    {DRV_NOT_READY, "CUDA_ERROR_NOT_READY", "not ready"},
    {DRV_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "illegal address"},
    {DRV_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "not permitted"},
    {DRV_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "not supported"},
    {DRV_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "not permitted while a stream is capturing"},
    {DRV_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "the capture was broken by an earlier error"},
    {DRV_STREAM_CAPTURE_UNMATCHED, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "no such capture"},
    {DRV_STREAM_CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "would depend on uncaptured work"},
    {DRV_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "would depend on the legacy stream"},
    {DRV_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "wrong thread"},
    {DRV_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

enum drv_result cuGetErrorName(enum drv_result result, const char **name)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].result == result) {
            *name = errors[i].name;
            return DRV_SUCCESS;
        }
    }
    *name = NULL;
    return DRV_INVALID_VALUE;
}

enum drv_result cuGetErrorString(enum drv_result result, const char **text)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (errors[i].result == result) {
            *text = errors[i].text;
            return DRV_SUCCESS;
        }
    }
    *text = NULL;
    return DRV_INVALID_VALUE;
}

/* ---- which GPUs ---------------------------------------------------------------------------- */

/* "GPU-" and at least the start of the uuid. */
static bool is_uuid_of(const char *word, unsigned gpu)
{
    char text[64];

    machine_uuid_text(gpu, text, sizeof(text));
    return strlen(word) > 4 && strncasecmp(word, text, strlen(word)) == 0;
}

/* As in the driver, the list ends at the first word without a device. */
void device_choose_visible(void)
{
    const char *wish = getenv("CUDA_VISIBLE_DEVICES");
    struct machine machine;
    char copy[256], *rest = copy, *word;

    machine_read(&machine);
    visible_count = 0;
    if (!wish) {
        for (unsigned i = 0; i < machine.devices; i++)
            visible[visible_count++] = i;
        return;
    }
    snprintf(copy, sizeof(copy), "%s", wish);
    while ((word = strsep(&rest, ",")) && visible_count < FAKE_MAX_DEVICES) {
        unsigned gpu = machine.devices;
        char *end;
        unsigned long number = strtoul(word, &end, 10);

        if (end > word && !*end && number < machine.devices)
            gpu = (unsigned)number;
        for (unsigned i = 0; i < machine.devices; i++)
            gpu = is_uuid_of(word, i) ? i : gpu;
        if (gpu == machine.devices)
            return;
        visible[visible_count++] = gpu;
    }
}

enum drv_result device_find(drv_device device, unsigned *gpu)
{
    struct machine machine;

    if (device < 0 || (unsigned)device >= visible_count)
        return DRV_INVALID_DEVICE;
    *gpu = visible[device];
    machine_read(&machine);
    return machine.lost[*gpu] ? DRV_DEVICE_UNAVAILABLE : DRV_SUCCESS;
}

drv_device device_ordinal(unsigned gpu)
{
    for (drv_device device = 0; device < FAKE_MAX_DEVICES; device++) {
        unsigned found;

        if (device_find(device, &found) != DRV_INVALID_DEVICE && found == gpu)
            return device;
    }
    return -1;
}

/* ---- the calls ----------------------------------------------------------------------------- */

enum drv_result cuInit(unsigned flags)
{
    enum drv_result result;

    if (flags)
        return DRV_INVALID_VALUE;
    result = machine_init();
    if (result != DRV_SUCCESS)
        return result;
    device_choose_visible();
    return visible_count ? DRV_SUCCESS : DRV_NO_DEVICE;
}

enum drv_result cuDriverGetVersion(int *version)
{
    *version = DRIVER_VERSION;
    return DRV_SUCCESS;
}

enum drv_result cuDeviceGetCount(int *count)
{
    ENTER();
    *count = (int)visible_count;
    return DRV_SUCCESS;
}

enum drv_result cuDeviceGet(drv_device *device, int ordinal)
{
    ENTER();
    if (ordinal < 0 || (unsigned)ordinal >= visible_count)
        return DRV_INVALID_DEVICE;
    *device = ordinal;
    return DRV_SUCCESS;
}

enum drv_result cuDeviceGetName(char *name, int name_bytes, drv_device device)
{
    unsigned gpu;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    if (result == DRV_SUCCESS)
        snprintf(name, (size_t)name_bytes, "Fake GPU %u", gpu);
    return result;
}

enum drv_result cuDeviceGetUuid_v2(struct drv_uuid *uuid, drv_device device)
{
    unsigned gpu;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    if (result == DRV_SUCCESS)
        machine_uuid(gpu, uuid);
    return result;
}

enum drv_result cuDeviceCanAccessPeer(int *can, drv_device device, drv_device peer)
{
    struct machine machine;
    unsigned gpu, other;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    if (result == DRV_SUCCESS)
        result = device_find(peer, &other);
    if (result != DRV_SUCCESS)
        return result;
    machine_read(&machine);
    *can = gpu != other && machine.peers;
    return DRV_SUCCESS;
}

enum drv_result cuDeviceGetAttribute(int *value, enum drv_attribute attribute, drv_device device)
{
    struct machine machine;
    unsigned gpu;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    machine_read(&machine);
    switch (attribute) {
    case DRV_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
    case DRV_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
        *value = 0;
        break;
    case DRV_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT:
    case DRV_ATTRIBUTE_POSIX_FILE_DESCRIPTOR:
        *value = 1;
        break;
    case DRV_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY:
        *value = machine.rdma;
        break;
    default:
        return DRV_INVALID_VALUE;
    }
    return DRV_SUCCESS;
}

enum drv_result cuDeviceGetPCIBusId(char *id, int id_bytes, drv_device device)
{
    unsigned gpu;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    if (result == DRV_SUCCESS)
        machine_pci_id(gpu, id, (size_t)id_bytes);
    return result;
}

enum drv_result cuDeviceGetByPCIBusId(drv_device *device, const char *id)
{
    ENTER();
    for (unsigned i = 0; i < visible_count; i++) {
        char text[32];

        machine_pci_id(visible[i], text, sizeof(text));
        if (strcasecmp(text, id) == 0 || strcasecmp(text + 5, id) == 0) {
            *device = (drv_device)i;
            return DRV_SUCCESS;
        }
    }
    return DRV_INVALID_DEVICE;
}

enum drv_result cuDeviceTotalMem_v2(size_t *bytes, drv_device device)
{
    struct machine machine;
    unsigned gpu;
    enum drv_result result;

    ENTER();
    result = device_find(device, &gpu);
    machine_read(&machine);
    if (result == DRV_SUCCESS)
        *bytes = machine.memory_bytes;
    return result;
}
