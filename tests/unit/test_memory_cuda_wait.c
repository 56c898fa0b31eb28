/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a GPU's memory in libgmsfs, over the fake driver: waits, and captures. */
#include "memory_cuda_fixture.h"

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

/* Returns 1 if the capture was not broken. */
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
    auto_memory memory = make_memory(0, "");
    struct capture capture;

    capture = start_capture(DRV_STREAM_DEFAULT);
    check_int(gfs_memory_enter(&memory, 0, &scope), -EBUSY);
    check_int(gfs_memory_enter(&memory, 1, &scope), 0); /* as gmsfs_close must */
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&scope);
    check(end_capture_whole(&capture));
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    gfs_memory_leave(&scope);
}

TAP_TEST(named_stream_that_captures_is_busy)
{
    void *streams[1];
    auto_memory memory = make_memory(0, "");
    struct capture capture;

    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    streams[0] = capture.stream;
    memory.wishes.streams = streams;
    memory.wishes.stream_count = 1;
    check_int(gfs_memory_enter(&memory, 0, &scope), -EBUSY);
    check(end_capture_whole(&capture));
}

/* An unannounced capture is not noticed, and mappings do not harm it either. */
TAP_TEST(mapping_breaks_no_capture_that_it_does_not_know)
{
    struct gfs_range range = {0};
    struct gfs_memory memory = make_memory(0, "");
    struct capture capture;
    int fd;

    fd = create_exported();
    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_READ);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&scope);
    check(end_capture_whole(&capture));
    gfs_memory_close(&memory);
    close(fd);
    fake_cuda_remove();
}

/* Gives the byte at `from` to a stream that copies it when it is waited for. */
static struct drv_stream *ask_for_byte(void *to, uintptr_t from, unsigned flags)
{
    struct drv_stream *stream;

    require(cu->cuStreamCreate(&stream, flags) == DRV_SUCCESS);
    require(cu->cuMemcpyDtoHAsync_v2(to, from, 1, stream) == DRV_SUCCESS);
    return stream;
}

/* As gmsfs_close does: other streams finish with the memory before it goes. */
static void check_work_is_waited_for(unsigned capture_flags, int is_named)
{
    unsigned char byte = 0;
    struct gfs_range range = {0};
    struct gfs_memory memory;
    struct drv_stream *worker;
    struct capture capture;
    void *streams[2];
    int fd;

    begin_memory(&memory, 0, "lazy 1\n");
    fd = create_exported();
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_WRITE);
    gfs_memory_leave(&scope);
    check_int(write_byte(range.base), DRV_SUCCESS);
    capture = start_capture(capture_flags);
    worker = ask_for_byte(&byte, range.base, DRV_STREAM_NON_BLOCKING);
    streams[0] = capture.stream;
    streams[1] = worker;
    memory.wishes.streams = streams;
    memory.wishes.stream_count = is_named ? 2 : 0;
    check_int(gfs_memory_enter(&memory, 1, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    check_int(byte, 7);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&scope);
    cu->cuStreamDestroy_v2(worker);
    check(end_capture_whole(&capture));
    gfs_memory_close(&memory);
    close(fd);
    fake_cuda_remove();
}

TAP_TEST(work_beside_a_blocking_stream_that_captures_is_waited_for)
{
    check_work_is_waited_for(DRV_STREAM_DEFAULT, 0);
}

TAP_TEST(work_beside_a_named_stream_that_captures_is_waited_for)
{
    check_work_is_waited_for(DRV_STREAM_NON_BLOCKING, 1);
}

TAP_TEST(full_device_is_given_back_without_breaking_a_capture)
{
    auto_memory memory = make_memory(0, "fail cuMemAlloc_v2 2\n");
    struct capture capture;

    capture = start_capture(DRV_STREAM_DEFAULT);
    check_int(gfs_memory_enter(&memory, 1, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&scope);
    check(end_capture_whole(&capture));
}

static int count_call(void *context)
{
    ++*(int *)context;
    return -EIO;
}

TAP_TEST(callers_way_to_synchronise_replaces_ours)
{
    auto_memory memory = make_memory(0, "fail cuMemFree_v2 1\n");
    int calls = 0;

    memory.wishes.synchronise = count_call;
    memory.wishes.synchronise_context = &calls;
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), -EIO);
    check_int(calls, 1);
    memory.wishes.synchronise = NULL;
    check_int(gfs_memory_synchronise(&memory), -EINVAL);
    check(strstr(memory.error, "cuMemFree") != NULL);
    gfs_memory_leave(&scope);
}

TAP_TEST(callers_way_to_synchronise_is_asked_while_a_stream_captures_too)
{
    auto_memory memory = make_memory(0, "");
    struct capture capture;
    int calls = 0;

    memory.wishes.synchronise = count_call;
    memory.wishes.synchronise_context = &calls;
    capture = start_capture(DRV_STREAM_DEFAULT);
    check_int(gfs_memory_enter(&memory, 1, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), -EIO);
    check_int(calls, 1);
    gfs_memory_leave(&scope);
    check(end_capture_whole(&capture));
}

TAP_TEST(full_device_is_waited_for_all_the_same)
{
    auto_memory memory = make_memory(0, "fail cuMemAlloc_v2 2\n");

    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&scope);
}

/* The first cuMemAlloc is the anchor's. */
TAP_TEST(full_device_is_waited_for_without_breaking_a_capture)
{
    auto_memory memory = make_memory(0, "fail cuMemAlloc_v2 2 2\n");
    struct capture capture;

    capture = start_capture(DRV_STREAM_NON_BLOCKING);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    check_str(memory.error, "");
    gfs_memory_leave(&scope);
    check(end_capture_whole(&capture));
}
