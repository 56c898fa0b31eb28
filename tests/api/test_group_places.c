/* SPDX-License-Identifier: Apache-2.0 */
/* Groups whose stores are not on their devices, which have room for one group at a time. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "api.h"

#define BYTES       (13u << 20)
#define ROUNDS      6
#define PATIENCE_MS 20000

/* GMSFS_TEST_ONE and _TWO: two mounts. Each group has a store on either. */
struct engine {
    char paths[2][512];
    gmsfs_t *handles[2];
    int fill;
    enum gmsfs_mode mode;
};

static gmsfs_t *open_made(char path[512], const char *mount, const char *name)
{
    gmsfs_t *store = NULL;

    require(getenv(mount) != NULL);
    snprintf(path, 512, "%s/%s", getenv(mount), name);
    require(mkdir(path, 0755) == 0 || errno == EEXIST);
    require(gmsfs_open(path, &store) == 0);
    return store;
}

static int is_first_lower(struct engine *engine)
{
    struct gmsfs_info one = {0}, two = {0};

    check_int(gmsfs_get_info(engine->handles[0], &one), 0);
    check_int(gmsfs_get_info(engine->handles[1], &two), 0);
    return memcmp(one.store_id, two.store_id, sizeof one.store_id) < 0;
}

static void engine_close(struct engine *engine)
{
    for (int i = 0; i < 2; i++)
        gmsfs_close(engine->handles[i]);
}

/* Ids are random: opens engines until the ids are in that order. */
static struct engine engine_open(const char *name, int first_is_lower)
{
    struct engine engine = {0};

    for (;;) {
        engine.handles[0] = open_made(engine.paths[0], "GMSFS_TEST_ONE", name);
        engine.handles[1] = open_made(engine.paths[1], "GMSFS_TEST_TWO", name);
        if (is_first_lower(&engine) == first_is_lower)
            return engine;
        engine_close(&engine);
        require(rmdir(engine.paths[0]) == 0 && rmdir(engine.paths[1]) == 0);
    }
}

static unsigned residency_of(gmsfs_t *handle)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(handle, &info), 0);
    return info.residency;
}

/* Repeats the order until the store may move: another client may be checking the group at that
 * moment. */
static void order(struct engine *engine, int i, const char *word, unsigned residency)
{
    char path[560];
    int fd;

    snprintf(path, sizeof path, "%s/residency", engine->paths[i]);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    for (int tries = 0; tries < WAIT_MS && write(fd, word, strlen(word)) < 0; tries++)
        usleep(1000);
    close(fd);
    for (int tries = 0; tries < WAIT_MS && residency_of(engine->handles[i]) != residency; tries++)
        usleep(1000);
    check_int(residency_of(engine->handles[i]), residency);
}

static void demote(struct engine *engine)
{
    for (int i = 0; i < 2; i++)
        order(engine, i, "host", GMSFS_RESIDENCY_HOST);
}

static void publish_group(struct engine *engine, int fill)
{
    void *ptr = NULL;

    engine->fill = fill;
    check_int(gmsfs_connect_group(engine->handles, 2, GMSFS_MODE_RW, PATIENCE_MS), 0);
    for (int i = 0; i < 2; i++) {
        check_int(gmsfs_clear_all_handles(engine->handles[i]), 0);
        if (check_int(gmsfs_create_mapping(engine->handles[i], BYTES, "t", NULL, &ptr), 0))
            memset(ptr, fill, BYTES);
    }
    check_int(gmsfs_commit_group(engine->handles, 2, 0, NULL), 0);
    for (int i = 0; i < 2; i++)
        check_int(gmsfs_unmap_all_vas(engine->handles[i], 0), 0);
}

static void check_group(struct engine *engine)
{
    for (int i = 0; i < 2; i++) {
        check_int(gmsfs_granted_lock(engine->handles[i]), GMSFS_MODE_RO);
        check_int(residency_of(engine->handles[i]) & GMSFS_RESIDENCY_DEVICE,
                  GMSFS_RESIDENCY_DEVICE);
    }
}

static void *take_turns(void *context)
{
    struct engine *engine = context;

    for (int round = 0; round < ROUNDS; round++) {
        if (!check_int(gmsfs_connect_group(engine->handles, 2, engine->mode, PATIENCE_MS), 0))
            return NULL;
        check_group(engine);
        for (int i = 0; i < 2; i++)
            check_int(gmsfs_disconnect(engine->handles[i]), 0);
        demote(engine);
    }
    return NULL;
}

static void check_both_finish(enum gmsfs_mode mode)
{
    struct engine engines[2] = {engine_open("left", 1), engine_open("right", 0)};
    pthread_t threads[2];

    for (int i = 0; i < 2; i++) {
        publish_group(engines + i, i + 1);
        demote(engines + i);
        engines[i].mode = mode;
    }
    for (int i = 0; i < 2; i++)
        require(pthread_create(&threads[i], NULL, take_turns, engines + i) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        engine_close(engines + i);
}

TAP_TEST(two_groups_of_readers_that_want_each_others_memory_both_finish)
{
    check_both_finish(GMSFS_MODE_RO);
}

TAP_TEST(two_groups_of_either_that_want_each_others_memory_both_finish)
{
    check_both_finish(GMSFS_MODE_RW_OR_RO);
}

TAP_TEST(group_that_is_elsewhere_is_not_waited_for_without_a_timeout)
{
    struct engine engine = engine_open("left", 1);

    publish_group(&engine, 1);
    demote(&engine);
    check_int(gmsfs_connect_group(engine.handles, 2, GMSFS_MODE_RO, 0), -EAGAIN);
    check_int(gmsfs_connect_group(engine.handles, 2, GMSFS_MODE_RW_OR_RO, 0), -EAGAIN);
    check_int(gmsfs_connect_group(engine.handles, 2, GMSFS_MODE_RW, 0), -EAGAIN);
    for (int i = 0; i < 2; i++)
        check_int(residency_of(engine.handles[i]), GMSFS_RESIDENCY_HOST);
    engine_close(&engine);
}

TAP_TEST(member_without_bytes_makes_either_a_writer)
{
    struct engine engine = engine_open("left", 1);

    publish_group(&engine, 1);
    order(&engine, 1, "none", 0);
    order(&engine, 0, "host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_connect_group(engine.handles, 2, GMSFS_MODE_RO, WAIT_MS), -ENODATA);
    check_int(gmsfs_connect_group(engine.handles, 2, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
    for (int i = 0; i < 2; i++)
        check_int(gmsfs_granted_lock(engine.handles[i]), GMSFS_MODE_RW);
    engine_close(&engine);
}
