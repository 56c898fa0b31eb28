/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorded - the journal's cost for locks and allocations, against a worker without a journal
 *
 *   recorded STORE UNRECORDED_STORE
 *
 * The second is of a daemon that was linked with bench/unrecorded. All share one CPU.
 */
#include <gmsfs.h>

#include "bench.h"

#define CHUNKS  40
#define DEEDS   100
#define BYTES   65536u
#define WAIT_MS 5000u

static double time_locks(const char *store)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/lock", store);
    double start_us = bench_now_us();
    for (int i = 0; i < DEEDS; i++)
        close(bench_call(path, open(path, O_RDWR | O_CLOEXEC)));
    return (bench_now_us() - start_us) / DEEDS;
}

static double time_allocations(const char *path)
{
    gmsfs_t *store;
    uint64_t slot;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS));
    double start_us = bench_now_us();
    for (int i = 0; i < DEEDS; i++) {
        bench_check("allocate", gmsfs_allocate_handle(store, BYTES, NULL, NULL, &slot));
        bench_check("free", gmsfs_free_handle(store, slot));
    }
    double took_us = (bench_now_us() - start_us) / DEEDS;
    gmsfs_close(store);
    return took_us;
}

static void compare(const char *label, char **stores, double (*time_chunk)(const char *store))
{
    double ours_us[BENCH_ROUNDS] = {0}, floor_us[BENCH_ROUNDS] = {0};

    for (int round = 0; round < BENCH_ROUNDS; round++) {
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            floor_us[round] += time_chunk(stores[1]) / CHUNKS;
            ours_us[round] += time_chunk(stores[0]) / CHUNKS;
        }
    }
    bench_row(label, bench_median(ours_us), bench_median(floor_us), 1.2, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{

    if (argc != 3) {
        fputs("usage: recorded STORE UNRECORDED_STORE\n", stderr);
        return 2;
    }
    bench_share_cpu();
    compare("lock+unlock, recorded / not recorded (one CPU)", argv + 1, time_locks);
    compare("allocate+free, recorded / not recorded (one CPU)", argv + 1, time_allocations);
    return 0;
}
