/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_ring - the least cost of moving a file to GPUs: bare preads into pinned memory, bare copies
 * from there, or both
 *
 * For gpu_load.c and gpu_load_several.c. Each GPU has a process of its own, so that nothing of the
 * driver is shared, and everything is pinned and made before the clock starts. Its threads take the
 * next bytes each, on the processors near the GPU.
 */
#ifndef GMSFS_BENCH_GPU_RING_H
#define GMSFS_BENCH_GPU_RING_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/near.h"
#include "gpu.h"

#define GPU_RING_PINNED_BYTES ((size_t)256 << 20)
#define GPU_RING_DEVICE_BYTES ((size_t)1 << 30) /* written over and over */
#define GPU_RING_THREADS_MAX  32u
#define GPU_RING_BUFFERS_MAX  8u
#define GPU_RING_GPUS_MAX     8

struct gpu_ring_way {
    int reads, copies;         /* true if the bytes are read, copied */
    int one_stream;            /* of all threads; else each has its own */
    unsigned threads, buffers; /* buffers: of a thread */
    size_t buffer_bytes;       /* all of them within GPU_RING_PINNED_BYTES */
};

/* The process of one GPU. */
struct gpu_ring {
    int peer;
    pid_t child;
    size_t bytes; /* of the file */
};

/* ---- in that process ----------------------------------------------------------------------- */

struct gpu_ring_thread {
    struct gpu_ring_state *state;
    unsigned number;
    struct drv_stream *stream;
    struct drv_event *events[GPU_RING_BUFFERS_MAX];
};

struct gpu_ring_state {
    struct gpu gpu;
    struct drv_context *context;
    cpu_set_t near;
    int is_near;
    int file;
    size_t bytes;
    char *pinned;
    drv_pointer device;
    struct gpu_ring_thread threads[GPU_RING_THREADS_MAX];
    struct gpu_ring_way way;
    atomic_size_t next;
};

static void gpu_ring_read(const struct gpu_ring_state *state, char *to, size_t at, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = pread(state->file, to, bytes, (off_t)at);
        if (got <= 0)
            bench_die("read", errno);
        to += got;
        at += (size_t)got;
        bytes -= (size_t)got;
    }
}

static void *gpu_ring_work(void *context)
{
    struct gpu_ring_thread *thread = context;
    struct gpu_ring_state *state = thread->state;
    const struct drv *drv = state->gpu.drv;
    const struct gpu_ring_way *way = &state->way;
    struct drv_stream *stream = way->one_stream ? state->threads[0].stream : thread->stream;
    size_t at, turn = 0;

    if (state->is_near)
        near_stay(&state->near);
    gpu_check(&state->gpu, "cuCtxSetCurrent", drv->cuCtxSetCurrent(state->context));
    for (; (at = atomic_fetch_add(&state->next, way->buffer_bytes)) < state->bytes; turn++) {
        struct drv_event *event = thread->events[turn % way->buffers];
        char *buffer = state->pinned +
                       (thread->number * way->buffers + turn % way->buffers) * way->buffer_bytes;
        size_t left = state->bytes - at;
        size_t bytes = left < way->buffer_bytes ? left : way->buffer_bytes;

        if (way->copies && turn >= way->buffers)
            gpu_check(&state->gpu, "cuEventSynchronize", drv->cuEventSynchronize(event));
        if (way->reads)
            gpu_ring_read(state, buffer, at, bytes);
        if (!way->copies)
            continue;
        gpu_check(&state->gpu, "cuMemcpyHtoDAsync",
                  drv->cuMemcpyHtoDAsync_v2(
                      state->device + at % (GPU_RING_DEVICE_BYTES - GPU_RING_PINNED_BYTES), buffer,
                      bytes, stream));
        gpu_check(&state->gpu, "cuEventRecord", drv->cuEventRecord(event, stream));
    }
    gpu_check(&state->gpu, "cuStreamSynchronize", drv->cuStreamSynchronize(stream));
    return NULL;
}

static void gpu_ring_round(struct gpu_ring_state *state)
{
    pthread_t ids[GPU_RING_THREADS_MAX];

    atomic_store(&state->next, 0);
    for (unsigned i = 0; i < state->way.threads; i++)
        if (pthread_create(&ids[i], NULL, gpu_ring_work, &state->threads[i]) != 0)
            bench_die("thread", EAGAIN);
    for (unsigned i = 0; i < state->way.threads; i++)
        pthread_join(ids[i], NULL);
}

static void gpu_ring_prepare(struct gpu_ring_state *state, int device)
{
    const struct drv *drv;
    struct gpu *gpu = &state->gpu;
    char pci_id[32];
    void *pinned;

    gpu_open(gpu);
    drv = gpu->drv;
    gpu_check(gpu, "cuDeviceGet", drv->cuDeviceGet(&gpu->device, device));
    state->is_near = drv->cuDeviceGetPCIBusId(pci_id, sizeof pci_id, gpu->device) == DRV_SUCCESS &&
                     near_find(NEAR_SYSFS, pci_id, &state->near) == 0;
    if (state->is_near)
        near_stay(&state->near);
    gpu_check(gpu, "cuDevicePrimaryCtxRetain",
              drv->cuDevicePrimaryCtxRetain(&state->context, gpu->device));
    gpu_check(gpu, "cuCtxSetCurrent", drv->cuCtxSetCurrent(state->context));
    gpu_check(gpu, "cuMemHostAlloc", drv->cuMemHostAlloc(&pinned, GPU_RING_PINNED_BYTES, 0));
    state->pinned = memset(pinned, 1, GPU_RING_PINNED_BYTES);
    gpu_check(gpu, "cuMemAlloc", drv->cuMemAlloc_v2(&state->device, GPU_RING_DEVICE_BYTES));
    for (unsigned i = 0; i < GPU_RING_THREADS_MAX; i++) {
        struct gpu_ring_thread *thread = &state->threads[i];
        *thread = (struct gpu_ring_thread){.state = state, .number = i};
        gpu_check(gpu, "cuStreamCreate",
                  drv->cuStreamCreate(&thread->stream, DRV_STREAM_NON_BLOCKING));
        for (unsigned j = 0; j < GPU_RING_BUFFERS_MAX; j++)
            gpu_check(gpu, "cuEventCreate",
                      drv->cuEventCreate(&thread->events[j], DRV_EVENT_DISABLE_TIMING));
    }
    fprintf(stderr, "bench: GPU %d at %s, %u of %ld processors near it\n", device, pci_id,
            state->is_near ? near_count(&state->near) : 0, sysconf(_SC_NPROCESSORS_ONLN));
}

static _Noreturn void gpu_ring_serve(int peer, int device, const char *path)
{
    static struct gpu_ring_state state;
    struct stat status;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    state.file = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    bench_call(path, fstat(state.file, &status));
    state.bytes = (size_t)status.st_size;
    gpu_ring_prepare(&state, device);
    do {
        bench_call("ready", (int)write(peer, "", 1));
        if (read(peer, &state.way, sizeof state.way) != (ssize_t)sizeof state.way)
            _exit(0);
        gpu_ring_round(&state);
    } while (1);
}

/* ---- for the bench ------------------------------------------------------------------------- */

BENCH_UNUSED static void gpu_ring_await(const struct gpu_ring *ring)
{
    char ready;

    if (read(ring->peer, &ready, 1) != 1)
        bench_die("the process of a GPU ended", EPIPE);
}

/* To be called before this process opens the driver. Returns when all is pinned. */
BENCH_UNUSED static void gpu_ring_start(struct gpu_ring *ring, int device, const char *path)
{
    struct stat status;
    int pair[2];

    bench_call(path, stat(path, &status));
    ring->bytes = (size_t)status.st_size;
    bench_call("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    ring->child = bench_call("fork", fork());
    if (ring->child == 0) {
        close(pair[1]);
        gpu_ring_serve(pair[0], device, path);
    }
    close(pair[0]);
    ring->peer = pair[1];
    gpu_ring_await(ring);
}

BENCH_UNUSED static void gpu_ring_end(struct gpu_ring *ring)
{
    close(ring->peer);
    kill(ring->child, SIGKILL); /* the others have our end of its socket, too */
    waitpid(ring->child, NULL, 0);
}

/* All of them at once: until the last one is done with the file. */
BENCH_UNUSED static double gpu_ring_time(struct gpu_ring *rings, int count, struct gpu_ring_way way)
{
    double start_us = bench_now_us();

    for (int i = 0; i < count; i++)
        bench_call("request", (int)write(rings[i].peer, &way, sizeof way));
    for (int i = 0; i < count; i++)
        gpu_ring_await(&rings[i]);
    return bench_now_us() - start_us;
}

/* As one large copy does it. */
BENCH_UNUSED static double gpu_ring_time_copies(struct gpu_ring *rings, int count)
{
    return gpu_ring_time(
        rings, count,
        (struct gpu_ring_way){
            .copies = 1, .threads = 1, .buffers = 2, .buffer_bytes = GPU_RING_PINNED_BYTES / 2});
}

/* Into buffers that stay where they are, by as many threads as are best. */
BENCH_UNUSED static double gpu_ring_time_reads(struct gpu_ring *rings, int count, unsigned *threads)
{
    double best_us = 0;

    for (unsigned some = 4; some <= GPU_RING_THREADS_MAX; some *= 2) {
        double took_us = gpu_ring_time(
            rings, count,
            (struct gpu_ring_way){
                .reads = 1, .threads = some, .buffers = 1, .buffer_bytes = (size_t)1 << 20});
        if (best_us == 0 || took_us < best_us) {
            best_us = took_us;
            *threads = some;
        }
    }
    return best_us;
}

BENCH_UNUSED static void gpu_ring_tell(const char *label, int count, const struct gpu_ring_way *way,
                                       double took_us)
{
    fprintf(stderr, "bench: %s, %d GPU(s): %u threads of each, %u x %zu MiB, %s: %.1f ms\n", label,
            count, way->threads, way->buffers, way->buffer_bytes >> 20,
            way->one_stream ? "one stream" : "streams", took_us / 1e3);
}

/* Times reads and copies by each of some rings, and prints each time. Returns the fastest ring. */
BENCH_UNUSED static struct gpu_ring_way gpu_ring_choose(struct gpu_ring *rings, int count,
                                                        double *took_us_of_best)
{
    static const unsigned threads[] = {8, 12, 16};
    struct gpu_ring_way best = {0};
    double best_us = 0;

    for (unsigned i = 0; i < 2 * 3 * 3; i++) {
        struct gpu_ring_way way = {.reads = 1,
                                   .copies = 1,
                                   .one_stream = i >= 9,
                                   .threads = threads[i / 3 % 3],
                                   .buffers = 2,
                                   .buffer_bytes = (size_t)1 << (20 + i % 3)};
        double took_us = gpu_ring_time(rings, count, way);
        gpu_ring_tell("bare ring", count, &way, took_us);
        if (best_us == 0 || took_us < best_us) {
            best_us = took_us;
            best = way;
        }
    }
    *took_us_of_best = best_us;
    return best;
}

#endif
