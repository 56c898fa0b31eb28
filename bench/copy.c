/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy - `gmsfs copy` within host memory, against cp(1) from a tmpfs to a tmpfs
 *
 *   copy GMSFS FROM TO DIR COUNT BYTES
 *
 * FROM is a store, TO a missing one; DIR lies on a tmpfs. COUNT allocations of BYTES, and as many
 * files, are filled once and copied in turns. Each copy goes to new memory, for the old one is
 * given back before. Ours is the time of moving bytes, as the command itself takes it.
 */
#include "command.h"
#include "places.h"

#define LIMIT 0.9

static void fill_file(const char *path, uint64_t bytes)
{
    static char block[1 << 20];
    int fd = bench_call(path, open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));

    memset(block, 7, sizeof block);
    for (uint64_t at = 0; at < bytes; at += sizeof block)
        if (pwrite(fd, block, sizeof block, (off_t)at) != (ssize_t)sizeof block)
            bench_die(path, errno);
    close(fd);
}

/* The memory of allocations that were never written has no pages. */
static void fill_all(const char *from, const char *dir, size_t count, uint64_t bytes)
{
    struct gmsfs_mapping *mappings;
    char path[PLACES_PATH_BYTES];
    gmsfs_t *store;
    size_t got;

    places_fill(from, count, bytes);
    bench_check(from, gmsfs_open(from, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, PLACES_TIMEOUT_MS));
    bench_check("attach", gmsfs_attach_all(store, GMSFS_ACCESS_WRITE, &mappings, &got));
    for (size_t i = 0; i < got; i++)
        memset(mappings[i].ptr, 7, bytes);
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
    free(mappings);
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "%s/from/%zu", dir, i);
        fill_file(path, bytes);
    }
}

static void run_shell(const char *command)
{
    if (system(command) != 0)
        bench_die(command, EIO);
}

static double time_cp(const char *dir)
{
    char command[PLACES_PATH_BYTES];
    double start_us, took_us;

    snprintf(command, sizeof command, "cp '%s'/from/* '%s/to/'", dir, dir);
    start_us = bench_now_us();
    run_shell(command);
    took_us = bench_now_us() - start_us;
    snprintf(command, sizeof command, "rm '%s'/to/*", dir);
    run_shell(command);
    return took_us;
}

int main(int argc, char **argv)
{
    double ours_us[BENCH_ROUNDS], cp_us[BENCH_ROUNDS], bytes;
    char command[PLACES_PATH_BYTES], label[96];

    if (argc != 7) {
        fputs("usage: copy GMSFS FROM TO DIR COUNT BYTES\n", stderr);
        return 2;
    }
    bytes = (double)(bench_number(argv[5]) * bench_number(argv[6]));
    fill_all(argv[2], argv[4], bench_number(argv[5]), bench_number(argv[6]));
    snprintf(command, sizeof command, "'%s' copy '%s' '%s' && rmdir '%s'", argv[1], argv[2],
             argv[3], argv[3]);
    for (int round = -1; round < BENCH_ROUNDS; round++) {
        int to = round < 0 ? 0 : round; /* everything was called once */
        ours_us[to] = command_time_us(command, bytes);
        cp_us[to] = time_cp(argv[4]);
    }
    snprintf(label, sizeof label, "copy %.1f GB from host to host / cp on a tmpfs (speed)",
             bytes / 1e9);
    bench_row(label, bench_median(ours_us), bench_median(cp_us), LIMIT, BENCH_AT_LEAST);
    return 0;
}
