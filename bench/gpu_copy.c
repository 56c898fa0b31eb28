/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_copy - `gmsfs copy` to GPUs, against bare copies
 *
 *   gpu_copy GMSFS COUNT BYTES HOST GPU0 GPU1 [GPU2]
 *
 * HOST is a store in host memory, GPU0 and the others are stores on these devices.
 * A store of COUNT allocations of BYTES on GPU 0 is copied to GPU 1, against one cuMemcpyPeer of as
 * many bytes between memory of these GPUs, with peer access; to GPU 1 and GPU 2 at once, against
 * GPU 1 alone; from host memory to GPU 1, against one copy of as many bytes from pinned memory;
 * from GPU 0 to host memory, against such a copy and against bare writes of as many bytes to as
 * many new memfds by 12 threads: the kernel has to make every page. Ours is the
 * time of moving bytes, as the command itself takes it: contexts and memory are made before. The
 * time of the whole command is printed beside the table.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "command.h"
#include "gpu_copies.h"
#include "places.h"

#define COMMAND_BYTES 16384

/* Not of the table of functions: gmsfs does not call these. */
typedef enum drv_result peer_enable(struct drv_context *other, unsigned flags);
typedef enum drv_result peer_copy(drv_pointer to, struct drv_context *to_context, drv_pointer from,
                                  struct drv_context *from_context, size_t bytes);

/* ---- ours ---------------------------------------------------------------------------------- */

static double whole_us; /* of the last command */

static double time_copy(const char *gmsfs, const char *from, char **to, int count, double bytes)
{
    char command[COMMAND_BYTES];
    size_t length = (size_t)snprintf(command, sizeof command, "'%s' copy '%s'", gmsfs, from);
    double start_us, took_us;

    for (int i = 0; i < count && length < sizeof command; i++)
        length += (size_t)snprintf(command + length, sizeof command - length, " '%s'", to[i]);
    if (length >= sizeof command)
        bench_die("the command", E2BIG);
    start_us = bench_now_us();
    took_us = command_time_us(command, bytes * count);
    whole_us = bench_now_us() - start_us;
    return took_us;
}

/* ---- floors -------------------------------------------------------------------------------- */

struct peers {
    struct gpu gpu;
    struct drv_context *contexts[2];
    drv_pointer memory[2];
    peer_copy *copy;
    size_t bytes;
};

static void peers_open(struct peers *peers, size_t bytes)
{
    const struct drv *drv;
    peer_enable *enable = NULL;
    void *library;

    gpu_open(&peers->gpu);
    drv = peers->gpu.drv;
    peers->bytes = bytes;
    for (int i = 0; i < 2; i++) {
        gpu_check(&peers->gpu, "cuDevicePrimaryCtxRetain",
                  drv->cuDevicePrimaryCtxRetain(&peers->contexts[i], i));
        gpu_check(&peers->gpu, "cuCtxSetCurrent", drv->cuCtxSetCurrent(peers->contexts[i]));
        gpu_check(&peers->gpu, "cuMemAlloc", drv->cuMemAlloc_v2(&peers->memory[i], bytes));
    }
    library = dlopen("libcuda.so.1", RTLD_NOW);
    *(void **)&peers->copy = library ? dlsym(library, "cuMemcpyPeer") : NULL;
    *(void **)&enable = library ? dlsym(library, "cuCtxEnablePeerAccess") : NULL;
    if (!peers->copy || !enable)
        bench_die("cuMemcpyPeer", ENOSYS);
    /* Without it the driver copies through host memory. */
    for (int i = 0; i < 2; i++) {
        gpu_check(&peers->gpu, "cuCtxSetCurrent", drv->cuCtxSetCurrent(peers->contexts[i]));
        gpu_check(&peers->gpu, "cuCtxEnablePeerAccess", enable(peers->contexts[1 - i], 0));
    }
}

/* The call returns before the copy between two GPUs is done. */
static double peers_time(const struct peers *peers)
{
    double start_us = bench_now_us();

    gpu_check(&peers->gpu, "cuMemcpyPeer",
              peers->copy(peers->memory[1], peers->contexts[1], peers->memory[0],
                          peers->contexts[0], peers->bytes));
    for (int i = 0; i < 2; i++) {
        gpu_check(&peers->gpu, "cuCtxSetCurrent",
                  peers->gpu.drv->cuCtxSetCurrent(peers->contexts[i]));
        gpu_check(&peers->gpu, "cuCtxSynchronize", peers->gpu.drv->cuCtxSynchronize());
    }
    return bench_now_us() - start_us;
}

static void peers_close(const struct peers *peers)
{
    for (int i = 0; i < 2; i++) {
        peers->gpu.drv->cuCtxSetCurrent(peers->contexts[i]);
        gpu_check(&peers->gpu, "cuMemFree", peers->gpu.drv->cuMemFree_v2(peers->memory[i]));
    }
}

/* Threads that write the parts of new files, each from a buffer of its own. */
#define WRITERS     12
#define PART_BYTES  ((size_t)16 << 20)
#define WRITE_BYTES ((size_t)1 << 20)

struct writes {
    int fds[64];
    size_t count, bytes; /* files, and bytes of each */
    size_t part_bytes;
    atomic_size_t next; /* part: those at one offset of all files follow each other */
};

static void *writes_run(void *context)
{
    struct writes *writes = context;
    size_t parts = writes->count * (writes->bytes / writes->part_bytes), part;
    char *buffer = malloc(WRITE_BYTES);

    if (!buffer)
        bench_die("malloc", ENOMEM);
    memset(buffer, 1, WRITE_BYTES);
    while ((part = atomic_fetch_add(&writes->next, 1)) < parts) {
        off_t at = (off_t)(part / writes->count * writes->part_bytes);
        for (size_t done = 0; done < writes->part_bytes; done += WRITE_BYTES)
            if (pwrite(writes->fds[part % writes->count], buffer, WRITE_BYTES, at + (off_t)done) !=
                (ssize_t)WRITE_BYTES)
                bench_die("pwrite", errno);
    }
    free(buffer);
    return NULL;
}

static double writes_time(size_t count, size_t bytes)
{
    struct writes writes = {.count = count, .bytes = bytes};
    size_t part = bytes < PART_BYTES ? bytes : PART_BYTES;
    pthread_t threads[WRITERS];
    double start_us;

    if (count > sizeof writes.fds / sizeof *writes.fds || bytes % part || part % WRITE_BYTES)
        bench_die("COPY: at most 64 allocations of a multiple of 16M, or of 1M below", EINVAL);
    writes.part_bytes = part;
    for (size_t i = 0; i < count; i++)
        if ((writes.fds[i] = memfd_create("bench", 0)) < 0 ||
            ftruncate(writes.fds[i], (off_t)bytes) < 0)
            bench_die("memfd_create", errno);
    start_us = bench_now_us();
    for (int i = 0; i < WRITERS; i++)
        if (pthread_create(&threads[i], NULL, writes_run, &writes) != 0)
            bench_die("pthread_create", EAGAIN);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    start_us = bench_now_us() - start_us;
    for (size_t i = 0; i < count; i++)
        close(writes.fds[i]);
    return start_us;
}

/* ---- the rows ------------------------------------------------------------------------------ */

static void tell_whole(const char *what)
{
    fprintf(stderr, "bench: the command that copies %s takes %.0f ms in all\n", what,
            whole_us / 1e3);
}

static void row_gpu(const char *gmsfs, char **stores, double bytes)
{
    double ours_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    struct peers peers;
    char label[96];

    peers_open(&peers, (size_t)bytes);
    peers_time(&peers);
    time_copy(gmsfs, stores[0], stores + 1, 1, bytes);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_us[round] = peers_time(&peers);
        ours_us[round] = time_copy(gmsfs, stores[0], stores + 1, 1, bytes);
    }
    peers_close(&peers);
    tell_whole("GPU to GPU");
    snprintf(label, sizeof label, "copy %.1f GB from GPU to GPU / cuMemcpyPeer (speed)",
             bytes / 1e9);
    bench_row(label, bench_median(ours_us), bench_median(floor_us), 0.95, BENCH_AT_LEAST);
}

static void row_chain(const char *gmsfs, char **stores, double bytes)
{
    double two_us[BENCH_ROUNDS], one_us[BENCH_ROUNDS];

    time_copy(gmsfs, stores[0], stores + 1, 2, bytes);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        one_us[round] = time_copy(gmsfs, stores[0], stores + 1, 1, bytes);
        two_us[round] = time_copy(gmsfs, stores[0], stores + 1, 2, bytes);
    }
    bench_row("  to 2 GPUs in a chain / to one", bench_median(two_us), bench_median(one_us), 1.1,
              BENCH_AT_MOST);
}

static void row_host(const char *gmsfs, char **host, char **stores, size_t count, double bytes)
{
    double up_us[BENCH_ROUNDS], down_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];
    double writes_us[BENCH_ROUNDS];
    struct gpu_copies copies;
    struct gpu gpu;

    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    copies.gpu = &gpu;
    gpu_copies_prepare(&copies, (uint64_t)bytes);
    for (int round = -1; round < BENCH_ROUNDS; round++) {
        int to = round < 0 ? 0 : round; /* everything was called once */
        down_us[to] = time_copy(gmsfs, stores[0], host, 1, bytes);
        up_us[to] = time_copy(gmsfs, *host, stores + 1, 1, bytes);
        floor_us[to] = gpu_copies_time(&copies, 1, (uint64_t)bytes);
        places_fill(*host, 0, 0); /* room for the bare writes */
        writes_us[to] = writes_time(count, (size_t)bytes / count);
    }
    tell_whole("host to GPU");
    gpu_copies_end(&copies);
    bench_row("  from host memory to GPU / pinned copy (speed)", bench_median(up_us),
              bench_median(floor_us), 0.75, BENCH_AT_LEAST);
    bench_row_told("  from GPU to host memory / pinned copy (speed)", bench_median(down_us),
                   bench_median(floor_us));
    bench_row_told("  from GPU to host memory / bare writes to new memfds (speed)",
                   bench_median(down_us), bench_median(writes_us));
}

int main(int argc, char **argv)
{
    char **host = argv + 4, **stores = argv + 5;
    double bytes;

    if (argc < 7 || argc > 8) {
        fputs("usage: gpu_copy GMSFS COUNT BYTES HOST GPU0 GPU1 [GPU2]\n", stderr);
        return 2;
    }
    bytes = (double)(bench_number(argv[2]) * bench_number(argv[3]));
    places_fill(stores[0], bench_number(argv[2]), bench_number(argv[3]));
    row_gpu(argv[1], stores, bytes);
    if (argc == 8)
        row_chain(argv[1], stores, bytes);
    row_host(argv[1], host, stores, bench_number(argv[2]), bytes);
    return 0;
}
