/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_attach - map a committed layout of GPU memory, put the process to sleep, wake it
 *
 *   gpu_attach STORE FLOOR_FILE COUNT BYTES
 *
 * STORE is filled with COUNT allocations of BYTES first. Ours is timed from an open handle that
 * has its connection to `.fds`, without lock or descriptors, until all is mapped with access; the
 * floor is two empty ioctls on FLOOR_FILE, for the lock and for the descriptors, COUNT descriptors
 * of a server process, one reservation, import, map and release of the handle for each, and one
 * access call. Sleeping: a wait for the context's work, the unmap calls, and one ioctl, for the
 * lock. Waking: the floor of attaching without the reservation, for a sleeper holds nothing, and
 * with one ioctl, which asks for lock and descriptors. Medians of 5 rounds, or of 25 where a round
 * takes a few milliseconds. The calls of both are printed on stderr after they were made.
 * The process has a little device memory of its own, as every engine has by then: to the first
 * bytes that a process has of a device the driver gives 2 MiB, which takes it 0.1 ms.
 */
#include <gmsfs.h>

#include "gpu.h"
#include "trace.h"

#define LIMIT           1.15
#define FEW             64 /* allocations, of which a round takes a few milliseconds */
#define OWN_BYTES       4096
#define LIMIT_SLEEP_ONE 1.3 /* one unmap call is not much more than the ioctl */

static double since(double start_us)
{
    return bench_now_us() - start_us;
}

/* With so many allocations; 0: the memory goes back before the next layout comes. */
static void fill(const char *path, size_t count, uint64_t bytes)
{
    uint64_t first;
    gmsfs_t *store;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("clear", gmsfs_clear_all_handles(store));
    if (count)
        bench_check("allocate", gmsfs_allocate_handles(store, (uint32_t)count, bytes, "weights",
                                                       NULL, 0, &first));
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
}

/* Open, with the connection that the first export makes. */
static gmsfs_t *open_connected(const char *path)
{
    struct gmsfs_handle_info *list;
    gmsfs_t *store;
    size_t count;
    int fd;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 5000));
    bench_check("list", gmsfs_list_handles(store, NULL, &list, &count));
    bench_check("export", gmsfs_export_handle(store, list[0].slot, GMSFS_ACCESS_READ, &fd));
    close(fd);
    free(list);
    bench_check("disconnect", gmsfs_disconnect(store));
    return store;
}

static void our_round(const char *path, size_t count, struct gpu_rounds *rounds, int round)
{
    gmsfs_t *store = open_connected(path);
    double start_us = bench_now_us();
    size_t mapped;

    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 5000));
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, &mapped));
    rounds->attach_us[round] = since(start_us);
    if (mapped != count)
        bench_die("attach: another number of allocations", EPROTO);

    start_us = bench_now_us();
    bench_check("unmap_all_vas", gmsfs_unmap_all_vas(store, 0));
    rounds->sleep_us[round] = since(start_us);

    start_us = bench_now_us();
    bench_check("remap_all_vas", gmsfs_remap_all_vas(store, 5000, 0));
    rounds->wake_us[round] = since(start_us);
    gmsfs_close(store);
}

struct unmapping {
    double unmap_us[BENCH_ROUNDS], map_us[BENCH_ROUNDS]; /* and mapped again at the same place */
};

/* All of the range at once, or each piece by a call of its own. */
static void time_unmap(const struct gpu *gpu, struct gpu_floor *floor, int at_once,
                       struct unmapping *took, int round)
{
    double start_us;

    gpu_floor_attach(gpu, floor);
    start_us = bench_now_us();
    if (at_once)
        gpu_check(gpu, "cuMemUnmap", gpu->drv->cuMemUnmap(floor->at, floor->count * floor->bytes));
    else
        gpu_floor_unmap(gpu, floor);
    took->unmap_us[round] = since(start_us);
    took->map_us[round] = gpu_floor_wake(gpu, floor);
    gpu_floor_unmap(gpu, floor);
    gpu_floor_free(gpu, floor);
}

static void look_at_unmap(const struct gpu *gpu, struct gpu_floor *floor)
{
    struct unmapping each, once;

    for (int round = 0; round < BENCH_ROUNDS; round++) {
        time_unmap(gpu, floor, 0, &each, round);
        time_unmap(gpu, floor, 1, &once, round);
    }
    fprintf(stderr,
            "bench: bare unmap: each by a call %.1f us, then a bare wake %.1f; all by one %.1f, "
            "then %.1f\n",
            bench_median(each.unmap_us), bench_median(each.map_us), bench_median(once.unmap_us),
            bench_median(once.map_us));
}

static void look_at_floor(const struct gpu *gpu, struct gpu_floor *floor)
{
    trace_begin(gpu->drv);
    gpu_floor_attach(gpu, floor);
    trace_end("the floor's attach");
    trace_begin(gpu->drv);
    gpu_floor_sleep(gpu, floor);
    trace_end("the floor's sleep");
    trace_begin(gpu->drv);
    gpu_floor_wake(gpu, floor);
    trace_end("the floor's wake");
    gpu_floor_unmap(gpu, floor);
    gpu_floor_free(gpu, floor);
}

/* Which calls ours makes, and how long they take, beside those of the floor: not measured. */
static void look(const struct gpu *gpu, struct gpu_floor *floor, const char *path, size_t count,
                 const char *layout)
{
    size_t mapped;
    gmsfs_t *store;

    fprintf(stderr, "bench: the calls of %s:\n", layout);
    look_at_unmap(gpu, floor);
    look_at_floor(gpu, floor);
    store = open_connected(path);
    trace_begin(gpu->drv);
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, 5000));
    trace_end("connect");
    trace_begin(gpu->drv);
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, &mapped));
    trace_end("attach");
    trace_begin(gpu->drv);
    bench_check("unmap_all_vas", gmsfs_unmap_all_vas(store, GMSFS_UNMAP_KEEP_LOCK));
    trace_end("sleep, the lock kept");
    trace_begin(gpu->drv);
    bench_check("disconnect", gmsfs_disconnect(store));
    trace_end("the lock's release");
    trace_begin(gpu->drv);
    bench_check("remap_all_vas", gmsfs_remap_all_vas(store, 5000, 0));
    trace_end("wake");
    gmsfs_close(store);
    if (mapped != count)
        bench_die("attach: another number of allocations", EPROTO);
}

static void row(const char *label, const char *layout, const double *ours_us,
                const double *floor_us, int rounds, double limit)
{
    char text[96];

    snprintf(text, sizeof text, "%s %s", label, layout);
    bench_row(text, bench_median_of(ours_us, rounds), bench_median_of(floor_us, rounds), limit,
              BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    struct gpu_rounds ours, bare, unused;
    struct gpu_floor floor;
    drv_pointer own;
    char layout[64];
    struct gpu gpu;
    size_t count;
    uint64_t bytes;
    int rounds;

    if (argc != 5) {
        fputs("usage: gpu_attach STORE FLOOR_FILE COUNT BYTES\n", stderr);
        return 2;
    }
    count = bench_number(argv[3]);
    bytes = bench_number(argv[4]);
    rounds = count <= FEW ? BENCH_ROUNDS_MOST : BENCH_ROUNDS;
    snprintf(layout, sizeof layout, "%zu x %llu MiB", count, (unsigned long long)bytes >> 20);
    gpu_floor_start(&floor, argv[2], count, bytes);
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    gpu_check(&gpu, "cuMemAlloc", gpu.drv->cuMemAlloc_v2(&own, OWN_BYTES));
    fill(argv[1], count, bytes);

    gpu_floor_round(&gpu, &floor, &unused, 0); /* everything was called once */
    our_round(argv[1], count, &unused, 0);
    for (int round = 0; round < rounds; round++) {
        gpu_floor_round(&gpu, &floor, &bare, round);
        our_round(argv[1], count, &ours, round);
    }
    row("attach", layout, ours.attach_us, bare.attach_us, rounds, LIMIT);
    row("sleep", layout, ours.sleep_us, bare.sleep_us, rounds,
        count == 1 ? LIMIT_SLEEP_ONE : LIMIT);
    row("wake", layout, ours.wake_us, bare.wake_us, rounds, LIMIT);
    look(&gpu, &floor, argv[1], count, layout);
    fill(argv[1], 0, 0);
    gpu_floor_end(&floor);
    return 0;
}
