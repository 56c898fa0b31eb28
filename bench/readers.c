/* SPDX-License-Identifier: Apache-2.0 */
/*
 * readers - processes that connect, attach everything and leave, 10 to 1,000 at a time
 *
 *   readers STORE
 *
 * They exist already and start at one moment. Each group size is measured over the same number of
 * readers; the cost of one is to be the same in all.
 */
#include <gmsfs.h>
#include <sys/wait.h>

#include "bench.h"

#define READERS 1000

static const int SIZES[] = {10, 30, 100, 300, 1000};
enum {
    SIZE_COUNT = sizeof SIZES / sizeof SIZES[0]
};

static int read_once(const char *path)
{
    gmsfs_t *store;
    int r = gmsfs_open(path, &store);

    if (!r)
        r = gmsfs_connect(store, GMSFS_MODE_RO, 30000);
    if (!r)
        r = gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, NULL);
    if (r)
        fprintf(stderr, "bench: reader: %s\n", strerror(-r));
    else
        gmsfs_close(store);
    return r ? 1 : 0;
}

/* One group: microseconds from the start to the last one's end. */
static double run_group(const char *path, int size, int *failures)
{
    double start_us;
    int gate[2], ready[2], status;
    char byte;

    bench_call("pipe", pipe2(gate, O_CLOEXEC));
    bench_call("pipe", pipe2(ready, O_CLOEXEC));
    for (int i = 0; i < size; i++) {
        if (bench_call("fork", fork()) > 0)
            continue;
        close(gate[1]);
        if (write(ready[1], "", 1) != 1 || read(gate[0], &byte, 1) != 0)
            _exit(1);
        _exit(read_once(path));
    }
    for (int i = 0; i < size; i++)
        bench_call("ready", (int)read(ready[0], &byte, 1));
    start_us = bench_now_us();
    close(gate[1]);
    for (int i = 0; i < size; i++) {
        bench_call("wait", (int)wait(&status));
        *failures += status != 0;
    }
    start_us = bench_now_us() - start_us;
    close(gate[0]);
    close(ready[0]);
    close(ready[1]);
    return start_us;
}

int main(int argc, char **argv)
{
    double us[SIZE_COUNT][BENCH_ROUNDS] = {0}, least = 0, most = 0;
    char cheapest[32], dearest[32], value[32], label[128];
    int failures = 0, at = 0;

    if (argc != 2) {
        fputs("usage: readers STORE\n", stderr);
        return 2;
    }
    run_group(argv[1], 100, &failures);
    for (int round = 0; round < BENCH_ROUNDS; round++) {
        for (int i = 0; i < SIZE_COUNT; i++) {
            int groups = (READERS + SIZES[i] - 1) / SIZES[i];
            for (int group = 0; group < groups; group++)
                us[i][round] += run_group(argv[1], SIZES[i], &failures) / (groups * SIZES[i]);
        }
    }
    fputs("bench: readers at a time, cost of one:", stderr);
    for (int i = 0; i < SIZE_COUNT; i++) {
        double median = bench_median(us[i]);
        fprintf(stderr, "  %d: %.0f us", SIZES[i], median);
        if (i == 0 || median < least)
            least = median;
        if (i == 0 || median > most) {
            most = median;
            at = SIZES[i];
        }
    }
    fputs("\n", stderr);
    bench_time_text(cheapest, sizeof cheapest, least);
    bench_time_text(dearest, sizeof dearest, most);
    snprintf(value, sizeof value, "%.2f", most / least);
    snprintf(label, sizeof label, "10-1000 readers, one's cost: dearest (%d) / cheapest", at);
    bench_print(label, dearest, cheapest, value, "<= 1.5", most / least <= 1.5);
    snprintf(value, sizeof value, "%d", failures);
    bench_print("10-1000 readers: failures", value, "-", value, "0", failures == 0);
    return 0;
}
