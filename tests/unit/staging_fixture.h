/* SPDX-License-Identifier: Apache-2.0 */
/*
 * staging_fixture - bytes to and from two GPUs of the fake driver, for test_staging*.c
 *
 * Call begin, then jobs as often as needed, then end, which checks that nothing is left. With LAZY
 * the driver does its copies as late as it may.
 */
#ifndef GMSFS_TESTS_UNIT_STAGING_FIXTURE_H
#define GMSFS_TESTS_UNIT_STAGING_FIXTURE_H

#include "base/failure.h"
#include "mover/staging_cuda.h"
#include "mover/work.h"

#include "fake_cuda.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

#define LAZY       "devices 2\nlazy 1\n"
#define STEP_BYTES STAGING_BUFFER_MAX_BYTES

static const struct drv *cu;

/* One work of the tests: each item is sent from `source` to `to`, or fetched to `got`. */
struct job {
    const struct staging_memory *memory;
    uint8_t *const *to;
    const uint8_t *source;
    uint8_t *got;
    const uint64_t *starts; /* in source and got, of each item */
    bool gives_up;          /* begins each fetch twice, and reads one part of the first */
};

/* Announced by begin. */
static uint64_t expected_threads, expected_bytes;

__attribute__((unused)) static struct staging *begin(const char *control,
                                                     struct staging_memory memory[2])
{
    struct staging *staging = staging_new();
    struct failure failure;
    struct drv_uuid uuid;

    require(staging && fake_cuda_make(control));
    require(drv_open(&cu, NULL, 0) == 0);
    staging_expect(staging, expected_threads, expected_bytes);
    for (int i = 0; i < 2; i++) {
        require(cu->cuDeviceGetUuid_v2(&uuid, i) == DRV_SUCCESS);
        require(staging_open_memory(staging, GMSFS_MEMORY_CUDA, (const uint8_t *)uuid.bytes, "here",
                                    &memory[i], &failure) == 0);
    }
    return staging;
}

/* Checks that contexts, streams and pinned memory were released. */
__attribute__((unused)) static void end(struct staging *staging)
{
    char path[FAKE_PATH_BYTES + 64];

    staging_free(staging);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/context.%d.%d", fake_cuda_dir, (int)getpid(), i);
        check(access(path, F_OK) < 0);
        snprintf(path, sizeof path, "%s/leaked.%d.%d", fake_cuda_dir, (int)getpid(), i);
        check(access(path, F_OK) < 0);
    }
    fake_cuda_remove();
}

__attribute__((unused)) static uint8_t *gpu_new(const struct staging_memory *memory,
                                                size_t size_bytes)
{
    drv_pointer address;

    require(cu->cuCtxPushCurrent_v2(cuda_device(memory->device)->context) == DRV_SUCCESS);
    require(cu->cuMemAlloc_v2(&address, size_bytes ? size_bytes : 1) == DRV_SUCCESS);
    require(cu->cuCtxPopCurrent_v2(NULL) == DRV_SUCCESS);
    return (uint8_t *)(uintptr_t)address;
}

__attribute__((unused)) static void gpu_free(const struct staging_memory *memory, uint8_t *address)
{
    cu->cuCtxPushCurrent_v2(cuda_device(memory->device)->context);
    check_int(cu->cuCtxSynchronize(), DRV_SUCCESS);
    check_int(cu->cuMemFree_v2((uintptr_t)address), DRV_SUCCESS);
    cu->cuCtxPopCurrent_v2(NULL);
}

__attribute__((unused)) static uint8_t *bytes_new(size_t size_bytes, uint64_t seed)
{
    uint8_t *bytes = malloc(size_bytes + 1);

    require(bytes != NULL);
    for (size_t i = 0; i < size_bytes; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (uint8_t)(seed >> 56);
    }
    return bytes;
}

__attribute__((unused)) static int job_send(void *context, const struct work_piece *piece,
                                            void *own)
{
    const struct job *job = context;
    const struct staging_memory *memory = job->memory;
    const uint8_t *from = job->source + job->starts[piece->item] + piece->offset_bytes;
    uint8_t *to = job->to[piece->item] + piece->offset_bytes, *room;
    size_t step;
    int r = 0;

    for (size_t at = 0; !r && at < piece->size_bytes; at += step) {
        r = staging_room(own, memory, to + at, piece->size_bytes - at, &room, &step);
        if (r)
            break;
        memcpy(room, from + at, step);
        r = staging_send(own, memory, to + at, room, step);
    }
    return r;
}

__attribute__((unused)) static int job_fetch(void *context, const struct work_piece *piece,
                                             void *own)
{
    const struct job *job = context;
    const struct staging_memory *memory = job->memory;
    const uint8_t *from = job->to[piece->item] + piece->offset_bytes, *part;
    uint8_t *to = job->got + job->starts[piece->item] + piece->offset_bytes;
    size_t step = 1;
    int r = 0;

    if (job->gives_up) {
        r = staging_fetch(own, memory, job->to[0], piece->size_bytes, 1000);
        if (!r)
            r = staging_next(own, &part, &step);
    }
    if (!r)
        r = staging_fetch(own, memory, from, piece->size_bytes, STEP_BYTES);
    while (!r && step > 0) {
        r = staging_next(own, &part, &step);
        if (!r)
            memcpy(to, part, step);
        to += step;
    }
    return r;
}

__attribute__((unused)) static int job_run(struct staging *staging, struct job *job,
                                           const uint64_t *sizes, size_t count, unsigned threads,
                                           int (*piece)(void *, const struct work_piece *, void *))
{
    struct work work = {.item_bytes = sizes, .item_count = count, .context = job, .piece = piece};

    staging_equip(staging, &work, job->memory, threads);
    return work_run(&work);
}

/* Sends items of these sizes, and fetches them back. */
__attribute__((unused)) static void go_round(struct staging *staging,
                                             const struct staging_memory *memory,
                                             const uint64_t *sizes, size_t count, unsigned threads)
{
    uint64_t starts[16], whole = 0;
    uint8_t *to[16];
    struct job job = {.memory = memory, .to = to, .starts = starts};

    require(count <= 16);
    for (size_t i = 0; i < count; i++) {
        starts[i] = whole;
        whole += sizes[i];
        to[i] = gpu_new(memory, sizes[i]);
    }
    job.source = bytes_new(whole, threads);
    job.got = bytes_new(whole, 0);
    check_int(job_run(staging, &job, sizes, count, threads, job_send), 0);
    check_int(job_run(staging, &job, sizes, count, threads, job_fetch), 0);
    check_bytes(job.got, whole, job.source, whole);
    for (size_t i = 0; i < count; i++)
        gpu_free(memory, to[i]);
    free((void *)job.source);
    free(job.got);
}

#endif
