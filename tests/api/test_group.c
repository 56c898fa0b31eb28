/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several stores as one. GMSFS_TEST_GROUP names three or more stores, on several mounts, separated
 * by colons; nobody else uses them meanwhile. Two of the mounts have two of them, and 64 MiB each.
 */
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
} stores[MAX_STORES]; /* by id, as groups go */
static size_t store_count;

static int compare_ids(const void *left, const void *right)
{
    return memcmp((const char *)left + sizeof stores[0].path,
                  (const char *)right + sizeof stores[0].path, sizeof stores[0].id);
}

static void find_stores(void)
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

static struct engine engine_open(void)
{
    struct engine engine = {0};

    if (!store_count)
        find_stores();
    for (size_t i = 0; i < store_count; i++)
        require(gmsfs_open(stores[i].path, &engine.handles[i]) == 0);
    return engine;
}

static void engine_close(struct engine *engine)
{
    for (size_t i = 0; i < store_count; i++)
        gmsfs_close(engine->handles[i]);
}

static int engine_connect(struct engine *engine, enum gmsfs_mode mode, uint64_t timeout_ms)
{
    return gmsfs_connect_group(engine->handles, store_count, mode, timeout_ms);
}

static void engine_disconnect(struct engine *engine)
{
    for (size_t i = 0; i < store_count; i++)
        check_int(gmsfs_disconnect(engine->handles[i]), 0);
}

/* All handles have this lock. */
static bool engine_has(struct engine *engine, enum gmsfs_mode mode)
{
    for (size_t i = 0; i < store_count; i++)
        if (!check_int(gmsfs_granted_lock(engine->handles[i]), mode))
            return false;
    return true;
}

static void fill_store(gmsfs_t *writer, int fill)
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

static void engine_fill(struct engine *engine, int fill)
{
    for (size_t i = 0; i < store_count; i++)
        fill_store(engine->handles[i], fill);
}

static void check_fill(gmsfs_t *reader, int fill)
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

/* Commits a whole group, whatever was there. */
static void publish_group(int fill, uint8_t id[16])
{
    struct engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, fill);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, id), 0);
    check(engine_has(&engine, GMSFS_MODE_NONE));
    engine_close(&engine);
}

/* Nothing is committed anywhere: a writer whose bytes may have been seen has aborted. */
static void empty_group(void)
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

/* One store of its own, with a commit that has no group id or another one. */
static void publish_alone(size_t index, int fill, const uint8_t *id)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(stores[index].path, &store) == 0);
    require(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS) == 0);
    fill_store(store, fill);
    check_int(gmsfs_commit(store, id ? GMSFS_COMMIT_GROUP : 0, id), 0);
    gmsfs_close(store);
}

/* A lock of one store, held by somebody else. */
static gmsfs_t *hold(size_t index, enum gmsfs_mode mode)
{
    gmsfs_t *store = NULL;

    require(gmsfs_open(stores[index].path, &store) == 0);
    require(gmsfs_connect(store, mode, WAIT_MS) == 0);
    return store;
}

static int try_lock(size_t index, enum gmsfs_mode mode)
{
    gmsfs_t *store = NULL;
    int r;

    require(gmsfs_open(stores[index].path, &store) == 0);
    r = gmsfs_connect(store, mode, 0);
    gmsfs_close(store);
    return r;
}

/* Nobody holds or awaits anything: RW can be had at once everywhere. */
static bool all_free(void)
{
    for (size_t i = 0; i < store_count; i++)
        if (try_lock(i, GMSFS_MODE_RW) != 0)
            return false;
    return true;
}

/* ---- an engine in a thread ---------------------------------------------------------------- */

struct waiter {
    pthread_t thread;
    struct engine engine;
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    int result;
};

static void *waiter_run(void *argument)
{
    struct waiter *waiter = argument;

    waiter->result = engine_connect(&waiter->engine, waiter->mode, waiter->timeout_ms);
    return NULL;
}

static void waiter_start(struct waiter *waiter, enum gmsfs_mode mode)
{
    *waiter = (struct waiter){.engine = engine_open(), .mode = mode, .timeout_ms = 4 * WAIT_MS};
    require(pthread_create(&waiter->thread, NULL, waiter_run, waiter) == 0);
}

static int waiter_end(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    return waiter->result;
}

/* The highest number of those who wait for the store, and how many they are. */
static int count_waiting(size_t index, unsigned long *newest)
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

/* Until so many wait for the store, one of them newer than `after`. The newest. */
static unsigned long wait_waiting(size_t index, int count, unsigned long after)
{
    unsigned long newest = 0;

    for (int i = 0; i < 4 * WAIT_MS; i++) {
        if (count_waiting(index, &newest) == count && newest > after)
            return newest;
        usleep(1000);
    }
    require(!"nobody came to wait");
    return 0;
}

/* ---- the plain course --------------------------------------------------------------------- */

TAP_TEST(all_locks_are_taken_and_all_commits_bear_one_id)
{
    struct engine engine = engine_open();
    uint8_t id[16] = {0}, other[16];
    struct gmsfs_info info;

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    engine_fill(&engine, 1);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, id), 0);
    check(engine_has(&engine, GMSFS_MODE_NONE));
    for (size_t i = 0; i < store_count; i++) {
        check_int(gmsfs_get_info(engine.handles[i], &info), 0);
        check_bytes(info.group, 16, id, 16);
    }
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0);
    check(engine_has(&engine, GMSFS_MODE_RO));
    for (size_t i = 0; i < store_count; i++)
        check_fill(engine.handles[i], 1);
    engine_disconnect(&engine);
    publish_group(2, other);
    check(memcmp(id, other, 16) != 0);
    engine_close(&engine);
}

TAP_TEST(commit_can_stay_on_all_as_reader)
{
    struct engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 3);
    check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
    check(engine_has(&engine, GMSFS_MODE_RO));
    for (size_t i = 0; i < store_count; i++)
        check_int(try_lock(i, GMSFS_MODE_RW), -EAGAIN);
    engine_close(&engine);
    check(all_free());
}

TAP_TEST(arguments_that_make_no_sense_are_refused)
{
    struct engine engine = engine_open(), twin = engine_open();
    gmsfs_t *pair[2] = {engine.handles[0], engine.handles[0]};

    check_int(gmsfs_connect_group(NULL, 1, GMSFS_MODE_RW, 0), -EINVAL);
    check_int(gmsfs_connect_group(pair, 0, GMSFS_MODE_RW, 0), -EINVAL);
    check_int(gmsfs_connect_group(pair, GMSFS_GROUP_MAX + 1, GMSFS_MODE_RW, 0), -EINVAL);
    check_int(gmsfs_connect_group(pair, 1, GMSFS_MODE_NONE, 0), -EINVAL);
    check_int(gmsfs_connect_group(pair, 2, GMSFS_MODE_RW, 0), -EINVAL); /* one handle twice */
    pair[1] = twin.handles[0];
    check_int(gmsfs_connect_group(pair, 2, GMSFS_MODE_RW, 0), -EINVAL); /* one store twice */
    pair[1] = NULL;
    check_int(gmsfs_connect_group(pair, 2, GMSFS_MODE_RW, 0), -EINVAL);
    check_int(gmsfs_commit_group(pair, 1, GMSFS_COMMIT_GROUP, NULL), -EINVAL);
    check_int(gmsfs_commit_group(pair, 1, 0, NULL), -ENOLCK);
    check(engine_has(&engine, GMSFS_MODE_NONE));
    check(all_free());
    engine_close(&twin);
    engine_close(&engine);
}

TAP_TEST(a_handle_that_is_connected_is_ebusy_and_keeps_its_lock)
{
    struct engine engine = engine_open();
    size_t last = store_count - 1;

    check_int(gmsfs_connect(engine.handles[last], GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), -EBUSY);
    check_int(gmsfs_granted_lock(engine.handles[0]), GMSFS_MODE_NONE);
    check_int(gmsfs_granted_lock(engine.handles[last]), GMSFS_MODE_RW);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ENOLCK);
    check_int(gmsfs_granted_lock(engine.handles[last]), GMSFS_MODE_RW);
    engine_close(&engine);
}

TAP_TEST(one_store_is_a_group_whatever_its_commit_says)
{
    struct engine engine = engine_open();
    uint8_t id[16], none[16] = {0};

    publish_alone(0, 1, NULL);
    check_int(gmsfs_connect_group(engine.handles, 1, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_disconnect(engine.handles[0]), 0);
    check_int(gmsfs_connect_group(engine.handles, 1, GMSFS_MODE_RW_OR_RO, 0), 0);
    check_int(gmsfs_granted_lock(engine.handles[0]), GMSFS_MODE_RO);
    check_int(gmsfs_disconnect(engine.handles[0]), 0);
    check_int(gmsfs_connect_group(engine.handles, 1, GMSFS_MODE_RW, 0), 0);
    check_int(gmsfs_commit_group(engine.handles, 1, 0, id), 0);
    check(memcmp(id, none, 16) != 0);
    engine_close(&engine);
}

/* ---- all or nothing ----------------------------------------------------------------------- */

TAP_TEST(when_one_lock_is_not_free_none_is_kept)
{
    enum gmsfs_mode modes[] = {GMSFS_MODE_RW, GMSFS_MODE_RO, GMSFS_MODE_RW_OR_RO};
    struct engine engine = engine_open();

    publish_group(1, NULL);
    for (size_t at = 0; at < store_count; at++) {
        gmsfs_t *holder = hold(at, GMSFS_MODE_RW);
        for (size_t i = 0; i < 3; i++) {
            check_int(engine_connect(&engine, modes[i], 0), -EAGAIN);
            check_int(engine_connect(&engine, modes[i], 30), -ETIMEDOUT);
            check(engine_has(&engine, GMSFS_MODE_NONE));
            for (size_t j = 0; j < store_count; j++)
                if (j != at)
                    check_int(try_lock(j, GMSFS_MODE_RW), 0);
        }
        gmsfs_close(holder);
    }
    check(all_free());
    engine_close(&engine);
}

static void on_signal(int number)
{
    (void)number;
}

TAP_TEST(signals_do_not_shorten_the_time_for_all)
{
    struct sigaction act = {.sa_handler = on_signal}, old;
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    struct engine engine = engine_open();
    gmsfs_t *holder = hold(store_count - 1, GMSFS_MODE_RW);
    struct timespec begin, end;

    sigaction(SIGALRM, &act, &old);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    setitimer(ITIMER_REAL, &often, NULL);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, 300), -ETIMEDOUT);
    setitimer(ITIMER_REAL, &never, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    sigaction(SIGALRM, &old, NULL);
    check((end.tv_sec - begin.tv_sec) * 1000 + (end.tv_nsec - begin.tv_nsec) / 1000000 >= 290);
    gmsfs_close(holder);
    engine_close(&engine);
}

/* The session of a lock that waits for the others is ended from outside. */
TAP_TEST(a_lock_that_is_revoked_meanwhile_fails_the_group)
{
    gmsfs_t *holder = hold(store_count - 1, GMSFS_MODE_RW);
    struct waiter waiter;
    char path[600], line[512];
    unsigned long id = 0;
    FILE *file;

    waiter_start(&waiter, GMSFS_MODE_RW);
    wait_waiting(store_count - 1, 1, 0);
    snprintf(path, sizeof path, "%s/sessions", stores[0].path);
    file = fopen(path, "re");
    require(file != NULL);
    while (fgets(line, sizeof line, file))
        if (strstr(line, " held "))
            id = strtoul(line, NULL, 10);
    fclose(file);
    require(id != 0);
    snprintf(path, sizeof path, "%s/abort", stores[0].path);
    file = fopen(path, "we");
    require(file != NULL);
    fprintf(file, "revoke %lu\n", id);
    check_int(fclose(file), 0);
    gmsfs_close(holder);
    check_int(waiter_end(&waiter), -ESTALE);
    check(engine_has(&waiter.engine, GMSFS_MODE_NONE));
    check(all_free());
    check_int(engine_connect(&waiter.engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_close(&waiter.engine);
}

/* ---- whole or mixed ----------------------------------------------------------------------- */

TAP_TEST(rw_or_ro_is_rw_on_empty_stores_and_ro_on_a_whole_group)
{
    struct engine engine = engine_open(), other = engine_open();

    empty_group();
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    check_int(engine_connect(&other, GMSFS_MODE_RW_OR_RO, 0), -EAGAIN);
    engine_fill(&engine, 4);
    check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(engine_connect(&other, GMSFS_MODE_RW_OR_RO, 0), 0);
    check(engine_has(&other, GMSFS_MODE_RO));
    engine_close(&other);
    engine_close(&engine);
}

/* Each of the stores, in turn, is not of the group. */
TAP_TEST(ro_refuses_a_mix_and_rw_or_ro_becomes_the_writer)
{
    static const uint8_t foreign[16] = "another load....";
    struct engine engine = engine_open();

    for (size_t at = 0; at < store_count; at++) {
        publish_group(1, NULL);
        publish_alone(at, 2, at % 2 ? foreign : NULL);
        check_int(engine_connect(&engine, GMSFS_MODE_RO, WAIT_MS), -ESTALE);
        check(engine_has(&engine, GMSFS_MODE_NONE));
        check(all_free());
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, 0), 0);
        check(engine_has(&engine, GMSFS_MODE_RW));
        engine_disconnect(&engine);
        /* Looking has harmed nobody: what was committed is there still. */
        check_int(gmsfs_connect(engine.handles[at], GMSFS_MODE_RO, 0), 0);
        check_fill(engine.handles[at], 2);
        check_int(gmsfs_disconnect(engine.handles[at]), 0);
    }
    engine_close(&engine);
}

TAP_TEST(stores_committed_without_a_group_id_are_a_mix)
{
    struct engine engine = engine_open();

    for (size_t i = 0; i < store_count; i++)
        publish_alone(i, 1, NULL);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), -ESTALE);
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, 0), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    engine_close(&engine);
}

/* A loader that dies between two commits of its group. */
static void die_after(size_t commits, int fill)
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

TAP_TEST(a_crash_between_the_first_commits_heals_itself)
{
    struct engine engine = engine_open();

    for (size_t commits = 1; commits < store_count; commits++) {
        empty_group();
        die_after(commits, 5);
        /* Something is not committed yet, and might be. */
        check_int(engine_connect(&engine, GMSFS_MODE_RO, 100), -ETIMEDOUT);
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
        check(engine_has(&engine, GMSFS_MODE_RW));
        engine_fill(&engine, 6);
        check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), 0);
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
        check(engine_has(&engine, GMSFS_MODE_RO));
        for (size_t i = 0; i < store_count; i++)
            check_fill(engine.handles[i], 6);
        engine_disconnect(&engine);
    }
    engine_close(&engine);
}

TAP_TEST(a_crash_between_commits_over_a_whole_group_is_a_mix_and_heals_itself)
{
    struct engine engine = engine_open();

    for (size_t commits = 1; commits < store_count; commits++) {
        for (size_t i = 0; i < store_count; i++) /* nothing of it may be rolled back to */
            publish_alone(i, 1, (const uint8_t *)"one whole group.");
        die_after(commits, 2);
        /* The writer replaced the layouts, so what it did not commit is as before. */
        check_int(engine_connect(&engine, GMSFS_MODE_RO, WAIT_MS), -ESTALE);
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
        check(engine_has(&engine, GMSFS_MODE_RW));
        engine_fill(&engine, 3);
        check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
        for (size_t i = 0; i < store_count; i++)
            check_fill(engine.handles[i], 3);
        engine_disconnect(&engine);
    }
    engine_close(&engine);
}

/* ---- commits that fail -------------------------------------------------------------------- */

/* An entry that points outside of its allocation, until `mend`. */
static void spoil(gmsfs_t *writer, bool mend)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;

    check_int(gmsfs_list_handles(writer, NULL, &list, &count), 0);
    require(count == 1);
    check_int(gmsfs_metadata_put(writer, &(struct gmsfs_metadata){.key = "k",
                                                                  .value = "v",
                                                                  .value_bytes = 1,
                                                                  .slot = list->slot,
                                                                  .offset = mend ? 0 : BYTES + 1}),
              0);
    free(list);
}

TAP_TEST(a_layout_that_any_of_the_stores_refuses_is_found_before_the_first_commit)
{
    struct engine engine = engine_open();
    struct gmsfs_info info;
    uint8_t id[16], committed[16];

    publish_group(1, committed);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 2);
    for (size_t at = 0; at < store_count; at++) {
        spoil(engine.handles[at], false);
        check_int(gmsfs_commit_group(engine.handles, store_count, 0, id), -EINVAL);
        check(engine_has(&engine, GMSFS_MODE_RW));
        for (size_t i = 0; i < store_count; i++) {
            check_int(gmsfs_get_info(engine.handles[i], &info), 0);
            check_bytes(info.group, 16, committed, 16);
        }
        spoil(engine.handles[at], true);
    }
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, id), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0);
    for (size_t i = 0; i < store_count; i++)
        check_fill(engine.handles[i], 2);
    engine_close(&engine);
}

/* What is left of a group that failed half-way has its lock still. */
TAP_TEST(the_rest_of_a_group_can_be_committed_with_its_id)
{
    static const uint8_t id[16] = "begun by another";
    struct engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 2);
    for (size_t i = store_count; i-- > 1;)
        check_int(gmsfs_commit(engine.handles[i], GMSFS_COMMIT_GROUP, id), 0);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ENOLCK);
    check_int(gmsfs_granted_lock(engine.handles[0]), GMSFS_MODE_RW);
    check_int(gmsfs_commit(engine.handles[0], GMSFS_COMMIT_GROUP, id), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0);
    check_fill(engine.handles[0], 2);
    engine_close(&engine);
}

TAP_TEST(a_session_that_was_revoked_is_found_before_the_first_commit)
{
    struct engine engine = engine_open();
    struct gmsfs_info info;
    uint8_t id[16];
    char path[600];
    FILE *file;

    publish_group(1, id);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 2);
    check_int(gmsfs_get_info(engine.handles[0], &info), 0);
    snprintf(path, sizeof path, "%s/abort", stores[0].path);
    file = fopen(path, "we");
    require(file != NULL);
    fprintf(file, "revoke %lu\n", (unsigned long)info.session);
    check_int(fclose(file), 0);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ESTALE);
    check_int(gmsfs_is_connected(engine.handles[0]), 0);
    check_int(gmsfs_is_connected(engine.handles[1]), 1);
    engine_disconnect(&engine);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0); /* rolled back, so whole */
    check_int(gmsfs_get_info(engine.handles[1], &info), 0);
    check_bytes(info.group, 16, id, 16);
    engine_close(&engine);
}

/* ---- waiting ------------------------------------------------------------------------------ */

TAP_TEST(a_group_of_readers_holds_nothing_while_it_waits)
{
    struct engine engine = engine_open();
    struct waiter reader;
    gmsfs_t *holder;

    publish_group(1, NULL);
    holder = hold(store_count - 1, GMSFS_MODE_RW);
    waiter_start(&reader, GMSFS_MODE_RO);
    wait_waiting(store_count - 1, 1, 0);
    for (size_t i = 0; i + 1 < store_count; i++)
        check_int(try_lock(i, GMSFS_MODE_RW), 0);
    gmsfs_close(holder);
    check_int(waiter_end(&reader), 0);
    check(engine_has(&reader.engine, GMSFS_MODE_RO));
    engine_close(&reader.engine);
    engine_close(&engine);
}

/* A reader that had a lock would keep the loader out, whose commit it waits for. */
TAP_TEST(readers_that_wait_for_a_half_committed_group_let_it_be_healed)
{
    struct engine engine = engine_open();
    struct waiter reader;

    empty_group();
    die_after(1, 5);
    waiter_start(&reader, GMSFS_MODE_RO);
    wait_waiting(0, 1, 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    engine_fill(&engine, 7);
    check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(waiter_end(&reader), 0);
    for (size_t i = 0; i < store_count; i++)
        check_fill(reader.engine.handles[i], 7);
    engine_close(&reader.engine);
    engine_close(&engine);
}

TAP_TEST(who_waits_for_a_loader_reads_what_it_commits_also_when_it_stays)
{
    struct engine engine = engine_open();
    struct waiter other;

    empty_group();
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
    waiter_start(&other, GMSFS_MODE_RW_OR_RO);
    wait_waiting(0, 1, 0);
    engine_fill(&engine, 8);
    check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(waiter_end(&other), 0);
    check(engine_has(&other.engine, GMSFS_MODE_RO));
    check(engine_has(&engine, GMSFS_MODE_RO));
    engine_close(&other.engine);
    engine_close(&engine);
}

/* A healer in the queue behind another one, who then stays on as a reader, or leaves. */
static void check_healed_by_another(unsigned flags)
{
    struct waiter loader, other;
    unsigned long first;
    gmsfs_t *reader;

    publish_group(1, NULL);
    publish_alone(1, 2, NULL);
    reader = hold(0, GMSFS_MODE_RO);
    waiter_start(&loader, GMSFS_MODE_RW);
    first = wait_waiting(0, 1, 0);
    waiter_start(&other, GMSFS_MODE_RW_OR_RO);
    wait_waiting(0, 2, first);
    gmsfs_close(reader);
    check_int(waiter_end(&loader), 0);
    engine_fill(&loader.engine, 9);
    check_int(gmsfs_commit_group(loader.engine.handles, store_count, flags, NULL), 0);
    check_int(waiter_end(&other), 0);
    check(engine_has(&other.engine, GMSFS_MODE_RO));
    for (size_t i = 0; i < store_count; i++)
        check_fill(other.engine.handles[i], 9);
    engine_close(&other.engine);
    engine_close(&loader.engine);
}

TAP_TEST(who_waits_to_heal_reads_what_another_has_healed_and_stays_to_read)
{
    check_healed_by_another(GMSFS_COMMIT_STAY);
}

TAP_TEST(who_waits_to_heal_reads_what_another_has_healed_and_left)
{
    check_healed_by_another(0);
}

/* Each comes before the one before it leaves, and has time enough to slip in while the healer looks
 * around. One that is held off leaves the healer's way free. */
TAP_TEST(readers_that_keep_coming_do_not_keep_a_healer_out)
{
    gmsfs_t *reader, *next = NULL;
    struct waiter healer;
    int r = 0;

    publish_group(1, NULL);
    publish_alone(1, 2, NULL);
    reader = hold(0, GMSFS_MODE_RO);
    waiter_start(&healer, GMSFS_MODE_RW_OR_RO);
    wait_waiting(0, 1, 0);
    for (int i = 0; i < 4 && !r; i++) {
        require(gmsfs_open(stores[0].path, &next) == 0);
        r = gmsfs_connect(next, GMSFS_MODE_RO, 2500);
        gmsfs_close(reader);
        reader = next;
    }
    check_int(r, -ETIMEDOUT);
    check_int(waiter_end(&healer), 0);
    check(engine_has(&healer.engine, GMSFS_MODE_RW));
    gmsfs_close(reader);
    engine_close(&healer.engine);
}

struct turn {
    gmsfs_t *handles[MAX_STORES];
    bool backwards;
    int error;
};

static void *take_turns(void *argument)
{
    struct turn *turn = argument;

    for (int i = 0; i < 50 && !turn->error; i++) {
        turn->error = gmsfs_connect_group(turn->handles, store_count,
                                          i % 5 ? GMSFS_MODE_RW : GMSFS_MODE_RO, 4 * WAIT_MS);
        for (size_t j = 0; j < store_count && !turn->error; j++)
            turn->error = gmsfs_disconnect(turn->handles[j]);
    }
    return NULL;
}

TAP_TEST(groups_in_opposite_orders_do_not_wait_for_each_other)
{
    pthread_t threads[4];
    struct turn turns[4] = {0};

    publish_group(1, NULL);
    for (size_t i = 0; i < 4; i++) {
        struct engine engine = engine_open();
        for (size_t j = 0; j < store_count; j++)
            turns[i].handles[j] = engine.handles[i % 2 ? store_count - 1 - j : j];
        require(pthread_create(&threads[i], NULL, take_turns, &turns[i]) == 0);
    }
    for (size_t i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        check_int(turns[i].error, 0);
        for (size_t j = 0; j < store_count; j++)
            gmsfs_close(turns[i].handles[j]);
    }
    check(all_free());
}

TAP_TEST(one_set_of_handles_in_two_threads_is_done_one_after_the_other)
{
    struct engine engine = engine_open();
    gmsfs_t *backwards[MAX_STORES];
    struct waiter waiter;
    gmsfs_t *holder;

    publish_group(1, NULL);
    holder = hold(store_count - 1, GMSFS_MODE_RW);
    waiter_start(&waiter, GMSFS_MODE_RW);
    wait_waiting(store_count - 1, 1, 0);
    gmsfs_close(holder);
    for (size_t i = 0; i < store_count; i++)
        backwards[i] = waiter.engine.handles[store_count - 1 - i];
    check_int(gmsfs_connect_group(backwards, store_count, GMSFS_MODE_RW, WAIT_MS), -EBUSY);
    check_int(waiter_end(&waiter), 0);
    check(engine_has(&waiter.engine, GMSFS_MODE_RW));
    engine_close(&waiter.engine);
    engine_close(&engine);
}

TAP_TEST(a_child_of_fork_is_told_and_leaves_the_parents_locks)
{
    struct engine engine = engine_open();
    int status = -1;
    pid_t child;

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(engine_connect(&engine, GMSFS_MODE_RW, 0) == -ECHILD &&
                      gmsfs_commit_group(engine.handles, store_count, 0, NULL) == -ECHILD
                  ? 0
                  : 1);
    check(waitpid(child, &status, 0) == child);
    check_int(status, 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    engine_close(&engine);
}

/* ---- memory ------------------------------------------------------------------------------- */

#define MIB  (UINT64_C(1) << 20)
#define MOST (40 * MIB) /* of a device with 64 MiB: for one of them */

/* Two groups that share devices but no store. */
struct twins {
    size_t stores[2][MAX_STORES];
    size_t count;
};

static struct twins find_twins(void)
{
    struct stat status[MAX_STORES];
    struct twins twins = {0};

    if (!store_count)
        find_stores();
    for (size_t i = 0; i < store_count; i++)
        require(stat(stores[i].path, &status[i]) == 0);
    for (size_t i = 0; i < store_count; i++)
        for (size_t j = i + 1; j < store_count; j++)
            if (status[i].st_dev == status[j].st_dev) {
                bool swap = twins.count % 2;
                twins.stores[swap][twins.count] = i;
                twins.stores[!swap][twins.count++] = j;
            }
    require(twins.count == 2);
    return twins;
}

/* Some stores of an engine, each with so much memory. */
struct loader {
    gmsfs_t *handles[MAX_STORES];
    uint64_t bytes[MAX_STORES];
    size_t count;
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    pthread_t thread;
    int result;
};

static void loader_open(struct loader *loader, const size_t *indices, size_t count, uint64_t bytes)
{
    *loader = (struct loader){.count = count, .mode = GMSFS_MODE_RW, .timeout_ms = 4 * WAIT_MS};
    for (size_t i = 0; i < count; i++) {
        require(gmsfs_open(stores[indices[i]].path, &loader->handles[i]) == 0);
        loader->bytes[i] = bytes;
    }
}

static int loader_connect(struct loader *loader, uint64_t timeout_ms)
{
    return gmsfs_connect_group_reserve(loader->handles, loader->count, loader->mode, timeout_ms,
                                       loader->bytes);
}

static void loader_close(struct loader *loader)
{
    for (size_t i = 0; i < loader->count; i++)
        gmsfs_close(loader->handles[i]);
}

static void *loader_run(void *argument)
{
    struct loader *loader = argument;

    loader->result = loader_connect(loader, loader->timeout_ms);
    return NULL;
}

static void loader_start(struct loader *loader)
{
    require(pthread_create(&loader->thread, NULL, loader_run, loader) == 0);
}

static int loader_end(struct loader *loader)
{
    pthread_join(loader->thread, NULL);
    return loader->result;
}

/* By device: the order in which memory is tried. */
static size_t later_of(size_t a, size_t b)
{
    struct stat one, other;

    require(stat(stores[a].path, &one) == 0 && stat(stores[b].path, &other) == 0);
    if (one.st_dev != other.st_dev)
        return one.st_dev > other.st_dev ? a : b;
    return a > b ? a : b;
}

static uint64_t total_bytes(size_t index)
{
    struct statvfs device;

    require(statvfs(stores[index].path, &device) == 0);
    return device.f_blocks * device.f_frsize;
}

static uint64_t free_bytes(size_t index)
{
    struct statvfs device;

    require(statvfs(stores[index].path, &device) == 0);
    return device.f_bavail * device.f_frsize;
}

/* What sessions held comes back when they end, and what they freed soon after. */
static bool comes_free(size_t index, uint64_t bytes)
{
    for (int i = 0; i < 4 * WAIT_MS && free_bytes(index) != bytes; i++)
        usleep(1000);
    return check_int(free_bytes(index), bytes);
}

TAP_TEST(memory_is_set_aside_with_all_locks_and_drawn_from)
{
    struct twins twins = find_twins();
    struct loader loader;
    uint64_t before[MAX_STORES];
    uint64_t slot;

    empty_group();
    for (size_t i = 0; i < twins.count; i++)
        check(comes_free(twins.stores[0][i], 64 * MIB));
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    loader.bytes[1] = 0;
    for (size_t i = 0; i < twins.count; i++)
        before[i] = free_bytes(twins.stores[0][i]);
    check_int(loader_connect(&loader, WAIT_MS), 0);
    for (size_t i = 0; i < twins.count; i++) {
        check_int(gmsfs_granted_lock(loader.handles[i]), GMSFS_MODE_RW);
        check_int(free_bytes(twins.stores[0][i]), before[i] - loader.bytes[i]);
    }
    check_int(gmsfs_allocate_handle(loader.handles[0], 2 * MIB, "t", NULL, &slot), 0);
    check_int(free_bytes(twins.stores[0][0]), before[0] - MOST);
    loader_close(&loader);
    check(comes_free(twins.stores[0][0], before[0]));
}

TAP_TEST(memory_for_a_group_that_makes_no_sense_is_refused)
{
    struct twins twins = find_twins();
    size_t both[2] = {twins.stores[0][0], twins.stores[1][0]};
    struct loader loader;

    empty_group();
    loader_open(&loader, both, 2, MOST);
    /* Each fits on the device, both never. */
    check_int(loader_connect(&loader, GMSFS_TIMEOUT_FOREVER), -ENOMEM);
    loader.bytes[1] = UINT64_MAX;
    check_int(loader_connect(&loader, GMSFS_TIMEOUT_FOREVER), -ENOMEM);
    loader.bytes[1] = 0;
    loader.mode = GMSFS_MODE_RO;
    check_int(loader_connect(&loader, 0), -EINVAL);
    loader_close(&loader);
    check(all_free());
}

TAP_TEST(what_a_group_has_committed_counts_as_there_for_who_replaces_it)
{
    struct twins twins = find_twins();
    struct loader loader;
    uint64_t slot;

    empty_group();
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    for (int turn = 0; turn < 2; turn++) {
        check_int(loader_connect(&loader, 2 * WAIT_MS), 0);
        for (size_t i = 0; i < twins.count; i++) {
            check_int(gmsfs_clear_all_handles(loader.handles[i]), 0);
            check_int(gmsfs_allocate_handle(loader.handles[i], MOST, "t", NULL, &slot), 0);
        }
        check_int(gmsfs_commit_group(loader.handles, loader.count, 0, NULL), 0);
    }
    loader_close(&loader);
    empty_group();
}

TAP_TEST(who_reads_a_whole_group_needs_no_memory)
{
    struct twins twins = find_twins();
    struct loader loader, other;
    uint64_t before;

    publish_group(1, NULL);
    loader_open(&loader, twins.stores[0], twins.count, MOST);
    loader_open(&other, twins.stores[1], twins.count, MOST);
    check_int(loader_connect(&loader, WAIT_MS), 0);
    before = free_bytes(twins.stores[0][0]);
    other.mode = GMSFS_MODE_RW_OR_RO;
    check_int(loader_connect(&other, 0), 0);
    check_int(gmsfs_granted_lock(other.handles[0]), GMSFS_MODE_RO);
    check_int(free_bytes(twins.stores[0][0]), before);
    loader_close(&other);
    loader_close(&loader);
}

TAP_TEST(a_group_that_lacks_memory_holds_nothing_while_it_waits)
{
    struct twins twins = find_twins();
    struct loader first, second;

    empty_group();
    for (size_t at = 0; at < twins.count; at++) {
        uint64_t others = total_bytes(twins.stores[0][!at]);

        for (size_t i = 0; i < twins.count; i++)
            check(comes_free(twins.stores[0][i], total_bytes(twins.stores[0][i])));
        loader_open(&first, &twins.stores[0][at], 1, MOST);
        loader_open(&second, twins.stores[1], twins.count, MOST);
        check_int(loader_connect(&first, WAIT_MS), 0);
        check_int(loader_connect(&second, 0), -ENOMEM);
        check_int(loader_connect(&second, 100), -ETIMEDOUT);
        loader_start(&second);
        wait_waiting(twins.stores[1][at], 1, 0);
        check_int(free_bytes(twins.stores[0][!at]), others);
        for (size_t i = 0; i < twins.count; i++)
            check_int(try_lock(twins.stores[1][i], GMSFS_MODE_RW), 0);
        loader_close(&first);
        check_int(loader_end(&second), 0);
        check_int(free_bytes(twins.stores[0][!at]), others - MOST);
        loader_close(&second);
    }
}

/* Room for each of them, and not for both: who waited for one alone would have it all the time. */
TAP_TEST(two_stores_of_one_device_are_waited_for_together)
{
    struct twins twins = find_twins();
    size_t both[2] = {twins.stores[0][0], twins.stores[1][0]};
    struct loader loader;
    unsigned long waiter, newest;
    gmsfs_t *third = NULL;
    char path[600];
    size_t later = later_of(both[0], both[1]);

    empty_group();
    snprintf(path, sizeof path, "%s/../third", stores[both[0]].path);
    require(mkdir(path, 0755) == 0);
    require(gmsfs_open(path, &third) == 0);
    require(gmsfs_connect_reserve(third, GMSFS_MODE_RW, WAIT_MS, 30 * MIB) == 0);
    loader_open(&loader, both, 2, 24 * MIB);
    loader_start(&loader);
    waiter = wait_waiting(later, 1, 0);
    for (int i = 0; i < 20; i++)
        check_int(try_lock(both[0] + both[1] - later, GMSFS_MODE_RW), 0);
    check_int(count_waiting(later, &newest), 1);
    check_int(newest, waiter);
    gmsfs_close(third);
    check_int(loader_end(&loader), 0);
    loader_close(&loader);
    check_int(rmdir(path), 0);
}

TAP_TEST(who_waits_for_memory_to_write_reads_what_is_whole_by_then)
{
    struct twins twins = find_twins();
    struct loader holder, either, loader;
    const size_t *waited = twins.stores[1];
    size_t first = later_of(waited[0], waited[1]) == waited[0] ? waited[1] : waited[0];

    empty_group();
    loader_open(&holder, twins.stores[0], twins.count, MOST);
    loader_open(&either, twins.stores[1], twins.count, MOST);
    loader_open(&loader, twins.stores[1], twins.count, 0);
    check_int(loader_connect(&holder, WAIT_MS), 0);
    either.mode = GMSFS_MODE_RW_OR_RO;
    loader_start(&either);
    wait_waiting(first, 1, 0);
    check_int(loader_connect(&loader, WAIT_MS), 0); /* it reserves nothing, so it passes */
    for (size_t i = 0; i < loader.count; i++)
        fill_store(loader.handles[i], 1);
    check_int(gmsfs_commit_group(loader.handles, loader.count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(loader_end(&either), 0);
    check_int(gmsfs_granted_lock(either.handles[0]), GMSFS_MODE_RO);
    loader_close(&loader);
    loader_close(&either);
    loader_close(&holder);
}

static void *take_memory_in_turns(void *argument)
{
    struct loader *loader = argument;

    for (int i = 0; i < 25 && !loader->result; i++) {
        loader->result = loader_connect(loader, 12 * WAIT_MS);
        for (size_t j = 0; j < loader->count && !loader->result; j++)
            loader->result = gmsfs_disconnect(loader->handles[j]);
    }
    return NULL;
}

TAP_TEST(groups_on_devices_that_hold_only_one_of_them_take_turns)
{
    struct twins twins = find_twins();
    struct loader loaders[4];

    empty_group();
    for (int i = 0; i < 4; i++) {
        loader_open(&loaders[i], twins.stores[i % 2], twins.count, MOST);
        require(pthread_create(&loaders[i].thread, NULL, take_memory_in_turns, &loaders[i]) == 0);
    }
    for (int i = 0; i < 4; i++) {
        check_int(loader_end(&loaders[i]), 0);
        loader_close(&loaders[i]);
    }
    check(all_free());
}

TAP_TEST(a_group_that_is_killed_leaves_neither_locks_nor_memory)
{
    struct twins twins = find_twins();
    struct loader holder, next;
    int status = 0;
    pid_t child;

    empty_group();
    for (int waits = 0; waits < 2; waits++) {
        loader_open(&holder, &twins.stores[0][1], 1, waits ? MOST : 0);
        check_int(loader_connect(&holder, WAIT_MS), 0);
        fflush(stdout);
        child = fork();
        if (child == 0) {
            struct loader loader;
            loader_open(&loader, twins.stores[1], twins.count, MOST);
            loader_connect(&loader, GMSFS_TIMEOUT_FOREVER);
            pause();
        }
        if (waits)
            wait_waiting(twins.stores[1][1], 1, 0);
        else
            check(comes_free(twins.stores[1][1], 24 * MIB));
        kill(child, SIGKILL);
        check(waitpid(child, &status, 0) == child);
        loader_close(&holder);
        loader_open(&next, twins.stores[1], twins.count, MOST);
        check_int(loader_connect(&next, 2 * WAIT_MS), 0);
        loader_close(&next);
    }
}

/* ---- sleeping readers --------------------------------------------------------------------- */

/* The locks that RW_OR_RO takes and gives back on its way leave no trace in the handle. */
TAP_TEST(sleepers_wake_after_a_group_that_was_tried_in_vain)
{
    struct engine engine = engine_open();
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;
    gmsfs_t *holder;

    publish_group(1, NULL);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_attach_all(engine.handles[0], GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    check_int(gmsfs_unmap_all_vas(engine.handles[0], 0), 0);
    engine_disconnect(&engine);
    holder = hold(store_count - 1, GMSFS_MODE_RW);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, 0), -EAGAIN);
    gmsfs_close(holder);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_remap_all_vas(engine.handles[0], 0, 1), 0);
    check_int(*(const char *)list->ptr, 1);
    free(list);
    engine_close(&engine);
}
