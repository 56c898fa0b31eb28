/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_cuda_fixture - a GPU's memory in libgmsfs over the fake driver, for unit tests of it
 */
#ifndef GMSFS_TESTS_UNIT_MEMORY_CUDA_FIXTURE_H
#define GMSFS_TESTS_UNIT_MEMORY_CUDA_FIXTURE_H

#include "cuda/driver.h"
#include "internal.h"

#include "fake_cuda.h"
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define MIB   FAKE_MIB
#define PIECE (2 * MIB)

static const struct drv *cu;
__attribute__((unused)) static struct gfs_scope scope; /* that a test is in */
static enum drv_result (*begin_capture)(struct drv_stream *stream, enum drv_capture_mode mode);
static enum drv_result (*end_capture)(struct drv_stream *stream, void **graph);
static enum drv_result (*reset_primary)(drv_device device);
static enum drv_result (*create_context)(struct drv_context **context, unsigned flags,
                                         drv_device device);
static enum drv_result (*destroy_context)(struct drv_context *context);
static enum drv_result (*get_access)(unsigned long long *flags, const struct drv_location *location,
                                     drv_pointer address);

static const struct drv_memory_prop prop = {
    .type = DRV_ALLOCATION_PINNED,
    .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = DRV_LOCATION_DEVICE, .id = 0},
};

__attribute__((unused)) static void begin(const char *control)
{
    void *library;

    require(fake_cuda_make(control));
    require(drv_open(&cu, NULL, 0) == 0);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    require(library != NULL);
    *(void **)&begin_capture = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end_capture = dlsym(library, "cuStreamEndCapture");
    *(void **)&reset_primary = dlsym(library, "cuDevicePrimaryCtxReset_v2");
    *(void **)&create_context = dlsym(library, "cuCtxCreate_v2");
    *(void **)&destroy_context = dlsym(library, "cuCtxDestroy_v2");
    *(void **)&get_access = dlsym(library, "cuMemGetAccess");
    dlclose(library);
}

__attribute__((unused)) static uint64_t used_bytes(void)
{
    size_t free_bytes, total_bytes;
    struct drv_context *context;

    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    cu->cuCtxPushCurrent_v2(context);
    require(cu->cuMemGetInfo_v2(&free_bytes, &total_bytes) == DRV_SUCCESS);
    cu->cuCtxPopCurrent_v2(&context);
    cu->cuDevicePrimaryCtxRelease_v2(0);
    return total_bytes - free_bytes;
}

/* Has this process a context of the first device? */
__attribute__((unused)) static int has_context(void)
{
    char path[FAKE_PATH_BYTES + 64];

    snprintf(path, sizeof path, "%s/context.%d.0", fake_cuda_dir, (int)getpid());
    return access(path, F_OK) == 0;
}

__attribute__((unused)) static int create_exported(void)
{
    drv_memory memory;
    int fd = -1;

    require(cu->cuMemCreate(&memory, PIECE, &prop, 0) == DRV_SUCCESS);
    require(cu->cuMemExportToShareableHandle(&fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0) ==
            DRV_SUCCESS);
    require(cu->cuMemRelease(memory) == DRV_SUCCESS);
    return fd;
}

__attribute__((unused)) static void init_memory(struct gfs_memory *memory, int ordinal)
{
    struct drv_uuid uuid;

    require(cu->cuDeviceGetUuid_v2(&uuid, ordinal) == DRV_SUCCESS);
    gfs_memory_init(memory, &gfs_memory_cuda, (const uint8_t *)uuid.bytes, PIECE);
}

__attribute__((unused)) static void begin_memory(struct gfs_memory *memory, int ordinal,
                                                 const char *control)
{
    begin(control);
    init_memory(memory, ordinal);
}

__attribute__((unused)) static struct gfs_memory make_memory(int ordinal, const char *control)
{
    struct gfs_memory memory;

    begin_memory(&memory, ordinal, control);
    return memory;
}

__attribute__((unused)) static void end_memory(struct gfs_memory *memory)
{
    gfs_memory_close(memory);
    fake_cuda_remove();
}

#define auto_memory __attribute__((unused, cleanup(end_memory))) struct gfs_memory

__attribute__((unused)) static void fill_range(struct gfs_memory *memory, struct gfs_range *range,
                                               const int *fds, size_t count,
                                               enum gmsfs_access access)
{
    check_int(gfs_range_begin(memory, range, count * PIECE), 0);
    for (size_t i = 0; i < count; i++)
        check_int(gfs_range_append(memory, range, PIECE, 0, access, fds[i]), 0);
    check_int(gfs_range_end(memory, range, access), 0);
}

/* Returns the device's access to the address, an enum drv_access. */
__attribute__((unused)) static unsigned long long rights_of(drv_device device, uintptr_t va)
{
    struct drv_location location = {.type = DRV_LOCATION_DEVICE, .id = device};
    unsigned long long flags = 77;

    check_int(get_access(&flags, &location, va), DRV_SUCCESS);
    return flags;
}

/* Writes the byte 7 by a device of this process. */
__attribute__((unused)) static enum drv_result write_byte_by(drv_device device, uintptr_t va)
{
    struct drv_context *context;
    enum drv_result result;

    require(cu->cuDevicePrimaryCtxRetain(&context, device) == DRV_SUCCESS);
    cu->cuCtxPushCurrent_v2(context);
    result = cu->cuMemsetD8_v2(va, 7, 1);
    cu->cuCtxPopCurrent_v2(&context);
    cu->cuDevicePrimaryCtxRelease_v2(device);
    return result;
}

__attribute__((unused)) static enum drv_result write_byte(uintptr_t va)
{
    return write_byte_by(0, va);
}

#endif
