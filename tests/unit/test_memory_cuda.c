/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's memory in libgmsfs, over the fake driver: rights, contexts, captures, and no leak. */
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
static enum drv_result (*begin_capture)(struct drv_stream *stream, enum drv_capture_mode mode);
static enum drv_result (*end_capture)(struct drv_stream *stream, void **graph);

static const struct drv_memory_prop prop = {
    .type = DRV_ALLOCATION_PINNED,
    .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
    .location = {.type = DRV_LOCATION_DEVICE, .id = 0},
};

static void begin(const char *control)
{
    void *library;

    require(fake_cuda_make(control));
    require(drv_open(&cu, NULL, 0) == 0);
    library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    require(library != NULL);
    *(void **)&begin_capture = dlsym(library, "cuStreamBeginCapture_v2");
    *(void **)&end_capture = dlsym(library, "cuStreamEndCapture");
    dlclose(library);
}

static uint64_t used_bytes(void)
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
static int has_context(void)
{
    char path[FAKE_PATH_BYTES + 64];

    snprintf(path, sizeof path, "%s/context.%d.0", fake_cuda_dir, (int)getpid());
    return access(path, F_OK) == 0;
}

static int create_exported(void)
{
    drv_memory memory;
    int fd = -1;

    require(cu->cuMemCreate(&memory, PIECE, &prop, 0) == DRV_SUCCESS);
    require(cu->cuMemExportToShareableHandle(&fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0) ==
            DRV_SUCCESS);
    require(cu->cuMemRelease(memory) == DRV_SUCCESS);
    return fd;
}

static void init_memory(struct gfs_memory *memory, int ordinal)
{
    struct drv_uuid uuid;

    require(cu->cuDeviceGetUuid_v2(&uuid, ordinal) == DRV_SUCCESS);
    gfs_memory_init(memory, &gfs_memory_cuda, (const uint8_t *)uuid.bytes, PIECE);
}

static void fill_range(struct gfs_memory *memory, struct gfs_range *range, const int *fds,
                       size_t count, enum gmsfs_access access)
{
    check_int(gfs_range_begin(memory, range, count * PIECE), 0);
    for (size_t i = 0; i < count; i++)
        check_int(gfs_range_append(memory, range, PIECE, access, fds[i]), 0);
    check_int(gfs_range_end(memory, range, access), 0);
}

static enum drv_result write_byte(uintptr_t va)
{
    struct drv_context *context;
    enum drv_result result;

    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    cu->cuCtxPushCurrent_v2(context);
    result = cu->cuMemsetD8_v2(va, 7, 1);
    cu->cuCtxPopCurrent_v2(&context);
    cu->cuDevicePrimaryCtxRelease_v2(0);
    return result;
}

/* ---- the device ----------------------------------------------------------------------------- */

TAP_TEST(device_is_found_by_uuid_and_a_stranger_is_none)
{
    static const uint8_t stranger[16] = {1};
    struct gfs_memory memory;

    begin("");
    init_memory(&memory, 0);
    check_int(gfs_memory_enter(&memory, 0), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    gfs_memory_init(&memory, &gfs_memory_cuda, stranger, PIECE);
    check_int(gfs_memory_enter(&memory, 0), -ENODEV);
    check(strstr(memory.error, "CUDA_VISIBLE_DEVICES") != NULL);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

TAP_TEST(primary_context_is_kept_from_first_use_to_close)
{
    struct drv_context *current = (struct drv_context *)1;
    struct gfs_memory memory;

    begin("");
    init_memory(&memory, 0);
    check(!has_context());
    check_int(gfs_memory_enter(&memory, 0), 0);
    check(has_context());
    gfs_memory_leave(&memory);
    check_int(cu->cuCtxGetCurrent(&current), DRV_SUCCESS);
    check(current == NULL);
    check(has_context());
    gfs_memory_close(&memory);
    check(!has_context());
    fake_cuda_remove();
}

TAP_TEST(callers_context_is_used_where_there_is_one)
{
    struct drv_context *context, *current = NULL;
    struct gfs_memory memory;

    begin("");
    init_memory(&memory, 0);
    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    cu->cuCtxPushCurrent_v2(context);
    check_int(gfs_memory_enter(&memory, 0), 0);
    gfs_memory_leave(&memory);
    check_int(cu->cuCtxPopCurrent_v2(&current), DRV_SUCCESS);
    check(current == context);
    cu->cuDevicePrimaryCtxRelease_v2(0);
    check(has_context()); /* until the handle is closed, which has a byte in it */
    gfs_memory_close(&memory);
    check(!has_context());
    fake_cuda_remove();
}

/* ---- mappings ------------------------------------------------------------------------------- */

TAP_TEST(range_takes_one_access_call_and_no_handle_stays)
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    int fds[5];

    begin("fail cuMemSetAccess 1 2\n");
    init_memory(&memory, 0);
    for (int i = 0; i < 5; i++)
        fds[i] = create_exported();
    check_int(gfs_memory_enter(&memory, 0), 0);
    fill_range(&memory, &range, fds, 5, GMSFS_ACCESS_READ);
    for (int i = 0; i < 5; i++)
        close(fds[i]);
    check_int(used_bytes(), 5 * PIECE);
    gfs_range_cancel(&memory, &range);
    check_int(used_bytes(), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

TAP_TEST(readers_may_not_write_and_writers_may_until_they_publish)
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    int fd;

    begin("");
    init_memory(&memory, 0);
    fd = create_exported();
    check_int(gfs_memory_enter(&memory, 0), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_WRITE);
    check_int(write_byte(range.base), DRV_SUCCESS);
    check_int(gfs_memory_protect(&memory, range.base, PIECE, GMSFS_ACCESS_READ), 0);
    check_int(write_byte(range.base), DRV_INVALID_VALUE);
    check_int(gfs_memory_protect(&memory, range.base, PIECE, GMSFS_ACCESS_WRITE), 0);
    check_int(write_byte(range.base), DRV_SUCCESS);
    gfs_range_cancel(&memory, &range);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_READ);
    check_int(write_byte(range.base), DRV_INVALID_VALUE);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    close(fd);
    fake_cuda_remove();
}

TAP_TEST(unmapped_range_pins_nothing_and_its_addresses_come_back)
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    int fds[2];

    begin("");
    init_memory(&memory, 0);
    fds[0] = create_exported();
    fds[1] = create_exported();
    check_int(gfs_memory_enter(&memory, 0), 0);
    fill_range(&memory, &range, fds, 2, GMSFS_ACCESS_WRITE);
    check_int(write_byte(range.base + PIECE), DRV_SUCCESS);
    close(fds[0]);
    check_int(gfs_memory_unmap(&memory, range.base, 2 * PIECE), 0);
    check_int(used_bytes(), PIECE);
    check_int(gfs_memory_map(&memory, range.base, PIECE, GMSFS_ACCESS_READ, fds[1]), 0);
    check_int(gfs_memory_settle(&memory, range.base, PIECE, GMSFS_ACCESS_READ), 0);
    check_int(*(const unsigned char *)range.base, 7);
    check_int(gfs_memory_unmap(&memory, range.base, PIECE), 0);
    gfs_memory_release(&memory, range.base, range.reserved_bytes);
    close(fds[1]);
    check_int(used_bytes(), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

TAP_TEST(private_copy_is_writable_and_is_given_back)
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    uintptr_t copy = 0;
    int fd;

    begin("");
    init_memory(&memory, 0);
    fd = create_exported();
    check_int(gfs_memory_enter(&memory, 0), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_WRITE);
    check_int(write_byte(range.base + 100), DRV_SUCCESS);
    check_int(gfs_memory_protect(&memory, range.base, PIECE, GMSFS_ACCESS_READ), 0);
    check_int(gfs_memory_copy(&memory, range.base + 100, 10, &copy), 0);
    check_int(*(const unsigned char *)copy, 7);
    check_int(write_byte(copy + 9), DRV_SUCCESS);
    check_int(*(const unsigned char *)(range.base + 109), 0);
    gfs_memory_drop_copy(&memory, copy, 10);
    gfs_range_cancel(&memory, &range);
    close(fd);
    check_int(used_bytes(), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

/* ---- captures ------------------------------------------------------------------------------- */

struct capture {
    struct drv_context *context;
    struct drv_stream *stream;
};

/* The context stays current. */
static struct capture start_capture(unsigned flags)
{
    struct capture capture;

    require(cu->cuDevicePrimaryCtxRetain(&capture.context, 0) == DRV_SUCCESS);
    require(cu->cuCtxPushCurrent_v2(capture.context) == DRV_SUCCESS);
    require(cu->cuStreamCreate(&capture.stream, flags) == DRV_SUCCESS);
    require(begin_capture(capture.stream, DRV_CAPTURE_MODE_GLOBAL) == DRV_SUCCESS);
    return capture;
}

/* 1: nobody broke it. */
static int end_capture_whole(struct capture *capture)
{
    void *graph = NULL;
    int whole = end_capture(capture->stream, &graph) == DRV_SUCCESS;

    cu->cuStreamDestroy_v2(capture->stream);
    cu->cuCtxPopCurrent_v2(&capture->context);
    cu->cuDevicePrimaryCtxRelease_v2(0);
    return whole;
}

TAP_TEST(blocking_stream_that_captures_is_busy_and_stays_whole)
{
    struct gfs_memory memory;
    struct capture capture;

    begin("");
    init_memory(&memory, 0);
    capture = start_capture(DRV_STREAM_DEFAULT);
    check_int(gfs_memory_enter(&memory, 0), -EBUSY);
    check_int(gfs_memory_enter(&memory, 1), 0); /* as gmsfs_close must */
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&memory);
    check(end_capture_whole(&capture));
    check_int(gfs_memory_enter(&memory, 0), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

TAP_TEST(named_stream_that_captures_is_busy)
{
    void *streams[1];
    struct gfs_memory memory;
    struct capture capture;

    begin("");
    init_memory(&memory, 0);
    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    streams[0] = capture.stream;
    memory.wishes.streams = streams;
    memory.wishes.stream_count = 1;
    check_int(gfs_memory_enter(&memory, 0), -EBUSY);
    check(end_capture_whole(&capture));
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

/* Nobody told of it: it is not noticed, and not harmed by mappings either. */
TAP_TEST(mapping_breaks_no_capture_that_it_does_not_know)
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    struct capture capture;
    int fd;

    begin("");
    init_memory(&memory, 0);
    fd = create_exported();
    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    check_int(gfs_memory_enter(&memory, 0), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_READ);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&memory);
    check(end_capture_whole(&capture));
    gfs_memory_close(&memory);
    close(fd);
    fake_cuda_remove();
}

static int count_call(void *context)
{
    ++*(int *)context;
    return -EIO;
}

TAP_TEST(callers_way_to_synchronise_replaces_ours)
{
    struct gfs_memory memory;
    int calls = 0;

    begin("fail cuMemFree_v2 1\n");
    init_memory(&memory, 0);
    memory.wishes.synchronise = count_call;
    memory.wishes.synchronise_context = &calls;
    check_int(gfs_memory_enter(&memory, 0), 0);
    check_int(gfs_memory_synchronise(&memory), -EIO);
    check_int(calls, 1);
    memory.wishes.synchronise = NULL;
    check_int(gfs_memory_synchronise(&memory), -EINVAL);
    check(strstr(memory.error, "cuMemFree") != NULL);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

TAP_TEST(full_device_is_waited_for_all_the_same)
{
    struct gfs_memory memory;

    begin("fail cuMemAlloc_v2 2\n");
    init_memory(&memory, 0);
    check_int(gfs_memory_enter(&memory, 0), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

/* The first cuMemAlloc is the anchor's. */
TAP_TEST(full_device_is_waited_for_without_breaking_a_capture)
{
    struct gfs_memory memory;
    struct capture capture;

    begin("fail cuMemAlloc_v2 2 2\n");
    init_memory(&memory, 0);
    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    check_int(gfs_memory_enter(&memory, 0), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    check_str(memory.error, "");
    gfs_memory_leave(&memory);
    check(end_capture_whole(&capture));
    gfs_memory_close(&memory);
    fake_cuda_remove();
}

/* ---- failures ------------------------------------------------------------------------------- */

/* Everything once, with the way back that a caller takes. Negative: something failed. */
static int use_everything(const int fds[2])
{
    struct gfs_range range = {0};
    struct gfs_memory memory;
    uintptr_t copy = 0;
    int r;

    init_memory(&memory, 0);
    r = gfs_memory_enter(&memory, 0);
    if (r) {
        gfs_memory_close(&memory);
        return r;
    }
    r = gfs_range_begin(&memory, &range, 2 * PIECE);
    for (int i = 0; i < 2 && !r; i++)
        r = gfs_range_append(&memory, &range, PIECE, GMSFS_ACCESS_WRITE, fds[i]);
    if (!r)
        r = gfs_range_end(&memory, &range, GMSFS_ACCESS_WRITE);
    if (!r)
        r = gfs_memory_synchronise(&memory);
    if (!r)
        r = gfs_memory_protect(&memory, range.base, 2 * PIECE, GMSFS_ACCESS_READ);
    if (!r)
        r = gfs_memory_copy(&memory, range.base, PIECE, &copy);
    if (copy)
        gfs_memory_drop_copy(&memory, copy, PIECE);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&memory);
    gfs_memory_close(&memory);
    return r;
}

/* But for those of the way back itself. */
TAP_TEST(each_call_fails_once_and_nothing_is_left)
{
    static const char *const calls[] = {
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuCtxGetCurrent",
        "cuDevicePrimaryCtxRetain",
        "cuCtxPushCurrent_v2",
        "cuThreadExchangeStreamCaptureMode",
        "cuStreamIsCapturing",
        "cuMemAddressReserve",
        "cuMemMap",
        "cuMemImportFromShareableHandle",
        "cuMemSetAccess",
        "cuMemAlloc_v2",
        "cuMemcpyDtoD_v2",
        "cuStreamSynchronize",
    };
    char control[128];
    int fds[2];

    begin("");
    fds[0] = create_exported();
    fds[1] = create_exported();
    check_int(use_everything(fds), 0);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        for (int at = 1; at <= 2; at++) {
            int r;
            snprintf(control, sizeof control, "fail %s %d %d 1\n", calls[i], DRV_UNKNOWN, at);
            require(fake_cuda_control(control));
            r = use_everything(fds);
            /* The first allocation is the anchor, without which all works as well. */
            check(r == -EIO || (r == 0 && (at == 2 || strcmp(calls[i], "cuMemAlloc_v2") == 0)));
            require(fake_cuda_control(""));
            check(!has_context());
            check_int(used_bytes(), 2 * PIECE);
        }
    }
    close(fds[0]);
    close(fds[1]);
    check_int(used_bytes(), 0);
    fake_cuda_remove();
}

TAP_TEST(nothing_is_left_after_many_cycles)
{
    int fds[2], before;

    begin("memory 64\n");
    fds[0] = create_exported();
    fds[1] = create_exported();
    before = dup(fds[0]);
    close(before);
    for (int i = 0; i < 500; i++)
        if (use_everything(fds))
            check_int(use_everything(fds), 0);
    close(fds[0]);
    close(fds[1]);
    check_int(used_bytes(), 0);
    fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    check(fds[0] <= before); /* no descriptor more */
    close(fds[0]);
    fake_cuda_remove();
}
