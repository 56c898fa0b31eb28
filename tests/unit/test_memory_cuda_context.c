/* SPDX-License-Identifier: Apache-2.0 */
/* Tests a GPU's memory in libgmsfs, over the fake driver: contexts that the program ends or
 * chooses. */
#include "memory_cuda_fixture.h"

#define STRANGERS 16

static struct drv_context *retain_and_push(void)
{
    struct drv_context *context;

    require(cu->cuDevicePrimaryCtxRetain(&context, 0) == DRV_SUCCESS);
    require(cu->cuCtxPushCurrent_v2(context) == DRV_SUCCESS);
    return context;
}

static void pop(void)
{
    struct drv_context *context;

    check_int(cu->cuCtxPopCurrent_v2(&context), DRV_SUCCESS);
}

/* Fills the freed addresses: one of them was ours. */
static void allocate_strangers(drv_pointer strangers[STRANGERS], size_t bytes)
{
    for (int i = 0; i < STRANGERS; i++)
        require(cu->cuMemAlloc_v2(&strangers[i], bytes) == DRV_SUCCESS);
}

static void check_strangers(const drv_pointer strangers[STRANGERS])
{
    for (int i = 0; i < STRANGERS; i++)
        check_int(cu->cuMemFree_v2(strangers[i]), DRV_SUCCESS);
}

TAP_TEST(primary_context_is_not_kept_for_a_thread_that_works_in_another)
{
    struct drv_context *own, *primary;
    struct gfs_memory memory = make_memory(0, "");

    primary = retain_and_push();
    pop();
    require(create_context(&own, 0, 0) == DRV_SUCCESS);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&scope);
    check(has_context());
    check_int(cu->cuDevicePrimaryCtxRelease_v2(0), DRV_SUCCESS);
    check(!has_context());
    check(primary != own);
    gfs_memory_close(&memory);
    check_int(destroy_context(own), DRV_SUCCESS);
    fake_cuda_remove();
}

TAP_TEST(reset_of_the_primary_context_takes_nothing_of_others_at_close)
{
    drv_pointer strangers[STRANGERS];
    struct gfs_memory memory = make_memory(0, "");

    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    gfs_memory_leave(&scope);
    check_int(reset_primary(0), DRV_SUCCESS);
    retain_and_push();
    allocate_strangers(strangers, 1);
    gfs_memory_close(&memory);
    check(has_context()); /* the program's reference is its own */
    check_strangers(strangers);
    pop();
    check_int(cu->cuDevicePrimaryCtxRelease_v2(0), DRV_SUCCESS);
    check(!has_context());
    fake_cuda_remove();
}

TAP_TEST(reset_of_the_primary_context_is_survived)
{
    struct gfs_range range = {0};
    struct gfs_memory memory = make_memory(0, "");
    int fd;

    fd = create_exported();
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    gfs_memory_leave(&scope);
    check_int(reset_primary(0), DRV_SUCCESS);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_READ);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&scope);
    gfs_memory_close(&memory);
    check(!has_context());
    close(fd);
    fake_cuda_remove();
}

/* A full device waits with the anchor, if that still exists. */
TAP_TEST(full_device_after_a_reset_takes_nothing_of_others)
{
    drv_pointer strangers[STRANGERS];
    struct gfs_memory memory = make_memory(0, "");

    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    gfs_memory_leave(&scope);
    check_int(reset_primary(0), DRV_SUCCESS);
    retain_and_push();
    allocate_strangers(strangers, 1);
    require(fake_cuda_control("fail cuMemAlloc_v2 2\n"));
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    check_int(gfs_memory_synchronise(&memory), 0);
    gfs_memory_leave(&scope);
    gfs_memory_close(&memory);
    require(fake_cuda_control(""));
    check_strangers(strangers);
    pop();
    cu->cuDevicePrimaryCtxRelease_v2(0);
    fake_cuda_remove();
}

TAP_TEST(private_copy_of_a_context_that_is_gone_is_gone)
{
    drv_pointer strangers[STRANGERS];
    struct gfs_range range = {0};
    struct drv_context *own;
    struct gfs_memory memory = make_memory(0, "");
    struct gfs_copy copy;
    int fd;

    fd = create_exported();
    require(create_context(&own, 0, 0) == DRV_SUCCESS);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    fill_range(&memory, &range, &fd, 1, GMSFS_ACCESS_READ);
    check_int(gfs_memory_copy(&memory, range.base, PIECE, &copy), 0);
    gfs_memory_leave(&scope);
    check_int(destroy_context(own), DRV_SUCCESS);
    retain_and_push();
    allocate_strangers(strangers, PIECE);
    check_int(gfs_memory_enter(&memory, 0, &scope), 0);
    gfs_memory_drop_copy(&memory, &copy);
    check_str(memory.error, "");
    gfs_range_cancel(&memory, &range);
    gfs_memory_leave(&scope);
    check_strangers(strangers);
    gfs_memory_close(&memory);
    pop();
    cu->cuDevicePrimaryCtxRelease_v2(0);
    close(fd);
    fake_cuda_remove();
}

/* ---- scopes ---------------------------------------------------------------------------------- */

/* The thread's mode; it stays. */
static enum drv_capture_mode capture_mode(void)
{
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_GLOBAL, again;

    check_int(cu->cuThreadExchangeStreamCaptureMode(&mode), DRV_SUCCESS);
    again = mode;
    check_int(cu->cuThreadExchangeStreamCaptureMode(&again), DRV_SUCCESS);
    return mode;
}

static void check_thread_is_as_before(void)
{
    struct drv_context *current = NULL;

    check_int(cu->cuCtxGetCurrent(&current), DRV_SUCCESS);
    check(current == NULL);
    check_int(capture_mode(), DRV_CAPTURE_MODE_THREAD_LOCAL);
}

static int enter_and_return_early(struct gfs_memory *memory)
{
    struct drv_context *current = NULL;
    GFS_SCOPE(inner);
    int r = gfs_memory_enter(memory, 0, &inner);

    if (r)
        return r;
    check(memory->scope == &inner);
    check_int(cu->cuCtxGetCurrent(&current), DRV_SUCCESS);
    check(current != NULL);
    check_int(capture_mode(), DRV_CAPTURE_MODE_RELAXED);
    return -EINTR;
}

TAP_TEST(a_scope_ends_with_its_block_however_that_is_left)
{
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_THREAD_LOCAL;
    auto_memory memory = make_memory(0, "");

    require(cu->cuThreadExchangeStreamCaptureMode(&mode) == DRV_SUCCESS);
    check_int(enter_and_return_early(&memory), -EINTR);
    check(memory.scope == NULL);
    check_thread_is_as_before();
    require(fake_cuda_control("fail cuCtxPushCurrent_v2 999\n"));
    check_int(enter_and_return_early(&memory), -EIO);
    check_thread_is_as_before();
    require(fake_cuda_control("fail cuThreadExchangeStreamCaptureMode 999 1 1\n"));
    check_int(enter_and_return_early(&memory), -EIO);
    check_thread_is_as_before();
    require(fake_cuda_control(""));
}

TAP_TEST(a_scope_that_is_left_by_hand_does_not_end_twice)
{
    enum drv_capture_mode mode = DRV_CAPTURE_MODE_THREAD_LOCAL;
    auto_memory memory = make_memory(0, "");

    require(cu->cuThreadExchangeStreamCaptureMode(&mode) == DRV_SUCCESS);
    {
        GFS_SCOPE(never);
        GFS_SCOPE(inner);

        check(never.memory == NULL);
        check_int(gfs_memory_enter(&memory, 0, &inner), 0);
        gfs_memory_leave(&inner);
        check_thread_is_as_before();
        gfs_memory_leave(&inner);
    }
    check_thread_is_as_before();
}
