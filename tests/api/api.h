/* SPDX-License-Identifier: Apache-2.0 */
/*
 * api - shared by the tests of libgmsfs: programs against a live store, run by tests/57-api.bats
 *
 * GMSFS_TEST_STORE names a store that the tests may empty and fill; no other process uses it
 * meanwhile. Every wait has a bound, so that a failing test does not hang the next ones.
 */
#ifndef GMSFS_TESTS_API_H
#define GMSFS_TESTS_API_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gmsfs.h>
#include <gmsfs_region.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tap.h"

#define WAIT_MS 5000

TAP_DROP(gmsfs_close, gmsfs_t *)
#define auto_store __attribute__((unused, cleanup(gmsfs_close_at))) gmsfs_t
TAP_DROP(gmsfs_regions_close, gmsfs_regions_t *)
#define auto_regions __attribute__((unused, cleanup(gmsfs_regions_close_at))) gmsfs_regions_t

__attribute__((unused)) static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

__attribute__((unused)) static const char *store_path(void)
{
    const char *path = getenv("GMSFS_TEST_STORE");

    require(path != NULL);
    return path;
}

__attribute__((unused)) static gmsfs_t *open_store(void)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(store_path(), &store) == 0);
    check_int(gmsfs_set_slab_bytes(store, 0), 0); /* one allocation each, except in test_slabs */
    return store;
}

__attribute__((unused)) static gmsfs_t *open_locked(enum gmsfs_mode mode)
{
    gmsfs_t *store = open_store();

    if (!check_int(gmsfs_connect(store, mode, WAIT_MS), 0)) {
        gmsfs_close(store);
        require(0);
    }
    return store;
}

/* Returns 1 if descriptors of memory are memfds. */
__attribute__((unused)) static int is_host(gmsfs_t *store)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(store, &info), 0);
    return info.memory == GMSFS_MEMORY_HOST;
}

/* Opens a writer on an empty store. */
__attribute__((unused)) static gmsfs_t *open_fresh_writer(void)
{
    gmsfs_t *store = open_locked(GMSFS_MODE_RW);

    check_int(gmsfs_clear_all_handles(store), 0);
    return store;
}

__attribute__((unused)) static uint64_t granularity_of(gmsfs_t *store)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(store, &info), 0);
    return info.granularity_bytes;
}

/* Publishes one allocation of `size_bytes` whose bytes are `fill`, and disconnects. */
__attribute__((unused)) static void publish(uint64_t size_bytes, const char *tag, int fill)
{
    gmsfs_t *writer = open_fresh_writer();
    void *ptr = NULL;

    if (check_int(gmsfs_create_mapping(writer, size_bytes, tag, NULL, &ptr), 0))
        memset(ptr, fill, size_bytes);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

/* Waits for a state of a thread or process, by its `stat` in /proc. */
__attribute__((unused)) static void await_state(const char *stat_path, const char *states)
{
    char state = 0;

    for (int tries = 0; tries < WAIT_MS && !(state && strchr(states, state)); tries++) {
        FILE *file = fopen(stat_path, "re");

        require(file != NULL);
        if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1)
            state = 0;
        fclose(file);
        usleep(1000);
    }
    check(state && strchr(states, state));
}

/* Waits until a thread of this process waits. */
__attribute__((unused)) static void await_blocked(int tid)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    await_state(path, "SD");
}

/* Counts open descriptors of this process. */
__attribute__((unused)) static int count_fds(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -3;

    while (directory && readdir(directory))
        count++;
    if (directory)
        closedir(directory);
    return count;
}

/* Counts mappings and descriptors of memory files of this process. */
__attribute__((unused)) static int count_memory(void)
{
    char line[512], path[64], target[256];
    FILE *maps = fopen("/proc/self/maps", "re");
    int count = 0;

    while (maps && fgets(line, sizeof line, maps))
        count += strstr(line, "/memfd:") != NULL;
    if (maps)
        fclose(maps);
    for (int fd = 3; fd < 4096; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, target, sizeof target - 1);
        if (bytes <= 0)
            continue;
        target[bytes] = 0;
        count += strstr(target, "memfd:") != NULL;
    }
    return count;
}

/* Returns the rights of the mapping at `ptr` as in /proc/self/maps, e.g. "r--s"; "" for none. */
__attribute__((unused)) static const char *rights_at(const void *ptr)
{
    static char rights[8];
    unsigned long start, end;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");

    rights[0] = 0;
    while (maps && fgets(line, sizeof line, maps)) {
        char here[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, here) == 3 && (uintptr_t)ptr >= start &&
            (uintptr_t)ptr < end)
            strcpy(rights, here);
    }
    if (maps)
        fclose(maps);
    return rights;
}

__attribute__((unused)) static void write_control(const char *store, const char *file,
                                                  const char *text)
{
    char path[700];
    int fd;

    snprintf(path, sizeof path, "%s/%s", store, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    check_int(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

/* Revokes a session, as an operator does. */
__attribute__((unused)) static void end_session(const char *store, uint64_t session)
{
    char order[64];

    snprintf(order, sizeof order, "revoke %llu\n", (unsigned long long)session);
    write_control(store, "abort", order);
}

__attribute__((unused)) static void end_session_of(gmsfs_t *store)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(store, &info), 0);
    end_session(store_path(), info.session);
}

#endif
