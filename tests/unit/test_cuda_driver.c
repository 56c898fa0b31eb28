/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the driver's functions, and the properties of the fake driver on which all tests
 * rely. */
#include "cuda/driver.h"

#include "fake_cuda.h"
#include "tap.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MIB    FAKE_MIB
#define CYCLES 2000

static const struct drv *cu;
static char error[512];

static const struct drv_memory_prop prop = {
    .type = DRV_ALLOCATION_PINNED,
    .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = DRV_LOCATION_DEVICE, .id = 0},
};

static void begin(const char *control)
{
    require(fake_cuda_make(control));
    require(drv_open(&cu, error, sizeof(error)) == 0);
}

/* Holds the memory by its descriptor alone. */
static int create_exported(uint64_t bytes)
{
    drv_memory memory;
    int fd = -1;

    require(cu->cuMemCreate(&memory, bytes, &prop, 0) == DRV_SUCCESS);
    require(cu->cuMemExportToShareableHandle(&fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0) ==
            DRV_SUCCESS);
    require(cu->cuMemRelease(memory) == DRV_SUCCESS);
    return fd;
}

static enum drv_result import(drv_memory *memory, int fd)
{
    return cu->cuMemImportFromShareableHandle(memory, (void *)(intptr_t)fd,
                                              DRV_HANDLE_POSIX_FILE_DESCRIPTOR);
}

/* Imports and maps; the mapping alone holds the memory then. */
static drv_pointer map(int fd, uint64_t bytes, enum drv_access access)
{
    struct drv_access_desc desc = {.location = prop.location, .flags = access};
    drv_pointer address;
    drv_memory memory;

    require(import(&memory, fd) == DRV_SUCCESS);
    require(cu->cuMemAddressReserve(&address, bytes, 0, 0, 0) == DRV_SUCCESS);
    require(cu->cuMemMap(address, bytes, 0, memory, 0) == DRV_SUCCESS);
    require(cu->cuMemRelease(memory) == DRV_SUCCESS);
    require(cu->cuMemSetAccess(address, bytes, &desc, 1) == DRV_SUCCESS);
    return address;
}

static void unmap(drv_pointer address, uint64_t bytes)
{
    check_int(cu->cuMemUnmap(address, bytes), DRV_SUCCESS);
    check_int(cu->cuMemAddressFree(address, bytes), DRV_SUCCESS);
}

static void enter_context(void)
{
    struct drv_context *context;

    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    require(cu->cuCtxPushCurrent_v2(context) == DRV_SUCCESS);
}

static void leave_context(void)
{
    check_int(cu->cuCtxPopCurrent_v2(NULL), DRV_SUCCESS);
    check_int(cu->cuDevicePrimaryCtxRelease_v2(0), DRV_SUCCESS);
}

static uint64_t used_bytes(void)
{
    size_t free_bytes, total_bytes;

    enter_context();
    require(cu->cuMemGetInfo_v2(&free_bytes, &total_bytes) == DRV_SUCCESS);
    leave_context();
    return total_bytes - free_bytes;
}

/* ---- the table ------------------------------------------------------------------------------- */

TAP_AFTER_EACH(fake_cuda_remove)

TAP_TEST(machine_without_a_gpu_is_enodev_and_named)
{
    unsetenv("GMSFS_FAKE_CUDA");
    check_int(drv_open(&cu, error, sizeof(error)), -ENODEV);
    check_str(error, "cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device)");
    check_int(drv_open(&cu, NULL, 0), -ENODEV);
}

TAP_TEST(failure_is_not_remembered_and_success_is)
{
    const struct drv *again;

    require(fake_cuda_make("fail cuInit 999 1 1\n"));
    check_int(drv_open(&cu, error, sizeof(error)), -EIO);
    check_str(error, "cuInit: CUDA_ERROR_UNKNOWN (unknown error)");
    check_int(drv_open(&cu, error, sizeof(error)), 0);
    check_str(error, "");
    check_int(drv_open(&again, error, sizeof(error)), 0);
    check(again == cu);
}

TAP_TEST(device_is_found_by_its_uuid)
{
    static const uint8_t stranger[16] = {1};
    struct drv_uuid uuid;
    drv_device device = -1;

    begin("");
    require(cu->cuDeviceGetUuid_v2(&uuid, 0) == DRV_SUCCESS);
    check_int(drv_find(cu, (const uint8_t *)uuid.bytes, &device, error, sizeof(error)), 0);
    check_int(device, 0);
    check_int(drv_find(cu, stranger, &device, error, sizeof(error)), -ENODEV);
    check(strstr(error, "none of the 1 that this process sees") != NULL);
    check(fake_cuda_control("fail cuDeviceGetUuid_v2 999\n"));
    check_int(drv_find(cu, stranger, &device, error, sizeof(error)), -EIO);
    check(strstr(error, "cuDeviceGetUuid_v2: CUDA_ERROR_UNKNOWN") != NULL);
}

TAP_TEST(results_become_errnos)
{
    check_int(drv_errno(DRV_SUCCESS), 0);
    check_int(drv_errno(DRV_OUT_OF_MEMORY), -ENOMEM);
    check_int(drv_errno(DRV_NO_DEVICE), -ENODEV);
    check_int(drv_errno(DRV_DEVICE_UNAVAILABLE), -ENODEV);
    check_int(drv_errno(DRV_INVALID_VALUE), -EINVAL);
    check_int(drv_errno(DRV_NOT_SUPPORTED), -EOPNOTSUPP);
    check_int(drv_errno(DRV_NOT_PERMITTED), -EPERM);
    check_int(drv_errno(DRV_STREAM_CAPTURE_IMPLICIT), -EBUSY);
    check_int(drv_errno(DRV_ECC_UNCORRECTABLE), -EIO);
    check_int(drv_errno((enum drv_result)12345), -EIO);
}

TAP_TEST(error_without_a_name_is_still_a_text)
{
    begin("");
    check_int(drv_explain(cu, "cuMemMap", (enum drv_result)12345, error, sizeof(error)), -EIO);
    check_str(error, "cuMemMap: an error that the driver has no name for (no text)");
}

/* ---- memory ---------------------------------------------------------------------------------- */

TAP_TEST(no_context_is_needed_to_create_export_and_import)
{
    struct drv_context *context = (struct drv_context *)1;
    drv_memory memory;
    auto_fd fd = -1;

    begin("");
    fd = create_exported(4 * MIB);
    check_int(import(&memory, fd), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    check_int(cu->cuCtxGetCurrent(&context), DRV_SUCCESS);
    check(context == NULL);
}

TAP_TEST(descriptor_alone_keeps_memory_and_its_close_frees_it)
{
    int fd;

    begin("memory 64\n");
    fd = create_exported(48 * MIB);
    check_int(used_bytes(), 48 * MIB);
    close(fd);
    check_int(used_bytes(), 0);
}

TAP_TEST(mapping_alone_keeps_memory_and_its_bytes)
{
    char text[6] = "";
    drv_pointer address;
    int fd;

    begin("memory 64\n");
    fd = create_exported(4 * MIB);
    address = map(fd, 4 * MIB, DRV_ACCESS_READWRITE);
    close(fd);
    check_int(used_bytes(), 4 * MIB);
    enter_context();
    check_int(cu->cuMemcpyHtoD_v2(address + 2 * MIB, "bytes", 6), DRV_SUCCESS);
    check_int(cu->cuMemcpyDtoH_v2(text, address + 2 * MIB, 6), DRV_SUCCESS);
    check_str(text, "bytes");
    leave_context();
    unmap(address, 4 * MIB);
    check_int(used_bytes(), 0);
}

TAP_TEST(device_fills_up_and_has_room_again)
{
    drv_memory memory;
    int fd;

    begin("memory 64\nothers 16\n");
    fd = create_exported(32 * MIB);
    check_int(cu->cuMemCreate(&memory, 18 * MIB, &prop, 0), DRV_OUT_OF_MEMORY);
    check_int(cu->cuMemCreate(&memory, 16 * MIB, &prop, 0), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    close(fd);
    check_int(cu->cuMemCreate(&memory, 48 * MIB, &prop, 0), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
}

TAP_TEST(exported_descriptor_is_nothing_to_read_or_map_and_crosses_exec)
{
    char byte;
    auto_fd fd = -1;

    begin("");
    fd = create_exported(2 * MIB);
    check(read(fd, &byte, 1) < 0);
    check(mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED);
    check_int(fcntl(fd, F_GETFD), 0);
}

TAP_TEST(imported_handle_cannot_be_exported)
{
    drv_memory memory;
    int fd, again;

    begin("");
    fd = create_exported(2 * MIB);
    require(import(&memory, fd) == DRV_SUCCESS);
    check_int(cu->cuMemExportToShareableHandle(&again, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0),
              DRV_INVALID_VALUE);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_INVALID_VALUE);
    close(fd);
}

TAP_TEST(descriptor_of_something_else_is_no_memory)
{
    drv_memory memory;
    auto_fd fd = -1;

    begin("");
    fd = memfd_create("other", MFD_CLOEXEC);
    check_int(import(&memory, fd), DRV_INVALID_VALUE);
    check_int(import(&memory, 9999), DRV_INVALID_VALUE);
}

TAP_TEST(sizes_are_multiples_of_the_granularity)
{
    drv_memory memory;
    size_t bytes;

    begin("");
    check_int(cu->cuMemGetAllocationGranularity(&bytes, &prop, DRV_GRANULARITY_RECOMMENDED),
              DRV_SUCCESS);
    check_int(bytes, 2 * MIB);
    check_int(cu->cuMemCreate(&memory, 3 * MIB, &prop, 0), DRV_INVALID_VALUE);
    check_int(cu->cuMemCreate(&memory, 0, &prop, 0), DRV_INVALID_VALUE);
}

TAP_TEST(memory_is_mapped_whole_and_from_its_start)
{
    drv_pointer address;
    drv_memory memory;

    begin("");
    require(cu->cuMemCreate(&memory, 4 * MIB, &prop, 0) == DRV_SUCCESS);
    require(cu->cuMemAddressReserve(&address, 8 * MIB, 0, 0, 0) == DRV_SUCCESS);
    check_int(cu->cuMemMap(address, 2 * MIB, 2 * MIB, memory, 0), DRV_NOT_SUPPORTED);
    check_int(cu->cuMemMap(address, 2 * MIB, 0, memory, 0), DRV_INVALID_VALUE);
    check_int(cu->cuMemMap(address + 6 * MIB, 4 * MIB, 0, memory, 0), DRV_INVALID_VALUE);
    check_int(cu->cuMemMap(address, 4 * MIB, 0, memory, 0), DRV_SUCCESS);
    check_int(cu->cuMemMap(address + 2 * MIB, 4 * MIB, 0, memory, 0), DRV_INVALID_VALUE);
    check_int(cu->cuMemAddressFree(address, 8 * MIB), DRV_INVALID_VALUE);
    check_int(cu->cuMemUnmap(address, 2 * MIB), DRV_INVALID_VALUE);
    check_int(cu->cuMemUnmap(address, 4 * MIB), DRV_SUCCESS);
    check_int(cu->cuMemAddressFree(address, 8 * MIB), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    check_int(used_bytes(), 0);
}

TAP_TEST(read_only_mapping_refuses_a_write)
{
    drv_pointer address;
    int fd;

    begin("");
    fd = create_exported(2 * MIB);
    address = map(fd, 2 * MIB, DRV_ACCESS_READ);
    close(fd);
    enter_context();
    check_int(cu->cuMemsetD8_v2(address, 1, 16), DRV_INVALID_VALUE);
    check_int(cu->cuMemsetD8_v2(address + 2 * MIB, 1, 16), DRV_INVALID_VALUE);
    leave_context();
    unmap(address, 2 * MIB);
}

TAP_TEST(bytes_move_only_with_a_context)
{
    drv_pointer address;
    int fd;

    begin("");
    fd = create_exported(2 * MIB);
    address = map(fd, 2 * MIB, DRV_ACCESS_READWRITE);
    close(fd);
    check_int(cu->cuMemcpyHtoD_v2(address, "x", 1), DRV_INVALID_CONTEXT);
    unmap(address, 2 * MIB);
}

TAP_TEST(nothing_leaks_over_many_cycles)
{
    begin("memory 64\n");
    for (int i = 0; i < CYCLES; i++) {
        int fd = create_exported(16 * MIB);
        drv_pointer address = map(fd, 16 * MIB, DRV_ACCESS_READWRITE);

        close(fd);
        unmap(address, 16 * MIB);
    }
    check_int(used_bytes(), 0);
    close(create_exported(64 * MIB));
}

/* ---- faults ---------------------------------------------------------------------------------- */

TAP_TEST(chosen_calls_fail_as_told)
{
    drv_memory memory;

    begin("fail cuMemCreate 2 2 1\n");
    check_int(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    check_int(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0), DRV_OUT_OF_MEMORY);
    check_int(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0), DRV_SUCCESS);
    check_int(cu->cuMemRelease(memory), DRV_SUCCESS);
    require(fake_cuda_control("fail * 999\n"));
    check_int(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0), DRV_UNKNOWN);
}

TAP_TEST(device_that_vanished_answers_so)
{
    drv_memory memory;
    size_t bytes;

    begin("lost 0\n");
    check_int(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0), DRV_DEVICE_UNAVAILABLE);
    check_int(cu->cuDeviceTotalMem_v2(&bytes, 0), DRV_DEVICE_UNAVAILABLE);
}

TAP_TEST(lazy_copies_are_done_when_they_are_waited_for)
{
    struct drv_context *context;
    struct drv_stream *stream;
    struct drv_event *event;
    drv_pointer address;
    char sent[] = "sent", got[] = "none";

    begin("lazy 1\n");
    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    require(cu->cuCtxPushCurrent_v2(context) == DRV_SUCCESS);
    require(cu->cuMemAlloc_v2(&address, sizeof(sent)) == DRV_SUCCESS);
    require(cu->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING) == DRV_SUCCESS);
    require(cu->cuEventCreate(&event, DRV_EVENT_DISABLE_TIMING) == DRV_SUCCESS);
    check_int(cu->cuMemcpyHtoDAsync_v2(address, sent, sizeof(sent), stream), DRV_SUCCESS);
    check_int(cu->cuEventRecord(event, stream), DRV_SUCCESS);
    check_int(cu->cuMemcpyDtoHAsync_v2(got, address, sizeof(got), stream), DRV_SUCCESS);
    check_int(cu->cuEventSynchronize(event), DRV_SUCCESS);
    check_str(got, "none");
    strcpy(sent, "late");
    check_int(cu->cuStreamSynchronize(stream), DRV_SUCCESS);
    check_str(got, "sent");
    check_int(cu->cuEventDestroy_v2(event), DRV_SUCCESS);
    check_int(cu->cuStreamDestroy_v2(stream), DRV_SUCCESS);
    check_int(cu->cuMemFree_v2(address), DRV_SUCCESS);
    check_int(cu->cuCtxPopCurrent_v2(NULL), DRV_SUCCESS);
    check_int(cu->cuDevicePrimaryCtxRelease_v2(0), DRV_SUCCESS);
}

TAP_TEST(nothing_works_in_a_forked_child)
{
    drv_memory memory;
    int status;
    pid_t child;

    begin("");
    child = fork();
    if (child == 0)
        _exit(cu->cuMemCreate(&memory, 2 * MIB, &prop, 0) == DRV_NOT_INITIALIZED ? 0 : 1);
    require(waitpid(child, &status, 0) == child);
    check_int(status, 0);
}

TAP_TEST(child_does_not_keep_what_its_parent_mapped)
{
    int fd, hold[2];
    drv_pointer address;
    pid_t child;
    char byte;

    begin("");
    fd = create_exported(2 * MIB);
    address = map(fd, 2 * MIB, DRV_ACCESS_READWRITE);
    close(fd);
    require(pipe2(hold, O_CLOEXEC) == 0);
    child = fork();
    if (child == 0) {
        close(hold[1]);
        _exit((int)read(hold[0], &byte, 1));
    }
    unmap(address, 2 * MIB);
    check_int(used_bytes(), 0);
    close(hold[0]);
    close(hold[1]);
    check_int(waitpid(child, NULL, 0), child);
}

/* ---- captures -------------------------------------------------------------------------------- */

typedef enum drv_result begin_capture(struct drv_stream *stream, enum drv_capture_mode mode);
typedef enum drv_result end_capture(struct drv_stream *stream, void **graph);

static begin_capture *begin_capturing;
static end_capture *end_capturing;

static struct drv_stream *capture(unsigned flags)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    struct drv_stream *stream;

    require(library != NULL);
    *(void **)&begin_capturing = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end_capturing = dlsym(library, "cuStreamEndCapture");
    dlclose(library);
    require(cu->cuStreamCreate(&stream, flags) == DRV_SUCCESS);
    require(begin_capturing(stream, DRV_CAPTURE_MODE_GLOBAL) == DRV_SUCCESS);
    return stream;
}

TAP_TEST(unsafe_call_breaks_a_capture_unless_relaxed)
{
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_RELAXED;
    struct drv_stream *stream;
    drv_pointer address;
    void *graph;

    begin("");
    enter_context();
    stream = capture(DRV_STREAM_NON_BLOCKING);
    check_int(cu->cuThreadExchangeStreamCaptureMode(&mode), DRV_SUCCESS);
    check_int(mode, DRV_CAPTURE_MODE_GLOBAL);
    check_int(cu->cuMemAlloc_v2(&address, 16), DRV_SUCCESS);
    check_int(cu->cuThreadExchangeStreamCaptureMode(&mode), DRV_SUCCESS);
    check_int(cu->cuMemFree_v2(address), DRV_STREAM_CAPTURE_UNSUPPORTED);
    check_int(end_capturing(stream, &graph), DRV_STREAM_CAPTURE_INVALIDATED);
    check_int(cu->cuMemFree_v2(address), DRV_SUCCESS);
    check_int(cu->cuStreamDestroy_v2(stream), DRV_SUCCESS);
    leave_context();
}

TAP_TEST(capture_of_a_blocking_stream_is_seen_from_the_legacy_stream)
{
    enum drv_capture_status status;
    struct drv_stream *stream;
    void *graph;

    begin("");
    enter_context();
    stream = capture(DRV_STREAM_DEFAULT);
    check_int(cu->cuStreamIsCapturing(NULL, &status), DRV_STREAM_CAPTURE_IMPLICIT);
    check_int(cu->cuStreamIsCapturing(stream, &status), DRV_SUCCESS);
    check_int(status, DRV_CAPTURE_ACTIVE);
    check_int(end_capturing(stream, &graph), DRV_SUCCESS);
    check_int(cu->cuStreamIsCapturing(NULL, &status), DRV_SUCCESS);
    check_int(cu->cuStreamDestroy_v2(stream), DRV_SUCCESS);
    leave_context();
}
