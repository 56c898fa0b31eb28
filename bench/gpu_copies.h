/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_copies - the least cost of moving a store: one copy from or to pinned memory, making and
 * closing
 *
 * For gpu_move.c and gpu_switch.c.
 */
#ifndef GMSFS_BENCH_GPU_COPIES_H
#define GMSFS_BENCH_GPU_COPIES_H

#include "gpu.h"

#define GPU_COPY_BYTES ((size_t)1 << 30)

struct gpu_copies {
    const struct gpu *gpu;
    drv_pointer device;
    void *pinned;
    size_t bytes; /* of one */
};

BENCH_UNUSED static void gpu_copies_prepare(struct gpu_copies *copies, uint64_t all_bytes)
{
    const struct gpu *gpu = copies->gpu;

    copies->bytes = all_bytes < GPU_COPY_BYTES ? all_bytes : GPU_COPY_BYTES;
    gpu_check(gpu, "cuMemHostAlloc", gpu->drv->cuMemHostAlloc(&copies->pinned, copies->bytes, 0));
    memset(copies->pinned, 1, copies->bytes);
    gpu_check(gpu, "cuMemAlloc", gpu->drv->cuMemAlloc_v2(&copies->device, copies->bytes));
}

BENCH_UNUSED static void gpu_copies_end(struct gpu_copies *copies)
{
    gpu_check(copies->gpu, "cuMemFree", copies->gpu->drv->cuMemFree_v2(copies->device));
    gpu_check(copies->gpu, "cuMemFreeHost", copies->gpu->drv->cuMemFreeHost(copies->pinned));
}

BENCH_UNUSED static double gpu_copies_time(const struct gpu_copies *copies, int up,
                                           uint64_t all_bytes)
{
    const struct drv *drv = copies->gpu->drv;
    double start_us = bench_now_us();

    if (up)
        gpu_check(copies->gpu, "cuMemcpyHtoD",
                  drv->cuMemcpyHtoD_v2(copies->device, copies->pinned, copies->bytes));
    else
        gpu_check(copies->gpu, "cuMemcpyDtoH",
                  drv->cuMemcpyDtoH_v2(copies->pinned, copies->device, copies->bytes));
    return (bench_now_us() - start_us) * ((double)all_bytes / (double)copies->bytes);
}

BENCH_UNUSED static double gpu_time_create(const struct gpu *gpu, int *fds, size_t count,
                                           uint64_t bytes)
{
    double start_us = bench_now_us();

    for (size_t i = 0; i < count; i++)
        fds[i] = gpu_create(gpu, bytes);
    return bench_now_us() - start_us;
}

BENCH_UNUSED static double gpu_time_close(const int *fds, size_t count)
{
    double start_us = bench_now_us();

    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return bench_now_us() - start_us;
}

#endif
