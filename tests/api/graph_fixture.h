/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_fixture - graph pools over a store beside GMSFS_TEST_STORE, for their tests
 *
 * A test begins with fresh_pool, which makes the store again, and ends its pools itself.
 */
#ifndef GMSFS_TESTS_API_GRAPH_FIXTURE_H
#define GMSFS_TESTS_API_GRAPH_FIXTURE_H

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <gmsfs_graph.h>

#include "api.h"

#define MIB   (UINT64_C(1) << 20)
#define CHUNK (4 * MIB)
#define ROOM  (256 * MIB) /* addresses of a space */

__attribute__((unused)) static const char *graph_path(void)
{
    static char path[600];
    char *slash;

    snprintf(path, sizeof path, "%s", store_path());
    slash = strrchr(path, '/');
    require(slash != NULL);
    strcpy(slash, "/graph");
    return path;
}

/* Reads the first line of a file of the store. */
__attribute__((unused)) static const char *read_line(const char *name)
{
    static char line[4096];
    char path[700];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", graph_path(), name);
    line[0] = 0;
    file = fopen(path, "re");
    if (file) {
        if (!fgets(line, sizeof line, file))
            line[0] = 0;
        fclose(file);
    }
    line[strcspn(line, "\n")] = 0;
    return line;
}

__attribute__((unused)) static uint64_t device_free_bytes(void)
{
    struct statvfs device;

    require(statvfs(store_path(), &device) == 0);
    return device.f_bavail * device.f_frsize;
}

/* The daemon frees memory some time after it has answered the client. */
__attribute__((unused)) static int wait_for_free(uint64_t bytes)
{
    for (int i = 0; i < WAIT_MS && device_free_bytes() != bytes; i++)
        usleep(1000);
    return check_int(device_free_bytes(), bytes);
}

__attribute__((unused)) static gmsfs_graph_pool_t *open_pool(uint64_t chunk_bytes)
{
    gmsfs_graph_pool_t *pool = NULL;

    require(gmsfs_graph_open(graph_path(), chunk_bytes, &pool) == 0);
    return pool;
}

__attribute__((unused)) static void remove_store(void)
{
    for (int i = 0; i < WAIT_MS && rmdir(graph_path()) < 0 && errno == EBUSY; i++)
        usleep(1000);
    check(access(graph_path(), F_OK) < 0);
}

/* Makes a sleeping pool over an EMPTY store on an empty device. */
__attribute__((unused)) static gmsfs_graph_pool_t *fresh_pool(void)
{
    struct statvfs device;

    if (access(graph_path(), F_OK) == 0)
        remove_store();
    require(statvfs(store_path(), &device) == 0);
    wait_for_free(device.f_blocks * device.f_frsize);
    return open_pool(CHUNK);
}

__attribute__((unused)) static gmsfs_graph_pool_t *fresh_awake_pool(void)
{
    gmsfs_graph_pool_t *pool = fresh_pool();

    require(gmsfs_graph_wake(pool, WAIT_MS) == 0);
    return pool;
}

__attribute__((unused)) static gmsfs_graph_space_t *new_space(gmsfs_graph_pool_t *pool,
                                                              unsigned flags)
{
    gmsfs_graph_space_t *space = NULL;

    require(gmsfs_graph_space_new(pool, ROOM, flags, &space) == 0);
    return space;
}

__attribute__((unused)) static unsigned char *take(gmsfs_graph_space_t *space, uint64_t size_bytes)
{
    void *ptr = NULL;

    require(gmsfs_graph_space_alloc(space, size_bytes, &ptr) == 0);
    return ptr;
}

__attribute__((unused)) static struct gmsfs_graph_stats stats_of(gmsfs_graph_pool_t *pool)
{
    struct gmsfs_graph_stats stats = {0};

    require(gmsfs_graph_get_stats(pool, &stats) == 0);
    return stats;
}

__attribute__((unused)) static struct gmsfs_graph_space_stats
space_stats_of(gmsfs_graph_space_t *space)
{
    struct gmsfs_graph_space_stats stats = {0};

    require(gmsfs_graph_space_get_stats(space, &stats) == 0);
    return stats;
}

/* Ends a test: nothing is left of the pool, on the device or in this process. */
__attribute__((unused)) static void end_pool(gmsfs_graph_pool_t *pool)
{
    gmsfs_graph_close(pool);
    remove_store();
}

TAP_DROP(end_pool, gmsfs_graph_pool_t *)
#define auto_pool __attribute__((unused, cleanup(end_pool_at))) gmsfs_graph_pool_t

#define ANSWER_FD 9 /* in the process of start_self */

/* Starts this program again, because handles do not survive fork(), for its test
 * deed_of_another_process alone. `deed` names the act; `answers` reads everything that it writes to
 * ANSWER_FD. */
__attribute__((unused)) static pid_t start_self(const char *deed, int *answers)
{
    int ends[2];
    pid_t pid;

    require(pipe2(ends, O_CLOEXEC) == 0);
    pid = fork();
    if (pid == 0) {
        dup2(ends[1], ANSWER_FD);
        fcntl(ANSWER_FD, F_SETFD, 0); /* in case that it already had this number */
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        setenv("GMSFS_GRAPH_DEED", deed, 1);
        execl("/proc/self/exe", "graph", "deed_of_another_process", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *answers = ends[0];
    return pid;
}

#endif
