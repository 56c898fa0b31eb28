/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped - a file of an immutable layout, against the same file in a tmpfs; and opening it, against
 * an allocation that is not mapped
 *
 *   mapped FILE TMPFS_FILE ALLOCATION
 */
#include <sys/mman.h>
#include <sys/stat.h>

#include "bench.h"

#define PIECE_BYTES (1u << 20)
#define OPENS       2000
#define PAGE_BYTES  4096u

static volatile uint64_t sink;

static size_t get_size(const char *path)
{
    struct stat info;

    bench_call(path, stat(path, &info));
    return (size_t)info.st_size;
}

/* Reads as cp(1) does. */
static double time_read(const char *path)
{
    static char piece[PIECE_BYTES];
    double start_us = bench_now_us();
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));

    while (bench_call(path, (int)read(fd, piece, sizeof piece)) > 0)
        ;
    close(fd);
    return bench_now_us() - start_us;
}

/* Maps the file; `step`: the distance of the bytes that are looked at. */
static double time_map(const char *path, size_t step)
{
    size_t bytes = get_size(path);
    double start_us = bench_now_us();
    int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    const uint8_t *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    uint64_t sum = 0;

    if (at == MAP_FAILED)
        bench_die(path, errno);
    close(fd);
    for (size_t i = 0; i + sizeof sum <= bytes; i += step) {
        uint64_t word;
        memcpy(&word, at + i, sizeof word);
        sum += word;
    }
    sink += sum;
    munmap((void *)(uintptr_t)at, bytes);
    return bench_now_us() - start_us;
}

static double time_sum(const char *path)
{
    return time_map(path, sizeof(uint64_t));
}

static double time_touch(const char *path)
{
    return time_map(path, PAGE_BYTES);
}

static double time_open(const char *path)
{
    double start_us = bench_now_us();

    for (int i = 0; i < OPENS; i++)
        close(bench_call(path, open(path, O_RDONLY | O_CLOEXEC)));
    return (bench_now_us() - start_us) / OPENS;
}

static double time_open_and_map(const char *path)
{
    double start_us = bench_now_us();

    for (int i = 0; i < OPENS; i++) {
        int fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
        void *at = mmap(NULL, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
        if (at == MAP_FAILED)
            bench_die(path, errno);
        munmap(at, PAGE_BYTES);
        close(fd);
    }
    return (bench_now_us() - start_us) / OPENS;
}

static void compare(const char *label, double (*time)(const char *path), const char *ours,
                    double (*time_floor)(const char *path), const char *floor, double limit,
                    enum bench_sense sense)
{
    double ours_us[BENCH_ROUNDS], floor_us[BENCH_ROUNDS];

    for (int round = 0; round < BENCH_ROUNDS; round++) {
        floor_us[round] = time_floor(floor);
        ours_us[round] = time(ours);
    }
    bench_row(label, bench_median(ours_us), bench_median(floor_us), limit, sense);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fputs("usage: mapped FILE TMPFS_FILE ALLOCATION\n", stderr);
        return 2;
    }
    compare("read of an immutable file / of a tmpfs file", time_read, argv[1], time_read, argv[2],
            0.95, BENCH_AT_LEAST);
    compare("sum of a mapped file / of a mapped tmpfs file", time_sum, argv[1], time_sum, argv[2],
            0.95, BENCH_AT_LEAST);
    compare("first touch of each page / in a tmpfs file", time_touch, argv[1], time_touch, argv[2],
            1.1, BENCH_AT_MOST);
    compare("open+mmap+munmap+close / allocation's open+close", time_open_and_map, argv[1],
            time_open, argv[3], 1.3, BENCH_AT_MOST);
    return 0;
}
