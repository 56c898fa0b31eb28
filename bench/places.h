/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places - stores that go between device and host, as a script moves them: by `residency`
 *
 * For gpu_move.c and gpu_switch.c. Every failure ends the program.
 */
#ifndef GMSFS_BENCH_PLACES_H
#define GMSFS_BENCH_PLACES_H

#include <gmsfs.h>

#include "bench.h"

#define PLACES_PATH_BYTES    4096
#define PLACES_CONTENT_BYTES 4096
#define PLACES_LOOK_US       20
#define PLACES_TIMEOUT_MS    120000

/* With so many allocations; 0: the memory goes back. */
BENCH_UNUSED static void places_fill(const char *path, size_t count, uint64_t bytes)
{
    uint64_t first;
    gmsfs_t *store;

    bench_check(path, gmsfs_open(path, &store));
    bench_check("connect", gmsfs_connect(store, GMSFS_MODE_RW, PLACES_TIMEOUT_MS));
    bench_check("clear", gmsfs_clear_all_handles(store));
    if (count)
        bench_check("allocate", gmsfs_allocate_handles(store, (uint32_t)count, bytes, "weights",
                                                       NULL, 0, &first));
    bench_check("commit", gmsfs_commit(store, 0, NULL));
    gmsfs_close(store);
}

BENCH_UNUSED static void places_get_content(const char *directory, const char *name,
                                            char text[PLACES_CONTENT_BYTES])
{
    char path[PLACES_PATH_BYTES + 64];
    ssize_t got;
    int fd;

    snprintf(path, sizeof path, "%s/%s", directory, name);
    fd = bench_call(path, open(path, O_RDONLY | O_CLOEXEC));
    got = read(fd, text, PLACES_CONTENT_BYTES - 1);
    text[bench_call(path, (int)got)] = '\0';
    close(fd);
}

BENCH_UNUSED static void places_order(const char *store, const char *word)
{
    char path[PLACES_PATH_BYTES + 64];
    int fd;

    snprintf(path, sizeof path, "%s/residency", store);
    fd = bench_call(path, open(path, O_WRONLY | O_CLOEXEC));
    bench_call(word, (int)write(fd, word, strlen(word)));
    close(fd);
}

/* As `residency` says it when nothing is under way. */
BENCH_UNUSED static void places_wait_at(const char *store, const char *tiers)
{
    double start_us = bench_now_us();
    char text[PLACES_CONTENT_BYTES];

    for (;;) {
        places_get_content(store, "residency", text);
        if (strncmp(text, tiers, strlen(tiers)) == 0 && strcmp(text + strlen(tiers), "\n") == 0)
            return;
        if (bench_now_us() - start_us > PLACES_TIMEOUT_MS * 1e3) {
            fprintf(stderr, "bench: %s is not at '%s' but at: %s\n", store, tiers, text);
            exit(2);
        }
        usleep(PLACES_LOOK_US);
    }
}

BENCH_UNUSED static void places_move(const char *store, const char *word, const char *tiers)
{
    places_order(store, word);
    places_wait_at(store, tiers);
}

/* Waits for a number in `device`: freed memory is counted a moment later. */
BENCH_UNUSED static void places_wait_number(const char *mount, const char *name, uint64_t value)
{
    double start_us = bench_now_us();
    char text[PLACES_CONTENT_BYTES], wanted[64];

    snprintf(wanted, sizeof wanted, "\"%s\": %llu,", name, (unsigned long long)value);
    for (;;) {
        places_get_content(mount, "device", text);
        if (strstr(text, wanted))
            return;
        if (bench_now_us() - start_us > PLACES_TIMEOUT_MS * 1e3) {
            fprintf(stderr, "bench: not %s in: %s\n", wanted, text);
            exit(2);
        }
        usleep(PLACES_LOOK_US);
    }
}

#endif
