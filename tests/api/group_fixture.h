/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group_fixture - the stores of a group, engines that lock them all, and threads that wait
 *
 * GMSFS_TEST_GROUP names three or more stores, on several mounts, separated by colons; no other
 * process uses them meanwhile. Two of the mounts have two of them, and 64 MiB each.
 */
#ifndef GMSFS_TESTS_API_GROUP_FIXTURE_H
#define GMSFS_TESTS_API_GROUP_FIXTURE_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "api.h"

#define MAX_STORES 16
#define BYTES      4096

static struct {
    char path[512];
    uint8_t id[16];
} stores[MAX_STORES]; /* by id, the order of groups */
static size_t store_count;

__attribute__((unused)) static int compare_ids(const void *left, const void *right)
{
    return memcmp((const char *)left + sizeof stores[0].path,
                  (const char *)right + sizeof stores[0].path, sizeof stores[0].id);
}

__attribute__((unused)) static void find_stores(void)
{
    const char *text = getenv("GMSFS_TEST_GROUP");
    struct gmsfs_info info;
    gmsfs_t *store;

    require(text != NULL);
    for (store_count = 0; *text && store_count < MAX_STORES; store_count++) {
        size_t bytes = strcspn(text, ":");
        require(bytes < sizeof stores[0].path);
        memcpy(stores[store_count].path, text, bytes);
        stores[store_count].path[bytes] = 0;
        text += bytes + (text[bytes] == ':');
        require(gmsfs_open(stores[store_count].path, &store) == 0);
        require(gmsfs_get_info(store, &info) == 0);
        memcpy(stores[store_count].id, info.store_id, 16);
        gmsfs_close(store);
    }
    require(store_count >= 3);
    qsort(stores, store_count, sizeof stores[0], compare_ids);
}

struct engine {
    gmsfs_t *handles[MAX_STORES]; /* by store id */
};

__attribute__((unused)) static struct engine engine_open(void)
{
    struct engine engine = {0};

    if (!store_count)
        find_stores();
    for (size_t i = 0; i < store_count; i++)
        require(gmsfs_open(stores[i].path, &engine.handles[i]) == 0);
    return engine;
}

__attribute__((unused)) static void engine_close(struct engine *engine)
{
    for (size_t i = 0; i < store_count; i++)
        gmsfs_close(engine->handles[i]);
}

#define auto_engine __attribute__((unused, cleanup(engine_close))) struct engine

__attribute__((unused)) static int engine_connect(struct engine *engine, enum gmsfs_mode mode,
                                                  uint64_t timeout_ms)
{
    return gmsfs_connect_group(engine->handles, store_count, mode, timeout_ms);
}

__attribute__((unused)) static void engine_disconnect(struct engine *engine)
{
    for (size_t i = 0; i < store_count; i++)
        check_int(gmsfs_disconnect(engine->handles[i]), 0);
}

/* Returns true if all handles have this lock. */
__attribute__((unused)) static bool engine_has(struct engine *engine, enum gmsfs_mode mode)
{
    for (size_t i = 0; i < store_count; i++)
        if (!check_int(gmsfs_granted_lock(engine->handles[i]), mode))
            return false;
    return true;
}

__attribute__((unused)) static void fill_store(gmsfs_t *writer, int fill)
{
    uint64_t slot = 0;
    void *ptr = NULL;

    check_int(gmsfs_clear_all_handles(writer), 0);
    check_int(gmsfs_allocate_handle(writer, BYTES, "t", NULL, &slot), 0);
    if (check_int(gmsfs_attach_mapping(writer, slot, GMSFS_ACCESS_WRITE, &ptr), 0)) {
        memset(ptr, fill, BYTES);
        check_int(gmsfs_destroy_mapping(writer, ptr), 0);
    }
}

__attribute__((unused)) static void engine_fill(struct engine *engine, int fill)
{
    for (size_t i = 0; i < store_count; i++)
        fill_store(engine->handles[i], fill);
}

__attribute__((unused)) static void check_fill(gmsfs_t *reader, int fill)
{
    struct gmsfs_mapping *list = NULL;
    unsigned char want[BYTES];
    size_t count = 0;

    memset(want, fill, sizeof want);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    if (check_int(count, 1)) {
        check_bytes(list[0].ptr, BYTES, want, BYTES);
        check_int(gmsfs_destroy_mapping(reader, list[0].ptr), 0);
    }
    free(list);
}

/* Commits a whole group over any other contents. */
__attribute__((unused)) static void publish_group(int fill, uint8_t id[16])
{
    struct engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, fill);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, id), 0);
    check(engine_has(&engine, GMSFS_MODE_NONE));
    engine_close(&engine);
}

/* Commits nothing anywhere: a writer whose bytes may have been seen has aborted. */
__attribute__((unused)) static void empty_group(void)
{
    struct engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 0);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    for (size_t i = 0; i < store_count; i++) {
        int fd = -1, rolled_back = -1;
        struct gmsfs_handle_info *list = NULL;
        size_t count;
        check_int(gmsfs_list_handles(engine.handles[i], NULL, &list, &count), 0);
        check_int(gmsfs_export_handle(engine.handles[i], list->slot, GMSFS_ACCESS_WRITE, &fd), 0);
        close(fd);
        free(list);
        check_int(gmsfs_abort(engine.handles[i], &rolled_back), 0);
        check_int(rolled_back, 0);
    }
    engine_close(&engine);
}

/* Commits one store alone, without a group id or with another one. */
__attribute__((unused)) static void publish_alone(size_t index, int fill, const uint8_t *id)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(stores[index].path, &store) == 0);
    require(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS) == 0);
    fill_store(store, fill);
    check_int(gmsfs_commit(store, id ? GMSFS_COMMIT_GROUP : 0, id), 0);
    gmsfs_close(store);
}

/* Takes a lock of one store with another handle. */
__attribute__((unused)) static gmsfs_t *hold(size_t index, enum gmsfs_mode mode)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(stores[index].path, &store) == 0);
    require(gmsfs_connect(store, mode, WAIT_MS) == 0);
    return store;
}

__attribute__((unused)) static int try_lock(size_t index, enum gmsfs_mode mode)
{
    gmsfs_t *store = NULL;
    int r;

    require(gmsfs_open(stores[index].path, &store) == 0);
    r = gmsfs_connect(store, mode, 0);
    gmsfs_close(store);
    return r;
}

/* Returns true if RW can be had at once everywhere: there is no holder or waiter. */
__attribute__((unused)) static bool all_free(void)
{
    for (size_t i = 0; i < store_count; i++)
        if (try_lock(i, GMSFS_MODE_RW) != 0)
            return false;
    return true;
}

/* Starts a loader that dies between two commits of its group. */
__attribute__((unused)) static void die_after(size_t commits, int fill)
{
    pid_t child;
    int status = 0;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        static const uint8_t id[16] = "never completed.";
        struct engine engine = engine_open();
        if (engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS) != 0)
            _exit(1);
        engine_fill(&engine, fill);
        for (size_t i = 0; i < commits; i++)
            if (gmsfs_commit(engine.handles[store_count - 1 - i], GMSFS_COMMIT_GROUP, id) != 0)
                _exit(1);
        raise(SIGKILL);
    }
    check(waitpid(child, &status, 0) == child);
    check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- an engine in a thread ---------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    struct engine engine;
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    int result;
};

__attribute__((unused)) static void *waiter_run(void *argument)
{
    struct waiter *waiter = argument;

    waiter->result = engine_connect(&waiter->engine, waiter->mode, waiter->timeout_ms);
    return NULL;
}

__attribute__((unused)) static void waiter_start(struct waiter *waiter, enum gmsfs_mode mode)
{
    *waiter = (struct waiter){.engine = engine_open(), .mode = mode, .timeout_ms = 4 * WAIT_MS};
    require(pthread_create(&waiter->thread, NULL, waiter_run, waiter) == 0);
}

__attribute__((unused)) static int waiter_end(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    return waiter->result;
}

/* Counts the store's waiters; `newest` is the highest of their numbers. */
__attribute__((unused)) static int count_waiting(size_t index, unsigned long *newest)
{
    char path[600], line[512];
    int count = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/sessions", stores[index].path);
    file = fopen(path, "re");
    require(file != NULL);
    *newest = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long id;
        if (sscanf(line, "w%lu", &id) != 1)
            continue;
        count++;
        if (id > *newest)
            *newest = id;
    }
    fclose(file);
    return count;
}

/* Waits until the store has this many waiters, one of them newer than `after`. Returns the
 * newest. */
__attribute__((unused)) static unsigned long wait_waiting(size_t index, int count,
                                                          unsigned long after)
{
    unsigned long newest = 0;

    for (int i = 0; i < 4 * WAIT_MS; i++) {
        if (count_waiting(index, &newest) == count && newest > after)
            return newest;
        usleep(1000);
    }
    require(!"the waiter did not come");
    return 0;
}

#endif
