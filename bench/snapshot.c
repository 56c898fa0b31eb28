/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot - reading `state` while a snapshot is written, against reading it while none is
 *
 *   snapshot KEEPER STORE LABEL
 *
 * Bytes gathered in `ctl` are noted in the journal, and many bytes in the journal begin a
 * snapshot, which a child of the worker writes: as long as that is there, reads count as during
 * one.
 */
#include <gmsfs.h>
#include <gmsfs_abi.h>
#include <sys/ioctl.h>

#include "bench.h"
#include "worker.h"

#define SAMPLES     20000
#define SNAPSHOTS   10 /* at least */
#define BLOCK_BYTES (1u << 20)
#define MAX_BLOCKS  400 /* more than one snapshot takes */
#define WAIT_MS     5000u
#define LOOK_EVERY  4 /* reads between two looks for the child */

struct times {
    double us[SAMPLES];
    size_t count;
};

static void time_read(int fd, struct times *times)
{
    char text[64];
    double start_us = bench_now_us();

    bench_call("read", (int)pread(fd, text, sizeof text, 0));
    if (times->count < SAMPLES)
        times->us[times->count++] = bench_now_us() - start_us;
}

static double find_p99(struct times *times)
{
    qsort(times->us, times->count, sizeof *times->us, bench_compare);
    return times->us[times->count * 99 / 100];
}

/* Notes so many bytes in the journal, for a document that is never applied. */
static void note_block(const char *path)
{
    static char block[BLOCK_BYTES];
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RW, .timeout_ms = WAIT_MS};
    int ctl = bench_call(path, open(path, O_RDWR | O_CLOEXEC));

    bench_call("ACQUIRE", ioctl(ctl, GMSFS_IOC_ACQUIRE, &acquire));
    bench_call("write", (int)pwrite(ctl, block, sizeof block, 0));
    close(ctl);
}

/* Until a snapshot begins; the read that comes with its beginning is during it. */
static void begin_snapshot(const char *store, int fd, pid_t worker, struct times *during)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/ctl", store);
    for (int i = 0; i < MAX_BLOCKS; i++) {
        size_t count = during->count;
        note_block(path);
        time_read(fd, during);
        if (worker_find_child(worker, NULL))
            return;
        during->count = count;
    }
    bench_die("no snapshot begins", ETIMEDOUT);
}

int main(int argc, char **argv)
{
    static struct times quiet, during;
    char path[4096], label[128];
    unsigned snapshots = 0;

    if (argc != 4) {
        fputs("usage: snapshot KEEPER STORE LABEL\n", stderr);
        return 2;
    }
    pid_t worker = worker_of((pid_t)bench_number(argv[1]));
    snprintf(path, sizeof path, "%s/state", argv[2]);
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    while (during.count < SAMPLES) {
        begin_snapshot(argv[2], fd, worker, &during);
        snapshots++;
        for (size_t until = during.count + SAMPLES / SNAPSHOTS;
             during.count < until && worker_find_child(worker, NULL);)
            for (int i = 0; i < LOOK_EVERY; i++)
                time_read(fd, &during);
        while (worker_find_child(worker, NULL))
            usleep(1000);
        for (size_t until = quiet.count + SAMPLES / SNAPSHOTS;
             quiet.count < until && until <= SAMPLES;)
            time_read(fd, &quiet);
    }
    while (quiet.count < SAMPLES)
        time_read(fd, &quiet);
    fprintf(stderr, "bench: %u snapshots, %zu reads during them\n", snapshots, during.count);
    snprintf(label, sizeof label, "read of `state`, %s, snapshot / none: p99", argv[3]);
    bench_row(label, find_p99(&during), find_p99(&quiet), 2, BENCH_AT_MOST);
    return 0;
}
