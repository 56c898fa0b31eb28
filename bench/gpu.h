/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu - the bare driver calls that the GPU benchmarks hold gmsfs against
 *
 * Device 0, its primary context, and for a floor: memory made, exported, imported, mapped and
 * given access as a program does that has never heard of gmsfs. Every failure ends the program.
 */
#ifndef GMSFS_BENCH_GPU_H
#define GMSFS_BENCH_GPU_H

#include "cuda/driver.h"
#include "descriptors.h"

#include <sys/ioctl.h>

struct gpu {
    const struct drv *drv;
    drv_device device;
    struct drv_memory_prop prop;
};

/* A layout as a floor: `count` pieces of `bytes`, behind a server process and at an address. */
struct gpu_floor {
    int server;     /* descriptors_receive reads it */
    int file;       /* of an empty file system, for the ioctl */
    drv_pointer at; /* reserved for count * bytes */
    size_t count;
    uint64_t bytes;
};

BENCH_UNUSED static void gpu_check(const struct gpu *gpu, const char *call, enum drv_result result)
{
    if (result == DRV_SUCCESS)
        return;
    fprintf(stderr, "bench: %s: %s\n", call, drv_error_name(gpu->drv, result));
    exit(2);
}

/* Without a context: creating and exporting needs none. */
BENCH_UNUSED static void gpu_open(struct gpu *gpu)
{
    char error[256];

    if (drv_open(&gpu->drv, error, sizeof error)) {
        fprintf(stderr, "bench: %s\n", error);
        exit(2);
    }
    gpu_check(gpu, "cuDeviceGet", gpu->drv->cuDeviceGet(&gpu->device, 0));
    gpu->prop = (struct drv_memory_prop){
        .type = DRV_ALLOCATION_PINNED,
        .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = DRV_LOCATION_DEVICE, .id = gpu->device},
    };
}

BENCH_UNUSED static void gpu_enter_context(const struct gpu *gpu)
{
    struct drv_context *context;

    gpu_check(gpu, "cuDevicePrimaryCtxRetain",
              gpu->drv->cuDevicePrimaryCtxRetain(&context, gpu->device));
    gpu_check(gpu, "cuCtxSetCurrent", gpu->drv->cuCtxSetCurrent(context));
}

/* One piece as a descriptor, which alone keeps it. */
BENCH_UNUSED static int gpu_create(const struct gpu *gpu, uint64_t bytes)
{
    drv_memory memory;
    int fd = -1;

    gpu_check(gpu, "cuMemCreate", gpu->drv->cuMemCreate(&memory, bytes, &gpu->prop, 0));
    gpu_check(
        gpu, "cuMemExportToShareableHandle",
        gpu->drv->cuMemExportToShareableHandle(&fd, memory, DRV_HANDLE_POSIX_FILE_DESCRIPTOR, 0));
    gpu_check(gpu, "cuMemRelease", gpu->drv->cuMemRelease(memory));
    return fd;
}

BENCH_UNUSED static _Noreturn void gpu_floor_serve(int peer, size_t count, uint64_t bytes)
{
    int *fds = calloc(count, sizeof *fds);
    struct gpu gpu;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!fds)
        bench_die("serve", ENOMEM);
    gpu_open(&gpu);
    for (size_t i = 0; i < count; i++)
        fds[i] = gpu_create(&gpu, bytes);
    bench_call("ready", (int)write(peer, "", 1));
    descriptors_serve(peer, fds, count);
}

/* To be called before this process opens the driver, which does not survive a fork. Returns when
 * the memory is there. */
BENCH_UNUSED static void gpu_floor_start(struct gpu_floor *floor, const char *file, size_t count,
                                         uint64_t bytes)
{
    int pair[2];
    char ready;

    *floor = (struct gpu_floor){.count = count, .bytes = bytes};
    bench_raise_descriptors();
    bench_call("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    if (bench_call("fork", fork()) == 0) {
        close(pair[1]);
        gpu_floor_serve(pair[0], count, bytes);
    }
    close(pair[0]);
    floor->server = pair[1];
    if (read(floor->server, &ready, 1) != 1)
        bench_die("the floor's server ended", EPIPE);
    floor->file = bench_call(file, open(file, O_RDWR | O_CLOEXEC));
}

/* Its server ends and gives the memory back. */
BENCH_UNUSED static void gpu_floor_end(struct gpu_floor *floor)
{
    close(floor->server);
    close(floor->file);
    wait(NULL);
}

BENCH_UNUSED static void gpu_floor_reserve(const struct gpu *gpu, struct gpu_floor *floor)
{
    gpu_check(gpu, "cuMemAddressReserve",
              gpu->drv->cuMemAddressReserve(&floor->at, floor->count * floor->bytes, 0, 0, 0));
}

/* Sends the cheapest request to the mount: an empty ioctl. */
BENCH_UNUSED static void gpu_floor_ask(struct gpu_floor *floor)
{
    struct gmsfs_ioc_export request = {0};

    bench_call("ioctl", ioctl(floor->file, GMSFS_IOC_EXPORT, &request));
}

/* Maps a piece and releases its handle, which would keep a sleeper's memory. */
BENCH_UNUSED static void gpu_floor_map_one(const struct gpu *gpu, drv_pointer at, uint64_t bytes,
                                           int fd)
{
    drv_memory own;

    gpu_check(gpu, "cuMemImportFromShareableHandle",
              gpu->drv->cuMemImportFromShareableHandle(&own, (void *)(intptr_t)fd,
                                                       DRV_HANDLE_POSIX_FILE_DESCRIPTOR));
    close(fd);
    gpu_check(gpu, "cuMemMap", gpu->drv->cuMemMap(at, bytes, 0, own, 0));
    gpu_check(gpu, "cuMemRelease", gpu->drv->cuMemRelease(own));
}

/* An empty ioctl, the descriptors, and import, map and set access for all of them. */
BENCH_UNUSED static void gpu_floor_map(const struct gpu *gpu, struct gpu_floor *floor)
{
    const struct drv_access_desc access = {
        .location = {.type = DRV_LOCATION_DEVICE, .id = gpu->device}, .flags = DRV_ACCESS_READ};
    int fds[GMSFS_BATCH_MAX];

    gpu_floor_ask(floor);
    bench_call("request", (int)write(floor->server, "", 1));
    for (size_t done = 0; done < floor->count;) {
        size_t got = descriptors_receive(floor->server, fds);
        for (size_t i = 0; i < got; i++, done++)
            gpu_floor_map_one(gpu, floor->at + done * floor->bytes, floor->bytes, fds[i]);
    }
    gpu_check(gpu, "cuMemSetAccess",
              gpu->drv->cuMemSetAccess(floor->at, floor->count * floor->bytes, &access, 1));
}

BENCH_UNUSED static void gpu_floor_unmap(const struct gpu *gpu, struct gpu_floor *floor)
{
    for (size_t i = 0; i < floor->count; i++)
        gpu_check(gpu, "cuMemUnmap",
                  gpu->drv->cuMemUnmap(floor->at + i * floor->bytes, floor->bytes));
}

BENCH_UNUSED static void gpu_floor_free(const struct gpu *gpu, struct gpu_floor *floor)
{
    gpu_check(gpu, "cuMemAddressFree",
              gpu->drv->cuMemAddressFree(floor->at, floor->count * floor->bytes));
}

/* The first BENCH_ROUNDS of each, or as many as the bench makes. */
struct gpu_rounds {
    double attach_us[BENCH_ROUNDS_MOST], sleep_us[BENCH_ROUNDS_MOST], wake_us[BENCH_ROUNDS_MOST];
};

/* With the bare calls, and as many empty ioctls as the protocol has requests: attaching asks for
 * the lock and for the descriptors, sleeping gives the lock back, waking asks for both at once;
 * none opens a file. */
BENCH_UNUSED static double gpu_floor_attach(const struct gpu *gpu, struct gpu_floor *floor)
{
    double start_us = bench_now_us();

    gpu_floor_ask(floor);
    gpu_floor_reserve(gpu, floor);
    gpu_floor_map(gpu, floor);
    return bench_now_us() - start_us;
}

/* A sleeper waits for its work first, and holds no memory, but keeps its addresses. */
BENCH_UNUSED static double gpu_floor_sleep(const struct gpu *gpu, struct gpu_floor *floor)
{
    double start_us = bench_now_us();

    gpu_check(gpu, "cuCtxSynchronize", gpu->drv->cuCtxSynchronize());
    gpu_floor_unmap(gpu, floor);
    gpu_floor_ask(floor);
    return bench_now_us() - start_us;
}

BENCH_UNUSED static double gpu_floor_wake(const struct gpu *gpu, struct gpu_floor *floor)
{
    double start_us = bench_now_us();

    gpu_floor_map(gpu, floor);
    return bench_now_us() - start_us;
}

/* Attaches, sleeps and wakes once, and gives all of it back. */
BENCH_UNUSED static void gpu_floor_round(const struct gpu *gpu, struct gpu_floor *floor,
                                         struct gpu_rounds *rounds, int round)
{
    rounds->attach_us[round] = gpu_floor_attach(gpu, floor);
    rounds->sleep_us[round] = gpu_floor_sleep(gpu, floor);
    rounds->wake_us[round] = gpu_floor_wake(gpu, floor);
    gpu_floor_unmap(gpu, floor);
    gpu_floor_free(gpu, floor);
}

#endif
