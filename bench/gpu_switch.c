/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_switch - from one model to the next, and adapters that come
 *
 *   gpu_switch warm MOUNT FLOOR_FILE COUNT BYTES     both are on the device: one sleeps, one wakes
 *   gpu_switch cold MOUNT COUNT BYTES                the device holds one of them; the other is a
 * copy gpu_switch adapter MOUNT FLOOR_FILE BYTES        woken where it is; and from the host
 *
 * A model is COUNT allocations of BYTES. Floors are of the same run: the bare calls that unmap,
 * import, map and give access, with an empty ioctl on FLOOR_FILE and descriptors of a server
 * process (gpu.h); as many bytes as one large copy from pinned memory moves; the calls that make
 * and close memory.
 */
#include "gpu_copies.h"
#include "places.h"

#define COLD_MORE_US 5000.0  /* most time of a cold switch beyond 1.05 of its floor */
#define WARM_TIMES   8       /* in each round */
#define WARM_MOST_US 1000.0  /* most time of a warm switch, where the driver's calls permit it */
#define REST_US      1500000 /* for the copier to pin the copies */

static double since(double start_us)
{
    return bench_now_us() - start_us;
}

static void name(char path[PLACES_PATH_BYTES], const char *mount, const char *store)
{
    if (snprintf(path, PLACES_PATH_BYTES, "%s/%s", mount, store) >= PLACES_PATH_BYTES)
        bench_die(mount, ENAMETOOLONG);
}

/* Attached once, so that it has its addresses and its connection. */
static gmsfs_t *attach(const char *path, size_t count)
{
    gmsfs_t *store;
    size_t mapped;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RO, PLACES_TIMEOUT_MS));
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, &mapped));
    if (mapped != count)
        bench_die("attach: another number of allocations", EPROTO);
    return store;
}

static void let_sleep(gmsfs_t *store)
{
    bench_check("unmap_all_vas", gmsfs_unmap_all_vas(store, 0));
}

static void wake(gmsfs_t *store)
{
    bench_check("remap_all_vas", gmsfs_remap_all_vas(store, PLACES_TIMEOUT_MS, 0));
}

/* ---- both on the device ---------------------------------------------------------------------- */

static double time_warm(gmsfs_t *leaves, gmsfs_t *comes)
{
    double start_us = bench_now_us();

    let_sleep(leaves);
    wake(comes);
    return since(start_us);
}

/* Times the leaving store's ioctl; the other store's is in the floor of waking. */
static double time_ioctl(const struct gpu_floor *floor)
{
    struct gmsfs_ioc_export request = {0};
    double start_us = bench_now_us();

    bench_call("ioctl", ioctl(floor->file, GMSFS_IOC_EXPORT, &request));
    return since(start_us);
}

static void judge_warm(const char *label, double ours_us, double bare_us)
{
    bench_row(label, ours_us, bare_us, 1.1, BENCH_AT_MOST);
    if (bare_us > WARM_MOST_US)
        bench_row("  in all; the bare calls alone take more than 1 ms: ratio", ours_us, bare_us,
                  1.1, BENCH_AT_MOST);
    else
        bench_row_within("  in all", ours_us, WARM_MOST_US);
}

static void run_warm(const char *mount, const char *file, size_t count, uint64_t bytes)
{
    char first[PLACES_PATH_BYTES], second[PLACES_PATH_BYTES], label[96];
    double ours[BENCH_ROUNDS], bare[BENCH_ROUNDS];
    struct gpu_rounds rounds;
    struct gpu_floor floor;
    struct gpu gpu;
    gmsfs_t *a, *b;

    name(first, mount, "first");
    name(second, mount, "second");
    gpu_floor_start(&floor, file, count, bytes);
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    places_fill(first, count, bytes);
    places_fill(second, count, bytes);
    b = attach(second, count);
    let_sleep(b);
    a = attach(first, count);
    gpu_floor_round(&gpu, &floor, &rounds, 0); /* everything was called once */
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        bare[round] = ours[round] = 0;
        for (int i = 0; i < WARM_TIMES; i++) {
            gpu_floor_round(&gpu, &floor, &rounds, round);
            bare[round] +=
                (rounds.sleep_us[round] + rounds.wake_us[round] + time_ioctl(&floor)) / WARM_TIMES;
            ours[round] += time_warm(a, b) / WARM_TIMES;
            time_warm(b, a);
        }
    }
    gmsfs_close(a);
    gmsfs_close(b);
    places_fill(first, 0, 0);
    places_fill(second, 0, 0);
    gpu_floor_end(&floor);
    snprintf(label, sizeof label, "warm switch, %zu x %llu MiB / bare unmap, import, map", count,
             (unsigned long long)bytes >> 20);
    judge_warm(label, bench_median(ours), bench_median(bare));
}

/* ---- one on the device ----------------------------------------------------------------------- */

static double time_cold(gmsfs_t *leaves, const char *path, gmsfs_t *comes)
{
    double start_us = bench_now_us();

    let_sleep(leaves);
    places_order(path, "host");
    wake(comes);
    return since(start_us);
}

static double floor_cold(const struct gpu *gpu, size_t count, uint64_t bytes)
{
    double free_us[BENCH_ROUNDS], copy_us[BENCH_ROUNDS];
    struct gpu_copies copies = {.gpu = gpu};
    int *fds = calloc(count, sizeof *fds);

    if (!fds)
        bench_die("floor", ENOMEM);
    gpu_copies_prepare(&copies, count * bytes);
    for (int round = -1; round < BENCH_ROUNDS; round++) {
        int to = round < 0 ? 0 : round;

        copy_us[to] = gpu_copies_time(&copies, 1, count * bytes);
        gpu_time_create(gpu, fds, count, bytes);
        free_us[to] = gpu_time_close(fds, count);
    }
    gpu_copies_end(&copies);
    free(fds);
    return bench_median(free_us) + bench_median(copy_us);
}

static void run_cold(const char *mount, size_t count, uint64_t bytes)
{
    char paths[2][PLACES_PATH_BYTES], label[96];
    double ours[BENCH_ROUNDS], floor_us;
    gmsfs_t *stores[2];
    struct gpu gpu;

    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    for (int i = 0; i < 2; i++) {
        name(paths[i], mount, i ? "second" : "first");
        places_fill(paths[i], count, bytes);
        stores[i] = attach(paths[i], count);
        if (i == 0) {
            let_sleep(stores[i]);
            places_move(paths[i], "host", "host");
        }
    }
    time_cold(stores[1], paths[1], stores[0]); /* the second one gets its copy here */
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        time_cold(stores[0], paths[0], stores[1]);
        ours[round] = time_cold(stores[1], paths[1], stores[0]);
    }
    for (int i = 0; i < 2; i++) {
        gmsfs_close(stores[i]);
        places_fill(paths[i], 0, 0);
    }
    places_wait_number(mount, "used_bytes", 0);
    floor_us = floor_cold(&gpu, count, bytes);
    snprintf(label, sizeof label, "switch that does not fit, %zu x %llu MiB / free + copy", count,
             (unsigned long long)bytes >> 20);
    bench_row(label, bench_median(ours), floor_us, 1.05 + COLD_MORE_US / floor_us, BENCH_AT_MOST);
}

/* ---- adapters -------------------------------------------------------------------------------- */

/* Times the wake of an adapter by a handle that has used it and slept since. */
static double time_adapter(gmsfs_t *store)
{
    double start_us = bench_now_us(), took_us;

    wake(store);
    took_us = since(start_us);
    let_sleep(store);
    return took_us;
}

static void run_adapter(const char *mount, const char *file, uint64_t bytes)
{
    double hit[BENCH_ROUNDS], miss[BENCH_ROUNDS], made[BENCH_ROUNDS], copied[BENCH_ROUNDS];
    char path[PLACES_PATH_BYTES], label[96];
    struct gpu_copies copies;
    struct gpu_rounds bare;
    struct gpu_floor floor;
    struct gpu gpu;
    gmsfs_t *store;
    double wake_us;
    int fd;

    name(path, mount, "adapter");
    gpu_floor_start(&floor, file, 1, bytes);
    gpu_open(&gpu);
    gpu_enter_context(&gpu);
    copies = (struct gpu_copies){.gpu = &gpu};
    gpu_copies_prepare(&copies, bytes);
    places_fill(path, 1, bytes);
    store = attach(path, 1);
    let_sleep(store);
    places_move(path, "host", "host");
    usleep(REST_US);
    for (int round = -1; round < BENCH_ROUNDS; round++) {
        int to = round < 0 ? 0 : round; /* everything was called once */

        miss[to] = time_adapter(store); /* its use promotes it */
        places_wait_at(path, "device host");
        hit[to] = time_adapter(store);
        gpu_floor_round(&gpu, &floor, &bare, to);
        copied[to] = gpu_copies_time(&copies, 1, bytes);
        made[to] = gpu_time_create(&gpu, &fd, 1, bytes);
        close(fd);
        places_move(path, "host", "host");
    }
    gmsfs_close(store);
    places_fill(path, 0, 0);
    gpu_copies_end(&copies);
    gpu_floor_end(&floor);
    wake_us = bench_median(bare.wake_us);
    snprintf(label, sizeof label, "adapter of %llu MiB on the device / bare import, map",
             (unsigned long long)bytes >> 20);
    bench_row(label, bench_median(hit), wake_us, 2, BENCH_AT_MOST);
    bench_row("  from the host / pinned copy + create + import, map", bench_median(miss),
              bench_median(copied) + bench_median(made) + wake_us, 2, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "warm") == 0)
        run_warm(argv[2], argv[3], bench_number(argv[4]), bench_number(argv[5]));
    else if (argc == 5 && strcmp(argv[1], "cold") == 0)
        run_cold(argv[2], bench_number(argv[3]), bench_number(argv[4]));
    else if (argc == 5 && strcmp(argv[1], "adapter") == 0)
        run_adapter(argv[2], argv[3], bench_number(argv[4]));
    else {
        fputs("usage: gpu_switch warm MOUNT FLOOR_FILE COUNT BYTES\n"
              "       gpu_switch cold MOUNT COUNT BYTES\n"
              "       gpu_switch adapter MOUNT FLOOR_FILE BYTES\n",
              stderr);
        return 2;
    }
    return 0;
}
