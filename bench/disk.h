/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk - a directory's speed by bare parallel calls: the floor of saving and loading
 *
 * One file of so many bytes, all of it written and on the disk, or all of it read, by some threads
 * that take the next block each. Every failure ends the program, but for a way that the file
 * system does not have.
 */
#ifndef GMSFS_BENCH_DISK_H
#define GMSFS_BENCH_DISK_H

#include "bench.h"

#include <linux/magic.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/vfs.h>

#define DISK_THREADS_MAX  16
#define DISK_BLOCK_BYTES  ((size_t)4 << 20)
#define DISK_CHOICE_BYTES ((size_t)1 << 30)
#define DISK_POPULATE     23 /* MADV_POPULATE_WRITE, Linux 5.14 */
#define DISK_POPULATE_MAX ((size_t)256 << 10)

enum disk_way {
    DISK_DIRECT, /* O_DIRECT */
    DISK_CACHED, /* read(2) and write(2) */
    DISK_MAPPED, /* a mapping, its pages made before they are touched */
    DISK_WAYS
};

struct disk_run {
    const char *path;
    size_t bytes; /* whole blocks */
    size_t block_bytes;
    int is_write;
    enum disk_way way;
    int threads;

    int fd;
    char *map;
    atomic_size_t next;
};

BENCH_UNUSED static const char *disk_way_name(enum disk_way way)
{
    static const char *const names[] = {"O_DIRECT", "the page cache", "a mapping"};

    return names[way];
}

/* A tmpfs takes the flag and means nothing by it. */
BENCH_UNUSED static int disk_is_tmpfs(const char *path)
{
    struct statfs system;

    bench_call(path, statfs(path, &system));
    return system.f_type == TMPFS_MAGIC;
}

BENCH_UNUSED static void disk_copy_to_map(const struct disk_run *run, size_t at, const char *block)
{
    for (size_t done = 0; done < run->block_bytes; done += DISK_POPULATE_MAX) {
        bench_call("madvise", madvise(run->map + at + done, DISK_POPULATE_MAX, DISK_POPULATE));
        memcpy(run->map + at + done, block + done, DISK_POPULATE_MAX);
    }
}

BENCH_UNUSED static void *disk_thread(void *context)
{
    struct disk_run *run = context;
    char *block = aligned_alloc(4096, run->block_bytes);
    size_t at;

    if (!block)
        bench_die("block", ENOMEM);
    memset(block, 7, run->block_bytes);
    while ((at = atomic_fetch_add(&run->next, 1) * run->block_bytes) < run->bytes) {
        ssize_t done = (ssize_t)run->block_bytes;
        if (run->map)
            disk_copy_to_map(run, at, block);
        else if (run->is_write)
            done = pwrite(run->fd, block, run->block_bytes, (off_t)at);
        else
            done = pread(run->fd, block, run->block_bytes, (off_t)at);
        if (done != (ssize_t)run->block_bytes)
            bench_die(run->path, done < 0 ? errno : ENODATA);
    }
    free(block);
    return NULL;
}

BENCH_UNUSED static void disk_map(struct disk_run *run)
{
    run->map = mmap(NULL, run->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, run->fd, 0);
    if (run->map == MAP_FAILED)
        bench_die("mmap", errno);
}

/* 0: the file system cannot. A file that is written is new and stays. */
BENCH_UNUSED static double disk_time(struct disk_run *run)
{
    int flags = (run->is_write ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY) | O_CLOEXEC;
    pthread_t threads[DISK_THREADS_MAX];
    double start_us, took_us;

    if (run->is_write)
        unlink(run->path);
    start_us = bench_now_us();
    run->fd = open(run->path, flags | (run->way == DISK_DIRECT ? O_DIRECT : 0), 0600);
    if (run->fd < 0 && errno == EINVAL)
        return 0;
    bench_call(run->path, run->fd);
    if (run->is_write &&
        (run->way == DISK_MAPPED || fallocate(run->fd, 0, 0, (off_t)run->bytes) < 0))
        bench_call("ftruncate", ftruncate(run->fd, (off_t)run->bytes));
    if (run->way == DISK_MAPPED)
        disk_map(run);
    atomic_store(&run->next, 0);
    for (int i = 0; i < run->threads; i++) {
        int error = pthread_create(&threads[i], NULL, disk_thread, run);
        if (error)
            bench_die("thread", error);
    }
    for (int i = 0; i < run->threads; i++)
        pthread_join(threads[i], NULL);
    if (run->is_write)
        bench_call("fsync", fsync(run->fd));
    took_us = bench_now_us() - start_us;
    if (run->map)
        munmap(run->map, run->bytes);
    run->map = NULL;
    close(run->fd);
    return took_us;
}

/* The best way and number of threads, by one round of each, of a part of the bytes where they are
 * many; `run` has the rest and becomes it. */
BENCH_UNUSED static void disk_choose(struct disk_run *run, unsigned ways)
{
    struct disk_run best = *run;
    size_t all_bytes = run->bytes;
    double best_us = 0;

    if (run->bytes > DISK_CHOICE_BYTES)
        run->bytes = DISK_CHOICE_BYTES;
    for (int way = 0; way < DISK_WAYS; way++) {
        for (int threads = 1; ways >> way & 1 && threads <= DISK_THREADS_MAX; threads *= 2) {
            double took_us;
            run->way = (enum disk_way)way;
            run->threads = threads;
            took_us = disk_time(run);
            if (took_us == 0)
                break;
            fprintf(stderr, "bench: %s %zu MiB, %d threads, by %s: %.2f GB/s\n",
                    run->is_write ? "write" : "read", run->bytes >> 20, threads,
                    disk_way_name(run->way), (double)run->bytes / took_us / 1e3);
            if (best_us == 0 || took_us < best_us) {
                best_us = took_us;
                best = *run;
            }
        }
    }
    run->bytes = all_bytes;
    run->way = best.way;
    run->threads = best.threads;
}

#endif
