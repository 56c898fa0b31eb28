/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_open - finds the GPU, and refuses at mount a device that could not work later */
#include "vmm/cuda_internal.h"

#include "base/log.h"
#include "base/size.h"
#include "vmm/cuda_choose.h"
#include "vmm/gpu.h"
#include "vmm/nvml_source.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* one makes pieces while the other passes them on */
#define CREATE_THREADS 2u
/* Closes on several threads wait for each other, and take twice as long together (H200: 16 GiB 9.3
 * ms, 6.1 by one). */
#define FREE_THREADS 1u

/* Flags of struct vmm_device, for cuda_reopen. */
#define FLAG_RDMA 1u

/* Device file of the kernel module that is loaded for the first process that opens the driver. */
#define LAST_DEVICE_FILE "/dev/nvidia-uvm"

#define INSTEAD "mount host memory with: gmsfs mount -o backend=host,size=4G MOUNTPOINT"

struct opening {
    struct cuda *cuda;
    const struct vmm_options *options;
    struct vmm_device *device;
    char *error;
    size_t error_bytes;
};

static int refuse(const struct opening *o, const char *call, enum drv_result result)
{
    char why[256];
    int error = drv_explain(o->cuda->driver, call, result, why, sizeof(why));

    snprintf(o->error, o->error_bytes, "device cuda%s%s: %s", o->options->device[0] ? ":" : "",
             o->options->device, why);
    return error;
}

static int check_options(const struct opening *o)
{
    static const uint8_t none[16];

    if (o->options->hugepage_bytes) {
        snprintf(o->error, o->error_bytes,
                 "hugepages=: a GPU has its own pages; leave it out, or take backend=host");
        return -EINVAL;
    }
    if (memcmp(o->options->uuid, none, sizeof(none))) {
        snprintf(o->error, o->error_bytes,
                 "uuid=: a GPU has its own; choose one by device=GPU-UUID, or take backend=host");
        return -EINVAL;
    }
    return 0;
}

static int start_driver(const struct opening *o)
{
    const char *device = o->options->device;
    char why[256];
    int error = drv_open(&o->cuda->driver, why, sizeof(why));

    if (error == -ENODEV && *device)
        snprintf(o->error, o->error_bytes,
                 "device=%s: %s; nvidia-smi -L lists the GPUs, or " INSTEAD, device, why);
    else if (error < 0)
        snprintf(o->error, o->error_bytes, "device cuda: %s; " INSTEAD, why);
    return error;
}

static int find_device(const struct opening *o, const struct cuda_choice *choice)
{
    const struct drv *driver = o->cuda->driver;
    const char *call = "cuDeviceGet";
    enum drv_result result;

    if (choice->pci_id[0]) {
        call = "cuDeviceGetByPCIBusId";
        result = driver->cuDeviceGetByPCIBusId(&o->cuda->device, choice->pci_id);
    } else {
        result = driver->cuDeviceGet(&o->cuda->device, 0);
    }
    return result == DRV_SUCCESS ? 0 : refuse(o, call, result);
}

static int describe(const struct opening *o)
{
    const struct drv *driver = o->cuda->driver;
    struct vmm_device *device = o->device;
    const char *call = "cuDeviceGetName";
    struct drv_uuid uuid;
    int version = 0;
    enum drv_result result =
        driver->cuDeviceGetName(device->name, (int)sizeof(device->name), o->cuda->device);

    if (result == DRV_SUCCESS) {
        call = "cuDeviceGetUuid";
        result = driver->cuDeviceGetUuid_v2(&uuid, o->cuda->device);
    }
    if (result == DRV_SUCCESS) {
        call = "cuDeviceGetPCIBusId";
        result = driver->cuDeviceGetPCIBusId(device->pci_id, (int)sizeof(device->pci_id),
                                             o->cuda->device);
    }
    if (result == DRV_SUCCESS) {
        call = "cuDriverGetVersion";
        result = driver->cuDriverGetVersion(&version);
    }
    if (result != DRV_SUCCESS)
        return refuse(o, call, result);
    memcpy(device->uuid, uuid.bytes, sizeof(device->uuid));
    snprintf(device->version_name, sizeof(device->version_name), "cuda_version");
    snprintf(device->version, sizeof(device->version), "%d.%d", version / 1000,
             version % 1000 / 10);
    if (strstr(device->name, "MIG ")) {
        snprintf(o->error, o->error_bytes,
                 "device cuda: %s is a MIG slice, and these are not supported; turn MIG off "
                 "(nvidia-smi -mig 0) or name a whole GPU by device=",
                 device->name);
        return -EOPNOTSUPP;
    }
    return 0;
}

static struct drv_memory_prop choose_prop(drv_device device, bool rdma)
{
    return (struct drv_memory_prop){
        .type = DRV_ALLOCATION_PINNED,
        .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = DRV_LOCATION_DEVICE, .id = device},
        .flags.gpu_direct_rdma_capable = rdma,
    };
}

static int check_attributes(const struct opening *o)
{
    const struct drv *driver = o->cuda->driver;
    int virtual_memory = 0, descriptors = 0, rdma = 0;
    enum drv_result result = driver->cuDeviceGetAttribute(
        &virtual_memory, DRV_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT, o->cuda->device);

    if (result == DRV_SUCCESS)
        result = driver->cuDeviceGetAttribute(&descriptors, DRV_ATTRIBUTE_POSIX_FILE_DESCRIPTOR,
                                              o->cuda->device);
    if (result == DRV_SUCCESS)
        result = driver->cuDeviceGetAttribute(&rdma, DRV_ATTRIBUTE_RDMA_WITH_VIRTUAL_MEMORY,
                                              o->cuda->device);
    if (result != DRV_SUCCESS)
        return refuse(o, "cuDeviceGetAttribute", result);
    if (!virtual_memory || !descriptors) {
        snprintf(o->error, o->error_bytes,
                 "device cuda: %s cannot share memory by descriptors; " INSTEAD, o->device->name);
        return -EOPNOTSUPP;
    }
    o->cuda->prop = choose_prop(o->cuda->device, rdma != 0);
    return 0;
}

static int choose_granularity(const struct opening *o)
{
    uint64_t wanted = o->options->granularity_bytes;
    char least[SIZE_TEXT_BYTES];
    size_t bytes;
    enum drv_result result = o->cuda->driver->cuMemGetAllocationGranularity(
        &bytes, &o->cuda->prop, DRV_GRANULARITY_RECOMMENDED);

    if (result != DRV_SUCCESS)
        return refuse(o, "cuMemGetAllocationGranularity", result);
    if (wanted && (wanted < bytes || wanted % bytes)) {
        snprintf(o->error, o->error_bytes,
                 "granularity=: %s hands memory out in multiples of %s; take that or leave it out",
                 o->device->name, size_format(bytes, least));
        return -EINVAL;
    }
    o->device->granularity_bytes = wanted ? wanted : bytes;
    return 0;
}

static int choose_size(const struct opening *o)
{
    uint64_t total_bytes;
    char least[SIZE_TEXT_BYTES];
    size_t bytes;
    enum drv_result result = o->cuda->driver->cuDeviceTotalMem_v2(&bytes, o->cuda->device);

    if (result != DRV_SUCCESS)
        return refuse(o, "cuDeviceTotalMem", result);
    total_bytes =
        o->options->size_bytes && o->options->size_bytes < bytes ? o->options->size_bytes : bytes;
    total_bytes -= total_bytes % o->device->granularity_bytes;
    if (total_bytes == 0) {
        snprintf(o->error, o->error_bytes, "size=: is less than the granularity, %s",
                 size_format(o->device->granularity_bytes, least));
        return -EINVAL;
    }
    o->device->total_bytes = total_bytes;
    o->device->physical_bytes = bytes;
    return 0;
}

/* Makes a piece, to refuse a device at mount, not at the first client. A full device passes. */
static int probe(const struct opening *o)
{
    struct drv_memory_prop *prop = &o->cuda->prop;
    int fd = -1;
    int error = cuda_create_memory(o->cuda, o->device->granularity_bytes, &fd);

    if (error < 0 && error != -ENOMEM && prop->flags.gpu_direct_rdma_capable) {
        prop->flags.gpu_direct_rdma_capable = 0;
        error = cuda_create_memory(o->cuda, o->device->granularity_bytes, &fd);
        if (error == 0)
            log_warning("device cuda: no GPUDirect RDMA, although the driver offers it (above)");
    }
    if (fd >= 0)
        close(fd);
    o->device->flags = prop->flags.gpu_direct_rdma_capable ? FLAG_RDMA : 0;
    if (error == 0 || error == -ENOMEM)
        return 0;
    snprintf(o->error, o->error_bytes,
             "device cuda: %s makes no memory that can be shared (above: why); " INSTEAD,
             o->device->name);
    return error;
}

static int open_device(const struct opening *o, const char *root)
{
    struct cuda_choice choice;
    int error = check_options(o);

    if (error == 0)
        error = cuda_choose(root, o->options->device, &choice, o->error, o->error_bytes);
    if (error == 0)
        error = start_driver(o);
    if (error == 0)
        error = find_device(o, &choice);
    if (error == 0)
        error = describe(o);
    if (error == 0)
        error = check_attributes(o);
    if (error == 0)
        error = choose_granularity(o);
    if (error == 0)
        error = choose_size(o);
    if (error == 0)
        error = probe(o);
    return error;
}

/* ---- the backend --------------------------------------------------------------------------- */

static const struct gpu_driver cuda_driver = {
    .name = "cuda",
    .tool = "nvidia-smi",
    .create = cuda_create_memory,
    .close = cuda_close,
    .source = &monitor_source_nvml,
};

static int cuda_open(const char *root, const struct vmm_options *options, struct vmm_device *device,
                     char *why, size_t why_bytes)
{
    struct opening opening = {
        .cuda = cuda_new(),
        .options = options,
        .device = device,
        .error = why,
        .error_bytes = why_bytes,
    };

    if (!opening.cuda) {
        snprintf(why, why_bytes, "device cuda: out of memory");
        return -ENOMEM;
    }
    device->create_threads = CREATE_THREADS;
    device->free_threads = FREE_THREADS;
    int error = open_device(&opening, root);
    if (error == 0)
        error = gpu_open(root, options, &cuda_driver, opening.cuda, false, device, why, why_bytes);
    if (error < 0)
        cuda_close(opening.cuda);
    return error;
}

static int cuda_reopen(const char *root, const struct vmm_options *options,
                       struct vmm_device *device, char *why, size_t why_bytes)
{
    struct drv_memory_prop prop = choose_prop(0, device->flags & FLAG_RDMA);
    struct cuda_choice choice;
    struct cuda *cuda = cuda_new();

    if (!cuda) {
        snprintf(why, why_bytes, "device cuda: out of memory");
        return -ENOMEM;
    }
    /* Only to make the driver ignore other GPUs: the device is known. */
    if (cuda_choose(root, options->device, &choice, why, why_bytes) < 0)
        log_info("%s", why);
    int error = gpu_open(root, options, &cuda_driver, cuda, true, device, why, why_bytes);
    if (error < 0)
        cuda_close(cuda);
    else
        cuda_begin(cuda, device->uuid, &prop);
    return error;
}

static bool is_asleep(void)
{
    return access(LAST_DEVICE_FILE, F_OK) != 0;
}

/* Opens the driver: nvidia-modprobe(1) makes the device files, with its setuid bit for ordinary
 * users. */
static void wake(void)
{
    const struct drv *driver;

    drv_open(&driver, NULL, 0);
}

const struct vmm_backend vmm_backend_cuda = GPU_BACKEND(cuda_open, cuda_reopen, is_asleep, wake);
