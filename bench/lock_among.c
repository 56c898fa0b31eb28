/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock_among - lock and unlock a store that is alone on its mount, against the same store among as
 * many as there may be
 *
 *   lock_among MOUNT FLOOR_FILE STORES POOLS
 *
 * Stores are in pools, and every other one has bytes, and a copy on the host: these are open files
 * of a daemon, which may not have as many as those of all would be. Of the same daemon, before and
 * after, for two processes of one program differ by more than the limit allows. Both times it takes
 * short turns with open+close of FLOOR_FILE, by which the machine's own change is taken out; and of
 * each the turn counts than which a tenth were quicker, so that others on the machine do not.
 */
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "places.h"

#define GRAIN       4096
#define TURNS       1000
#define TURN_CYCLES 20

/* ---- a mount with many ----------------------------------------------------------------------- */

static void write_line(const char *path, const char *line)
{
    int fd = bench_call(path, open(path, O_WRONLY | O_CLOEXEC));

    bench_call(line, (int)write(fd, line, strlen(line)));
    close(fd);
}

static void make_pools(const char *mount, uint64_t count)
{
    char path[PLACES_PATH_BYTES], line[64];

    snprintf(path, sizeof path, "%s/pools", mount);
    for (uint64_t i = 0; i < count; i++) {
        snprintf(line, sizeof line, "p%llu max=1G", (unsigned long long)i);
        write_line(path, line);
    }
}

/* The first is `weights`, which every mount has. */
static void get_store(char path[PLACES_PATH_BYTES], const char *mount, uint64_t number)
{
    if (number == 0)
        snprintf(path, PLACES_PATH_BYTES, "%s/weights", mount);
    else
        snprintf(path, PLACES_PATH_BYTES, "%s/s%llu", mount, (unsigned long long)number);
}

static bool has_bytes(uint64_t number)
{
    return number % 2 == 0;
}

static void make_store(const char *path, uint64_t pool)
{
    char name[32];

    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        bench_die(path, errno);
    snprintf(name, sizeof name, "p%llu", (unsigned long long)pool);
    bench_call("setxattr", setxattr(path, "user.gmsfs.pool", name, strlen(name), 0));
}

static void make_stores(const char *mount, uint64_t from, uint64_t to, uint64_t pools)
{
    char path[PLACES_PATH_BYTES];

    for (uint64_t i = from; i < to; i++) {
        get_store(path, mount, i);
        make_store(path, i % pools);
        if (!has_bytes(i))
            continue;
        places_fill(path, 1, GRAIN);
        places_move(path, "+host", "device host");
    }
}

/* ---- the rows -------------------------------------------------------------------------------- */

static double time_turn(const char *path, int flags)
{
    double start_us = bench_now_us();

    for (int i = 0; i < TURN_CYCLES; i++)
        close(bench_call(path, open(path, flags | O_CLOEXEC)));
    return (bench_now_us() - start_us) / TURN_CYCLES;
}

static double get_undisturbed(double turns_us[TURNS])
{
    qsort(turns_us, TURNS, sizeof *turns_us, bench_compare);
    return turns_us[TURNS / 10];
}

struct cycle {
    double lock_us, floor_us;
};

static struct cycle time_cycle(const char *lock, const char *floor, int flags)
{
    static double lock_us[TURNS], floor_us[TURNS];

    for (int turn = 0; turn < TURNS; turn++) {
        lock_us[turn] = time_turn(lock, flags);
        floor_us[turn] = time_turn(floor, flags);
    }
    return (struct cycle){get_undisturbed(lock_us), get_undisturbed(floor_us)};
}

static void print_row(const char *label, struct cycle alone, struct cycle among)
{
    bench_row(label, among.lock_us, alone.lock_us * (among.floor_us / alone.floor_us), 1.02,
              BENCH_AT_MOST);
}

int main(int argc, char **argv)
{
    struct cycle writer, reader;
    char path[PLACES_PATH_BYTES];

    if (argc != 5) {
        fputs("usage: lock_among MOUNT FLOOR_FILE STORES POOLS\n", stderr);
        return 2;
    }
    bench_share_cpu();
    make_pools(argv[1], bench_number(argv[4]));
    make_stores(argv[1], 0, 1, bench_number(argv[4]));
    snprintf(path, sizeof path, "%s/weights/lock", argv[1]);
    writer = time_cycle(path, argv[2], O_RDWR);
    reader = time_cycle(path, argv[2], O_RDONLY);
    make_stores(argv[1], 1, bench_number(argv[3]), bench_number(argv[4]));
    print_row("lock+unlock, writer: among 4,096 stores / alone", writer,
              time_cycle(path, argv[2], O_RDWR));
    print_row("lock+unlock, reader: among 4,096 stores / alone", reader,
              time_cycle(path, argv[2], O_RDONLY));
    return 0;
}
