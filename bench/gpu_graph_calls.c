/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_graph_calls - put a graph pool to sleep and wake it, with its memory given back or kept
 *
 *   gpu_graph_calls STORE SPACES CHUNKS CHUNK_BYTES
 *
 * Spaces reach from a few chunks to all CHUNKS of them, each as many more than the one before. The
 * floor is the driver's calls for as many chunks and spaces, in one process: sleeping unmaps each
 * space, releases the chunks and closes their descriptors; waking creates and exports the chunks
 * (where they were kept, has their descriptors), imports each once, maps it in every space that
 * reaches it, and sets access once a space.
 */
#include <gmsfs_graph.h>

#include "gpu.h"

struct floor {
    const struct gpu *gpu;
    size_t spaces, chunks;
    uint64_t bytes;
    drv_pointer *at; /* of each space */
    drv_memory *own; /* of each chunk, as imported */
    int *fds;        /* of each chunk; it keeps it */
};

struct rounds {
    double sleep_us[BENCH_ROUNDS], wake_us[BENCH_ROUNDS];
};

static size_t reach_of(size_t space, size_t spaces, size_t chunks)
{
    size_t reach = (space + 1) * chunks / spaces;

    return reach ? reach : 1;
}

/* ---- the floor ------------------------------------------------------------------------------- */

static void *floor_table(size_t count, size_t bytes)
{
    void *table = calloc(count, bytes);

    if (!table)
        bench_die("floor", ENOMEM);
    return table;
}

static void floor_create(struct floor *floor)
{
    for (size_t i = 0; i < floor->chunks; i++)
        floor->fds[i] = gpu_create(floor->gpu, floor->bytes);
}

static void floor_close(struct floor *floor)
{
    for (size_t i = 0; i < floor->chunks; i++)
        close(floor->fds[i]);
}

static void floor_map(struct floor *floor)
{
    const struct drv_access_desc access = {
        .location = {.type = DRV_LOCATION_DEVICE, .id = floor->gpu->device},
        .flags = DRV_ACCESS_READWRITE};
    const struct drv *drv = floor->gpu->drv;

    for (size_t i = 0; i < floor->chunks; i++)
        gpu_check(floor->gpu, "cuMemImportFromShareableHandle",
                  drv->cuMemImportFromShareableHandle(&floor->own[i],
                                                      (void *)(intptr_t)floor->fds[i],
                                                      DRV_HANDLE_POSIX_FILE_DESCRIPTOR));
    for (size_t space = 0; space < floor->spaces; space++) {
        size_t reach = reach_of(space, floor->spaces, floor->chunks);

        for (size_t i = 0; i < reach; i++)
            gpu_check(floor->gpu, "cuMemMap",
                      drv->cuMemMap(floor->at[space] + i * floor->bytes, floor->bytes, 0,
                                    floor->own[i], 0));
        gpu_check(floor->gpu, "cuMemSetAccess",
                  drv->cuMemSetAccess(floor->at[space], reach * floor->bytes, &access, 1));
    }
}

static void floor_unmap(struct floor *floor)
{
    const struct drv *drv = floor->gpu->drv;

    for (size_t space = 0; space < floor->spaces; space++)
        gpu_check(floor->gpu, "cuMemUnmap",
                  drv->cuMemUnmap(floor->at[space],
                                  reach_of(space, floor->spaces, floor->chunks) * floor->bytes));
    for (size_t i = 0; i < floor->chunks; i++)
        gpu_check(floor->gpu, "cuMemRelease", drv->cuMemRelease(floor->own[i]));
}

static void floor_open(struct floor *floor)
{
    floor->at = floor_table(floor->spaces, sizeof *floor->at);
    floor->own = floor_table(floor->chunks, sizeof *floor->own);
    floor->fds = floor_table(floor->chunks, sizeof *floor->fds);
    for (size_t i = 0; i < floor->spaces; i++)
        gpu_check(floor->gpu, "cuMemAddressReserve",
                  floor->gpu->drv->cuMemAddressReserve(&floor->at[i], floor->chunks * floor->bytes,
                                                       0, 0, 0));
}

static void floor_end(struct floor *floor)
{
    for (size_t i = 0; i < floor->spaces; i++)
        gpu_check(floor->gpu, "cuMemAddressFree",
                  floor->gpu->drv->cuMemAddressFree(floor->at[i], floor->chunks * floor->bytes));
    free(floor->at);
    free(floor->own);
    free(floor->fds);
}

/* Begins and ends asleep. `keep`: the descriptors, that is the memory, stay. */
static void floor_round(struct floor *floor, int keep, struct rounds *rounds, int round)
{
    double start_us;

    if (keep)
        floor_create(floor);
    start_us = bench_now_us();
    if (!keep)
        floor_create(floor);
    floor_map(floor);
    rounds->wake_us[round] = bench_now_us() - start_us;

    start_us = bench_now_us();
    floor_unmap(floor);
    if (!keep)
        floor_close(floor);
    rounds->sleep_us[round] = bench_now_us() - start_us;
    if (keep)
        floor_close(floor);
}

/* ---- ours ------------------------------------------------------------------------------------ */

static gmsfs_graph_pool_t *our_pool(const char *path, const struct floor *like)
{
    gmsfs_graph_space_t *space;
    gmsfs_graph_pool_t *pool;
    void *ptr;

    bench_check(path, gmsfs_graph_open(path, like->bytes, &pool));
    bench_check("wake", gmsfs_graph_wake(pool, 5000));
    for (size_t i = 0; i < like->spaces; i++) {
        bench_check("space_new",
                    gmsfs_graph_space_new(pool, like->chunks * like->bytes, 0, &space));
        bench_check("space_alloc",
                    gmsfs_graph_space_alloc(
                        space, reach_of(i, like->spaces, like->chunks) * like->bytes, &ptr));
    }
    return pool;
}

/* Times a sleep and a wake of our pool, which begins awake. keep: with GMSFS_GRAPH_KEEP. */
static void our_round(gmsfs_graph_pool_t *pool, int keep, struct rounds *rounds, int round)
{
    double start_us = bench_now_us();

    bench_check("sleep", gmsfs_graph_sleep(pool, keep ? GMSFS_GRAPH_KEEP : 0));
    rounds->sleep_us[round] = bench_now_us() - start_us;

    start_us = bench_now_us();
    bench_check("wake", gmsfs_graph_wake(pool, 5000));
    rounds->wake_us[round] = bench_now_us() - start_us;
}

static void compare(gmsfs_graph_pool_t *pool, struct floor *floor, int keep)
{
    struct rounds ours, bare, unused;
    char text[96];

    floor_round(floor, keep, &unused, 0); /* everything was called once */
    our_round(pool, keep, &unused, 0);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_round(floor, keep, &bare, round);
        our_round(pool, keep, &ours, round);
    }
    snprintf(text, sizeof text, "graph sleep%s, %zu spaces over %zu x %llu MiB",
             keep ? " keep" : "", floor->spaces, floor->chunks,
             (unsigned long long)floor->bytes >> 20);
    bench_row(text, bench_median(ours.sleep_us), bench_median(bare.sleep_us), 2.0, BENCH_AT_MOST);
    snprintf(text, sizeof text, "graph wake%s, %zu spaces over %zu x %llu MiB", keep ? " kept" : "",
             floor->spaces, floor->chunks, (unsigned long long)floor->bytes >> 20);
    bench_row(text, bench_median(ours.wake_us), bench_median(bare.wake_us), 2.0, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    gmsfs_graph_pool_t *pool;
    struct floor floor;
    struct gpu gpu;

    if (argc != 5) {
        fputs("usage: gpu_graph_calls STORE SPACES CHUNKS CHUNK_BYTES\n", stderr);
        return 2;
    }
    floor = (struct floor){.gpu = &gpu,
                           .spaces = bench_number(argv[2]),
                           .chunks = bench_number(argv[3]),
                           .bytes = bench_number(argv[4])};
    bench_raise_descriptors();
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    floor_open(&floor);
    pool = our_pool(argv[1], &floor);
    compare(pool, &floor, 0);
    compare(pool, &floor, 1);
    gmsfs_graph_close(pool);
    floor_end(&floor);
    return 0;
}
