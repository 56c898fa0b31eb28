/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gpu_allocate - COUNT allocations of BYTES in one ALLOC, exported and with the keeper, against the
 * bare create and export calls
 *
 *   gpu_allocate STORE COUNT BYTES
 *
 * The floor is the best of 1, 2, 4, 8 and 16 threads. Memory is given back outside of the time.
 */
#include <gmsfs.h>
#include <pthread.h>

#include "gpu.h"

#define THREADS_MAX 16

struct part {
    const struct gpu *gpu;
    pthread_t thread;
    int *fds;
    size_t count;
    uint64_t bytes;
};

static void *create_part(void *argument)
{
    struct part *part = argument;

    for (size_t i = 0; i < part->count; i++)
        part->fds[i] = gpu_create(part->gpu, part->bytes);
    return NULL;
}

static double floor_round(const struct gpu *gpu, size_t threads, int *fds, size_t count,
                          uint64_t bytes)
{
    struct part parts[THREADS_MAX];
    double start_us = bench_now_us(), took_us;

    for (size_t i = 0, from = 0; i < threads; i++) {
        size_t to = count * (i + 1) / threads;
        parts[i] = (struct part){gpu, 0, fds + from, to - from, bytes};
        if (pthread_create(&parts[i].thread, NULL, create_part, &parts[i]))
            bench_die("thread", EAGAIN);
        from = to;
    }
    for (size_t i = 0; i < threads; i++)
        pthread_join(parts[i].thread, NULL);
    took_us = bench_now_us() - start_us;
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return took_us;
}

/* The median of each number of threads; the best of them, and which it was. */
static double floor_best(const struct gpu *gpu, int *fds, size_t count, uint64_t bytes,
                         size_t *best)
{
    double rounds_us[BENCH_ROUNDS], best_us = 0;

    for (size_t threads = 1; threads <= THREADS_MAX; threads *= 2) {
        double median_us;
        for (int round = 0; round < BENCH_ROUNDS; round++)
            rounds_us[round] = floor_round(gpu, threads, fds, count, bytes);
        median_us = bench_median(rounds_us);
        if (threads > 1 && median_us >= best_us)
            continue;
        best_us = median_us;
        *best = threads;
    }
    return best_us;
}

/* Freeing goes on after abort has been answered, and the driver does one thing at a time. */
static void wait_until_free(const char *path)
{
    char name[4096], text[65536];
    ssize_t got;
    int fd;

    snprintf(name, sizeof name, "%s/../metrics", path);
    fd = bench_call(name, open(name, O_RDONLY | O_CLOEXEC));
    do {
        usleep(1000);
        got = pread(fd, text, sizeof text - 1, 0);
        text[bench_call(name, (int)got)] = '\0';
    } while (!strstr(text, "\ngmsfs_jobs_in_flight 0\n"));
    close(fd);
}

static double our_round(const char *path, size_t count, uint64_t bytes)
{
    double start_us, took_us;
    uint64_t first;
    gmsfs_t *store;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, 60000));
    start_us = bench_now_us();
    bench_check("allocate",
                gmsfs_allocate_handles(store, (uint32_t)count, bytes, "weights", NULL, 0, &first));
    took_us = bench_now_us() - start_us;
    bench_check("abort", gmsfs_abort(store, NULL));
    gmsfs_close(store);
    wait_until_free(path);
    return took_us;
}

int main(int argc, char **argv)
{
    double ours_us[BENCH_ROUNDS], floor_us;
    struct gpu gpu;
    uint64_t bytes;
    size_t count, threads;
    char label[96];
    int *fds;

    if (argc != 4) {
        fputs("usage: gpu_allocate STORE COUNT BYTES\n", stderr);
        return 2;
    }
    count = bench_number(argv[2]);
    bytes = bench_number(argv[3]);
    fds = calloc(count, sizeof *fds);
    if (!fds)
        bench_die("allocate", ENOMEM);
    bench_raise_descriptors();
    gpu_open(&gpu);
    floor_round(&gpu, 1, fds, count, bytes); /* the first exports of a process are slow */
    our_round(argv[1], count, bytes);
    floor_us = floor_best(&gpu, fds, count, bytes, &threads);
    for (int round = 0; round < BENCH_ROUNDS; round++)
        ours_us[round] = our_round(argv[1], count, bytes);
    snprintf(label, sizeof label, "allocate %zu x %llu MiB / create+export, %zu threads", count,
             (unsigned long long)bytes >> 20, threads);
    bench_row(label, bench_median(ours_us), floor_us, 1.2, BENCH_AT_MOST);
    free(fds);
    return 0;
}
