/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contents - the id of a store's contents, against XXH3 over the same bytes
 *
 *   contents STORE COUNT BYTES
 *
 * STORE has COUNT allocations of BYTES. Ours: a commit of the same layout, which takes the id away,
 * and then the time in which a program reads `pieces`. The floor: threads, as many as the daemon
 * uses, that map a file of the same bytes in memory, sum 16 MiB at a time, and unmap it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "base/xxh3.h"

#include "bench.h"

#define PIECE_BYTES  (16u << 20)
#define MOST_THREADS 8 /* as of src/service/contents.c */

static struct {
    int fd;
    size_t count;
    atomic_size_t next;
    atomic_ullong sum; /* so that no sum can be left out */
} floor_of;

static void *sum_pieces(void *unused)
{
    size_t index;

    (void)unused;
    while ((index = atomic_fetch_add(&floor_of.next, 1)) < floor_of.count) {
        void *at = mmap(NULL, PIECE_BYTES, PROT_READ, MAP_SHARED, floor_of.fd,
                        (off_t)(index * PIECE_BYTES));
        if (at == MAP_FAILED)
            bench_die("mmap", errno);
        atomic_fetch_xor(&floor_of.sum, XXH3_128bits(at, PIECE_BYTES).low64);
        munmap(at, PIECE_BYTES);
    }
    return NULL;
}

static double run_floor(int threads)
{
    pthread_t running[MOST_THREADS];
    double start_us = bench_now_us();

    atomic_store(&floor_of.next, 0);
    for (int i = 0; i < threads; i++)
        bench_check("thread", -pthread_create(&running[i], NULL, sum_pieces, NULL));
    for (int i = 0; i < threads; i++)
        pthread_join(running[i], NULL);
    return bench_now_us() - start_us;
}

/* Makes the floor's file of the bytes of all allocations. */
static void make_floor(const char *store, int count, size_t bytes)
{
    char path[4096];

    floor_of.fd = bench_call("memfd_create", memfd_create("floor", MFD_CLOEXEC));
    floor_of.count = (size_t)count * bytes / PIECE_BYTES;
    for (int i = 0; i < count; i++) {
        char *buffer = malloc(1 << 20);
        int fd;
        snprintf(path, sizeof path, "%s/allocations/a%06d", store, i);
        fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
        for (ssize_t got; buffer && (got = read(fd, buffer, 1 << 20)) > 0;)
            if (write(floor_of.fd, buffer, (size_t)got) != got)
                bench_die("floor", errno);
        free(buffer);
        close(fd);
    }
}

static void write_file(const char *store, const char *file)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof path, "%s/%s", store, file);
    fd = bench_call(path, open(path, O_WRONLY | O_CLOEXEC));
    if (write(fd, "1\n", 2) != 2)
        bench_die(path, errno);
    close(fd);
}

/* Commits the same layout again: its id is not known any more. */
static void forget(const char *store)
{
    char path[4096];
    int fd;

    snprintf(path, sizeof path, "%s/lock", store);
    fd = bench_call(path, open(path, O_RDWR | O_CLOEXEC));
    write_file(store, "commit");
    close(fd);
}

static double run_ours(const char *store)
{
    char path[4096], text[65536];
    double start_us;
    ssize_t got, all = 0;
    int fd;

    forget(store);
    snprintf(path, sizeof path, "%s/pieces", store);
    start_us = bench_now_us();
    fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    while ((got = bench_call(path, (int)read(fd, text, sizeof text))) > 0)
        all += got;
    close(fd);
    if (all == 0)
        bench_die(path, ENODATA);
    return bench_now_us() - start_us;
}

int main(int argc, char **argv)
{
    double ours[BENCH_ROUNDS], floors[BENCH_ROUNDS];
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = processors > MOST_THREADS ? MOST_THREADS : (int)processors;

    if (argc != 4) {
        fputs("usage: contents STORE COUNT BYTES\n", stderr);
        return 2;
    }
    make_floor(argv[1], (int)bench_number(argv[2]), bench_number(argv[3]));
    run_floor(threads);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        floors[i] = run_floor(threads);
        ours[i] = run_ours(argv[1]);
    }
    bench_row("contents id of a host store / XXH3 of as many threads", bench_median(ours),
              bench_median(floors), 0.9, BENCH_AT_LEAST);
    return 0;
}
