/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups with several stores each on mounts with room for one group at a time. No client orders a
 * move: each one that connects evicts the others' stores, at any time (min_stay=0).
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "api.h"

#define MAX_RANKS   4
#define ROUNDS      2
#define PATIENCE_MS 50000

/* The allocations of a group on the mounts GMSFS_TEST_ONE and _TWO, of 24 MiB each, in units of 2
 * MiB. */
struct shape {
    size_t count;
    const char *mounts[MAX_RANKS];
    size_t bytes;
};

static const struct shape one_mount = {
    3, {"GMSFS_TEST_ONE", "GMSFS_TEST_ONE", "GMSFS_TEST_ONE"}, 6u << 20};
static const struct shape two_mounts = {
    4, {"GMSFS_TEST_ONE", "GMSFS_TEST_TWO", "GMSFS_TEST_ONE", "GMSFS_TEST_TWO"}, 8u << 20};

struct engine {
    const struct shape *shape;
    char paths[MAX_RANKS][512];
    gmsfs_t *handles[MAX_RANKS];
    enum gmsfs_mode mode;
    int fill;
};

static void engine_close(struct engine *engine)
{
    for (size_t i = 0; i < engine->shape->count; i++)
        gmsfs_close(engine->handles[i]);
}

static void open_handles(struct engine *engine)
{
    for (size_t i = 0; i < engine->shape->count; i++) {
        require(gmsfs_open(engine->paths[i], &engine->handles[i]) == 0);
        check_int(gmsfs_set_slab_bytes(engine->handles[i], 0), 0);
    }
}

static struct engine engine_open(const struct shape *shape, const char *name)
{
    struct engine engine = {.shape = shape};

    for (size_t i = 0; i < shape->count; i++) {
        require(getenv(shape->mounts[i]) != NULL);
        snprintf(engine.paths[i], sizeof engine.paths[i], "%s/%s%zu", getenv(shape->mounts[i]),
                 name, i);
        require(mkdir(engine.paths[i], 0755) == 0 || errno == EEXIST);
    }
    open_handles(&engine);
    return engine;
}

static void engine_remove(struct engine *engine)
{
    engine_close(engine);
    for (size_t i = 0; i < engine->shape->count; i++)
        check_int(rmdir(engine->paths[i]), 0);
}

static int engine_connect(struct engine *engine, enum gmsfs_mode mode)
{
    uint64_t reserve_bytes[MAX_RANKS];

    for (size_t i = 0; i < engine->shape->count; i++)
        reserve_bytes[i] = engine->shape->bytes;
    if (mode == GMSFS_MODE_RO)
        return gmsfs_connect_group(engine->handles, engine->shape->count, mode, PATIENCE_MS);
    return gmsfs_connect_group_reserve(engine->handles, engine->shape->count, mode, PATIENCE_MS,
                                       reserve_bytes);
}

static void fill_store(const struct engine *engine, gmsfs_t *writer)
{
    uint64_t slot = 0;
    void *ptr = NULL;

    check_int(gmsfs_clear_all_handles(writer), 0);
    check_int(gmsfs_allocate_handle(writer, engine->shape->bytes, "t", NULL, &slot), 0);
    if (check_int(gmsfs_attach_mapping(writer, slot, GMSFS_ACCESS_WRITE, &ptr), 0)) {
        memset(ptr, engine->fill, engine->shape->bytes);
        check_int(gmsfs_destroy_mapping(writer, ptr), 0);
    }
}

/* All of them are writers. */
static void load(struct engine *engine)
{
    for (size_t i = 0; i < engine->shape->count; i++)
        fill_store(engine, engine->handles[i]);
    check_int(gmsfs_commit_group(engine->handles, engine->shape->count, GMSFS_COMMIT_STAY, NULL),
              0);
}

static void read_all(struct engine *engine)
{
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    for (size_t i = 0; i < engine->shape->count; i++) {
        struct gmsfs_info info = {0};

        check_int(gmsfs_granted_lock(engine->handles[i]), GMSFS_MODE_RO);
        check_int(gmsfs_get_info(engine->handles[i], &info), 0);
        check_int(info.residency & GMSFS_RESIDENCY_DEVICE, GMSFS_RESIDENCY_DEVICE);
        check_int(gmsfs_attach_all(engine->handles[i], GMSFS_ACCESS_READ, &list, &count), 0);
        if (!check_int(count, 1))
            continue;
        check_int(*(unsigned char *)list->ptr, engine->fill);
        check_int(((unsigned char *)list->ptr)[engine->shape->bytes - 1], engine->fill);
        check_int(gmsfs_destroy_mapping(engine->handles[i], list->ptr), 0);
        free(list);
    }
}

static int take_one_turn(struct engine *engine)
{
    if (!check_int(engine_connect(engine, engine->mode), 0))
        return 0;
    if (gmsfs_granted_lock(engine->handles[0]) == GMSFS_MODE_RW)
        load(engine);
    read_all(engine);
    for (size_t i = 0; i < engine->shape->count; i++)
        check_int(gmsfs_disconnect(engine->handles[i]), 0);
    return 1;
}

static void *take_turns(void *context)
{
    for (int round = 0; round < ROUNDS && take_one_turn(context); round++)
        ;
    return NULL;
}

static void order_none(const struct engine *engine, size_t rank)
{
    char path[560];
    int fd, error = EBUSY;

    snprintf(path, sizeof path, "%s/residency", engine->paths[rank]);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    for (int tries = 0; tries < WAIT_MS && error == EBUSY; tries++) {
        error = write(fd, "none", 4) < 0 ? errno : 0;
        usleep(error ? 1000 : 0);
    }
    check_int(error, 0);
    close(fd);
}

static void make_pair(struct engine engines[2], const struct shape *shape, enum gmsfs_mode mode)
{
    for (int i = 0; i < 2; i++) {
        engines[i] = engine_open(shape, i ? "right" : "left");
        engines[i].fill = i + 1;
        engines[i].mode = GMSFS_MODE_RW;
        check(take_one_turn(engines + i));
        engines[i].mode = mode;
    }
}

static void run_pair(struct engine engines[2])
{
    pthread_t threads[2];

    for (int i = 0; i < 2; i++)
        require(pthread_create(&threads[i], NULL, take_turns, engines + i) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++)
        engine_remove(engines + i);
}

static void check_both_finish(const struct shape *shape, enum gmsfs_mode mode)
{
    struct engine engines[2];

    make_pair(engines, shape, mode);
    run_pair(engines);
}

TAP_TEST(two_groups_with_several_stores_on_one_mount_take_turns)
{
    check_both_finish(&one_mount, GMSFS_MODE_RO);
    check_both_finish(&one_mount, GMSFS_MODE_RW_OR_RO);
}

TAP_TEST(two_groups_with_several_stores_on_each_of_two_mounts_take_turns)
{
    check_both_finish(&two_mounts, GMSFS_MODE_RO);
    check_both_finish(&two_mounts, GMSFS_MODE_RW_OR_RO);
}

TAP_TEST(group_that_lacks_a_members_bytes_is_loaded_anew_while_another_one_wants_the_room)
{
    const struct shape *shapes[] = {&one_mount, &two_mounts};

    for (size_t i = 0; i < 2; i++) {
        struct engine engines[2];

        make_pair(engines, shapes[i], GMSFS_MODE_RW_OR_RO);
        order_none(engines, 1);
        check_int(engine_connect(engines, GMSFS_MODE_RO), -ENODATA);
        run_pair(engines);
    }
}

/* Runs with handles of its own until it is killed. */
static void be_killed(const struct engine *like)
{
    struct engine engine = *like;

    open_handles(&engine);
    for (;;)
        take_one_turn(&engine);
}

TAP_TEST(group_whose_rival_is_killed_again_and_again_finishes)
{
    struct engine engines[2];
    pthread_t thread;
    pid_t rival = 0;

    make_pair(engines, &two_mounts, GMSFS_MODE_RW_OR_RO);
    for (unsigned i = 0; i < 6; i++) {
        rival = fork();
        require(rival >= 0);
        if (rival == 0)
            be_killed(engines);
        usleep(i * 100000);
        require(kill(rival, SIGKILL) == 0);
        require(waitpid(rival, NULL, 0) == rival);
    }
    rival = fork();
    require(rival >= 0);
    if (rival == 0)
        be_killed(engines);
    require(pthread_create(&thread, NULL, take_turns, engines + 1) == 0);
    pthread_join(thread, NULL);
    require(kill(rival, SIGKILL) == 0);
    require(waitpid(rival, NULL, 0) == rival);
    engine_remove(engines + 1);
    check(take_one_turn(engines));
    engine_remove(engines);
}
