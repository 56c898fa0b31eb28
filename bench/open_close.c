/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_close - lock and unlock by open+close of `lock`, against open+close on empty_fs
 *
 *   open_close STORE FLOOR_FILE
 */
#include <gmsfs.h>

#include "bench.h"

#define CHUNKS      40
#define CHUNK_OPENS 100

static double time_chunk(const char *path, int flags)
{
    double start_us = bench_now_us();

    for (int i = 0; i < CHUNK_OPENS; i++)
        close(bench_call(path, open(path, flags | O_CLOEXEC)));
    return bench_now_us() - start_us;
}

static void compare(const char *label, const char *ours, const char *floor, int flags)
{
    double ours_us[BENCH_ROUNDS] = {0}, floor_us[BENCH_ROUNDS] = {0};

    for (int round = 0; round < BENCH_ROUNDS; round++) {
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            floor_us[round] += time_chunk(floor, flags) / (CHUNKS * CHUNK_OPENS);
            ours_us[round] += time_chunk(ours, flags) / (CHUNKS * CHUNK_OPENS);
        }
    }
    bench_row(label, bench_median(ours_us), bench_median(floor_us), 1.2, BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    char path[4096];
    gmsfs_t *store;

    if (argc != 3) {
        fputs("usage: open_close STORE FLOOR_FILE\n", stderr);
        return 2;
    }
    bench_share_cpu();
    /* Readers need something committed. */
    bench_check(argv[1], gmsfs_open(argv[1], &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 5000));
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
    snprintf(path, sizeof path, "%s/lock", argv[1]);
    compare("lock+unlock, writer: open+close / empty FUSE (one CPU)", path, argv[2], O_RDWR);
    compare("lock+unlock, reader: open+close / empty FUSE (one CPU)", path, argv[2], O_RDONLY);
    return 0;
}
