/* SPDX-License-Identifier: Apache-2.0 */
/* Handles to physical memory: made, released, exported, imported. No context needed. */
#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

pthread_mutex_t fake_mutex = PTHREAD_MUTEX_INITIALIZER;

static struct handle *handles;
static size_t handle_count; /* places; some are free */
static drv_memory next_id = 0x7000;

struct handle *handle_find(drv_memory id)
{
    for (size_t i = 0; id && i < handle_count; i++)
        if (handles[i].id == id)
            return &handles[i];
    return NULL;
}

static struct handle *handle_add(void)
{
    struct handle *more;

    for (size_t i = 0; i < handle_count; i++)
        if (!handles[i].id)
            return &handles[i];
    more = realloc(handles, (handle_count + 64) * sizeof(*handles));
    if (!more)
        return NULL;
    memset(more + handle_count, 0, 64 * sizeof(*handles));
    handles = more;
    handle_count += 64;
    return &handles[handle_count - 64];
}

static enum drv_result check_prop(const struct drv_memory_prop *prop, unsigned *gpu)
{
    if (!prop || prop->type != DRV_ALLOCATION_PINNED ||
        prop->location.type != DRV_LOCATION_DEVICE ||
        (prop->requested_handle_types & ~DRV_HANDLE_POSIX_FILE_DESCRIPTOR) ||
        prop->win32_meta_data || prop->flags.compression_type > 1 ||
        prop->flags.gpu_direct_rdma_capable > 1)
        return DRV_INVALID_VALUE;
    return device_find(prop->location.id, gpu);
}

/* Takes the descriptor. The mapping keeps the memory; no child shares it. */
static enum drv_result handle_make(int fd, const struct account_memory *memory,
                                   const struct drv_memory_prop *prop, bool imported,
                                   drv_memory *id)
{
    void *hold = mmap(NULL, memory->bytes, PROT_NONE, MAP_SHARED, fd, 0);
    struct handle *handle;

    close(fd);
    if (hold == MAP_FAILED)
        return DRV_OPERATING_SYSTEM;
    madvise(hold, memory->bytes, MADV_DONTFORK);
    pthread_mutex_lock(&fake_mutex);
    handle = handle_add();
    if (handle) {
        *handle = (struct handle){
            .id = next_id++, .memory = *memory, .imported = imported, .prop = *prop, .hold = hold};
        *id = handle->id;
    }
    pthread_mutex_unlock(&fake_mutex);
    if (handle)
        return DRV_SUCCESS;
    munmap(hold, memory->bytes);
    return DRV_OPERATING_SYSTEM;
}

enum drv_result cuMemGetAllocationGranularity(size_t *bytes, const struct drv_memory_prop *prop,
                                              enum drv_granularity which)
{
    enum drv_result result;
    unsigned gpu;

    ENTER();
    result = check_prop(prop, &gpu);
    if (result == DRV_SUCCESS && which != DRV_GRANULARITY_MINIMUM &&
        which != DRV_GRANULARITY_RECOMMENDED)
        result = DRV_INVALID_VALUE;
    if (result == DRV_SUCCESS)
        *bytes = FAKE_GRANULARITY;
    return result;
}

enum drv_result cuMemCreate(drv_memory *memory, size_t bytes, const struct drv_memory_prop *prop,
                            unsigned long long flags)
{
    struct account_memory made;
    enum drv_result result;
    struct machine machine;
    unsigned gpu;
    int fd;

    ENTER();
    result = check_prop(prop, &gpu);
    if (result != DRV_SUCCESS)
        return result;
    machine_read(&machine);
    if (!bytes || bytes % FAKE_GRANULARITY || flags ||
        (prop->flags.gpu_direct_rdma_capable && !machine.rdma))
        return DRV_INVALID_VALUE;
    fd = account_create(gpu, bytes, &made);
    if (fd < 0)
        return fd == -ENOMEM ? DRV_OUT_OF_MEMORY : DRV_OPERATING_SYSTEM;
    result = handle_make(fd, &made, prop, false, memory);
    if (result != DRV_SUCCESS)
        account_settle(&made);
    return result;
}

enum drv_result cuMemRelease(drv_memory memory)
{
    struct account_memory released;
    struct handle *handle;
    void *hold = NULL;

    ENTER();
    pthread_mutex_lock(&fake_mutex);
    handle = handle_find(memory);
    if (handle) {
        hold = handle->hold;
        released = handle->memory;
        *handle = (struct handle){0};
    }
    pthread_mutex_unlock(&fake_mutex);
    if (!hold)
        return DRV_INVALID_VALUE;
    munmap(hold, released.bytes);
    account_settle(&released);
    return DRV_SUCCESS;
}

/* Write-only, because memory without a file must not be read or mapped as one. */
enum drv_result cuMemExportToShareableHandle(void *shareable, drv_memory memory,
                                             enum drv_handle_type type, unsigned long long flags)
{
    enum drv_result result = DRV_INVALID_VALUE;
    struct handle *handle;
    int fd;

    ENTER();
    pthread_mutex_lock(&fake_mutex);
    handle = handle_find(memory);
    if (handle && !handle->imported && type == DRV_HANDLE_POSIX_FILE_DESCRIPTOR && !flags &&
        handle->prop.requested_handle_types & DRV_HANDLE_POSIX_FILE_DESCRIPTOR) {
        fd = account_open(&handle->memory, O_WRONLY);
        result = fd < 0 ? DRV_OPERATING_SYSTEM : DRV_SUCCESS;
    }
    pthread_mutex_unlock(&fake_mutex);
    if (result == DRV_SUCCESS)
        *(int *)shareable = fd;
    return result;
}

enum drv_result cuMemImportFromShareableHandle(drv_memory *memory, void *shareable,
                                               enum drv_handle_type type)
{
    struct drv_memory_prop prop = {.type = DRV_ALLOCATION_PINNED,
                                   .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
                                   .location.type = DRV_LOCATION_DEVICE};
    struct account_memory imported;
    enum drv_result result;
    unsigned gpu;
    int fd;

    ENTER();
    if (type != DRV_HANDLE_POSIX_FILE_DESCRIPTOR)
        return DRV_INVALID_VALUE;
    fd = account_import((int)(intptr_t)shareable, &imported);
    if (fd < 0)
        return fd == -EINVAL ? DRV_INVALID_VALUE : DRV_OPERATING_SYSTEM;
    prop.location.id = device_ordinal(imported.gpu);
    result = prop.location.id < 0 ? DRV_INVALID_DEVICE : device_find(prop.location.id, &gpu);
    if (result != DRV_SUCCESS) {
        close(fd);
        return result;
    }
    return handle_make(fd, &imported, &prop, true, memory);
}

enum drv_result cuMemGetAllocationPropertiesFromHandle(struct drv_memory_prop *prop,
                                                       drv_memory memory)
{
    struct handle *handle;

    ENTER();
    pthread_mutex_lock(&fake_mutex);
    handle = handle_find(memory);
    if (handle)
        *prop = handle->prop;
    pthread_mutex_unlock(&fake_mutex);
    return handle ? DRV_SUCCESS : DRV_INVALID_VALUE;
}
