/* SPDX-License-Identifier: Apache-2.0 */
/* The two functions for torch: from any thread, at any time; and the guard of launches. */
#include <pthread.h>

#include "graph_fixture.h"

#define STREAM(number) ((void *)(uintptr_t)(number))
#define THREADS        4
#define ROUNDS         60

/* ---- selecting ------------------------------------------------------------------------------ */

TAP_TEST(stream_decides_which_space_is_allocated_from)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *one = new_space(pool, 0), *two = new_space(pool, 0);
    unsigned char *a, *b;

    check(gmsfs_graph_alloc(1, 0, STREAM(64)) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOENT);
    check_int(gmsfs_graph_select(one, STREAM(64)), 0);
    check_int(gmsfs_graph_select(one, STREAM(64)), 0);
    check_int(gmsfs_graph_select(two, STREAM(64)), -EBUSY);
    check_int(gmsfs_graph_select(two, STREAM(128)), 0);
    check_int(stats_of(pool).selected, 2);
    a = gmsfs_graph_alloc(100, 0, STREAM(64));
    b = gmsfs_graph_alloc(100, 0, STREAM(128));
    check(a == space_stats_of(one).base);
    check(b == space_stats_of(two).base);
    check_int(gmsfs_graph_alloc_error(), 0);
    check(gmsfs_graph_alloc(0, 0, STREAM(64)) == NULL);
    check_int(gmsfs_graph_alloc_error(), -EINVAL);
    gmsfs_graph_dealloc(a, 100, 0, STREAM(64));
    gmsfs_graph_dealloc(a, 100, 0, STREAM(64));
    gmsfs_graph_dealloc(NULL, 100, 0, STREAM(64));
    check_int(space_stats_of(one).live, 0);
}

TAP_TEST(space_stays_selected_until_every_selection_is_undone)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);

    check_int(gmsfs_graph_select(space, STREAM(64)), 0);
    check_int(gmsfs_graph_select(space, STREAM(64)), 0);
    check_int(stats_of(pool).selected, 1);
    check_int(gmsfs_graph_deselect(pool, STREAM(64)), 0);
    check_int(stats_of(pool).selected, 1);
    check(gmsfs_graph_alloc(1, 0, STREAM(64)) != NULL);
    check_int(gmsfs_graph_deselect(pool, STREAM(64)), 0);
    check_int(stats_of(pool).selected, 0);
    check(gmsfs_graph_alloc(1, 0, STREAM(64)) == NULL);
    check_int(gmsfs_graph_deselect(pool, STREAM(64)), -ENOENT);
}

struct selector {
    gmsfs_graph_pool_t *pool;
    gmsfs_graph_space_t *space;
    int wrong;
};

/* Selects the same space as another thread, on the same stream. */
static void *select_too(void *context)
{
    struct selector *selector = context;

    selector->wrong |= gmsfs_graph_select(selector->space, STREAM(64)) != 0;
    selector->wrong |= gmsfs_graph_alloc(1, 0, STREAM(192)) == NULL;
    selector->wrong |= gmsfs_graph_deselect(selector->pool, STREAM(64)) != 0;
    selector->wrong |= gmsfs_graph_alloc(1, 0, STREAM(192)) != NULL;
    return NULL;
}

TAP_TEST(threads_select_the_same_stream_each_for_itself)
{
    auto_pool *pool = fresh_awake_pool();
    struct selector selector = {pool, new_space(pool, 0), 0};
    pthread_t thread;

    check_int(gmsfs_graph_select(selector.space, STREAM(64)), 0);
    require(pthread_create(&thread, NULL, select_too, &selector) == 0);
    pthread_join(thread, NULL);
    check_int(selector.wrong, 0);
    check_int(stats_of(pool).selected, 1);
    check(gmsfs_graph_alloc(1, 0, STREAM(192)) != NULL);
    check_int(gmsfs_graph_deselect(pool, STREAM(64)), 0);
    check_int(stats_of(pool).selected, 0);
}

TAP_TEST(stream_with_nothing_selected_has_what_its_thread_selected_last)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *one = new_space(pool, 0), *two = new_space(pool, 0);

    check_int(gmsfs_graph_select(one, STREAM(64)), 0);
    check_int(gmsfs_graph_select(two, STREAM(128)), 0);
    check(gmsfs_graph_alloc(1, 0, STREAM(192)) == space_stats_of(two).base);
    check_int(gmsfs_graph_deselect(pool, STREAM(128)), 0);
    check(gmsfs_graph_alloc(1, 0, STREAM(192)) == space_stats_of(one).base);
}

TAP_TEST(failure_is_null_and_says_why)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = NULL;

    require(gmsfs_graph_space_new(pool, UINT64_C(1) << 40, 0, &space) == 0);
    check_int(gmsfs_graph_select(space, NULL), 0);
    check(gmsfs_graph_alloc((intptr_t)(UINT64_C(1) << 30), 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOMEM);
    check(gmsfs_graph_alloc((intptr_t)(UINT64_C(1) << 41), 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOSPC);
    check_int(stats_of(pool).live, 0);
    check_int(gmsfs_graph_deselect(pool, NULL), 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_select(space, NULL), 0);
    check(gmsfs_graph_alloc(1, 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOLCK);
}

/* The mount's alloc_timeout is twice WAIT_MS here (57-api). */
TAP_TEST(full_device_is_told_at_once_to_the_pair_and_to_a_wake_that_may_not_wait)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    gmsfs_t *other = open_fresh_writer();
    uint64_t start_ms;

    take(space, 2 * CHUNK);
    check_int(
        gmsfs_allocate_handle(other, device_free_bytes() - CHUNK, "rest of the device", NULL, NULL),
        0);
    check_int(gmsfs_graph_select(space, NULL), 0);
    start_ms = now_ms();
    check(gmsfs_graph_alloc((intptr_t)(2 * CHUNK), 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOMEM);
    check(now_ms() - start_ms < WAIT_MS);
    check_int(gmsfs_graph_deselect(pool, NULL), 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    wait_for_free(3 * CHUNK);
    check_int(gmsfs_allocate_handle(other, 2 * CHUNK, "rest of the device", NULL, NULL), 0);
    start_ms = now_ms();
    check_int(gmsfs_graph_wake(pool, 0), -ENOMEM);
    check(now_ms() - start_ms < WAIT_MS);
    check_str(read_line("state"), "EMPTY");
    gmsfs_close(other);
}

TAP_TEST(pair_outlives_the_pool)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    void *ptr;

    check_int(gmsfs_graph_select(space, NULL), 0);
    ptr = gmsfs_graph_alloc(100, 0, NULL);
    require(ptr != NULL);
    end_pool(pool);
    gmsfs_graph_dealloc(ptr, 100, 0, NULL);
    check(gmsfs_graph_alloc(100, 0, NULL) == NULL);
    check_int(gmsfs_graph_alloc_error(), -ENOENT);
}

TAP_TEST(what_is_given_back_after_the_end_of_its_pool_is_no_other_pools)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    void *late, *ptr;

    check_int(gmsfs_graph_select(space, NULL), 0);
    late = gmsfs_graph_alloc(100, 0, NULL);
    require(late != NULL);
    end_pool(pool);
    pool = fresh_awake_pool();
    space = new_space(pool, 0); /* at the other one's place, if that is free */
    ptr = take(space, 100);
    gmsfs_graph_dealloc(late, 100, 0, NULL);
    check_int(space_stats_of(space).live, 1);
    check(ptr != late);
    end_pool(pool);
}

/* ---- threads ------------------------------------------------------------------------------ */

struct worker {
    gmsfs_graph_pool_t *pool;
    gmsfs_graph_space_t *space;
    void *stream;
    int wrong;
};

/* Allocations of this thread's stream lie in this thread's space. */
static void *allocate_much(void *context)
{
    struct worker *worker = context;
    struct gmsfs_graph_space_stats stats = {0};
    unsigned char *ptrs[8];

    worker->wrong |= gmsfs_graph_select(worker->space, worker->stream) != 0;
    worker->wrong |= gmsfs_graph_space_get_stats(worker->space, &stats) != 0;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < 8; i++) {
            ptrs[i] = gmsfs_graph_alloc(i % 2 ? 700 : (intptr_t)CHUNK / 2, 0, worker->stream);
            worker->wrong |= !ptrs[i] || ptrs[i] < (unsigned char *)stats.base ||
                             ptrs[i] >= (unsigned char *)stats.base + ROOM;
        }
        for (int i = 0; i < 8; i++)
            gmsfs_graph_dealloc(ptrs[i], 1, 0, worker->stream);
    }
    worker->wrong |= gmsfs_graph_deselect(worker->pool, worker->stream) != 0;
    return NULL;
}

TAP_TEST(threads_that_capture_on_different_streams_do_not_collide)
{
    auto_pool *pool = fresh_awake_pool();
    struct worker workers[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){pool, new_space(pool, 0), STREAM(64 + i), 0};
        require(pthread_create(threads + i, NULL, allocate_much, workers + i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_int(workers[i].wrong, 0);
    }
    check_int(stats_of(pool).live, 0);
    check_int(stats_of(pool).selected, 0);
    check_int(stats_of(pool).physical_bytes, 3 * CHUNK);
}

static void *use_until_null(void *context)
{
    struct worker *worker = context;
    void *ptr;

    while ((ptr = gmsfs_graph_alloc(700, 0, worker->stream)))
        gmsfs_graph_dealloc(ptr, 700, 0, worker->stream);
    worker->wrong |= gmsfs_graph_alloc_error() != -ENOENT;
    return NULL;
}

TAP_TEST(pool_may_be_closed_while_threads_use_the_pair)
{
    for (int round = 0; round < 10; round++) {
        gmsfs_graph_pool_t *pool = fresh_awake_pool();
        struct worker workers[THREADS];
        pthread_t threads[THREADS];

        for (int i = 0; i < THREADS; i++) {
            workers[i] = (struct worker){pool, new_space(pool, 0), STREAM(64 + i), 0};
            check_int(gmsfs_graph_select(workers[i].space, workers[i].stream), 0);
        }
        for (int i = 0; i < THREADS; i++)
            require(pthread_create(threads + i, NULL, use_until_null, workers + i) == 0);
        usleep(2000);
        gmsfs_graph_close(pool);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            check_int(workers[i].wrong, 0);
        }
    }
    remove_store();
}

/* ---- fork --------------------------------------------------------------------------------- */

static int child_is_refused(gmsfs_graph_pool_t *pool, gmsfs_graph_space_t *space, void *ptr)
{
    struct gmsfs_graph_stats stats;
    gmsfs_graph_space_t *made;
    void *other = NULL;

    if (gmsfs_graph_alloc(1, 0, NULL) || gmsfs_graph_alloc_error() != -ENOENT)
        return 1;
    gmsfs_graph_dealloc(ptr, 1, 0, NULL);
    if (gmsfs_graph_sleep(pool, 0) != -ECHILD || gmsfs_graph_wake(pool, 0) != -ECHILD ||
        gmsfs_graph_shrink(pool, NULL) != -ECHILD || gmsfs_graph_grow(pool, 1) != -ECHILD ||
        gmsfs_graph_space_new(pool, 1, 0, &made) != -ECHILD ||
        gmsfs_graph_space_alloc(space, 1, &other) != -ECHILD ||
        gmsfs_graph_space_dealloc(space, ptr) != -ECHILD ||
        gmsfs_graph_space_free(space) != -ECHILD || gmsfs_graph_select(space, NULL) != -ECHILD ||
        gmsfs_graph_deselect(pool, NULL) != -ECHILD ||
        gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER) != -ECHILD ||
        gmsfs_graph_leave(pool, NULL) != -ECHILD || gmsfs_graph_get_stats(pool, &stats) != -ECHILD)
        return 2;
    if (rights_at(ptr)[0] || count_memory())
        return 3;
    gmsfs_graph_close(pool);
    return 0;
}

TAP_TEST(child_after_fork_is_refused_and_harms_nothing)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *ptr;
    int status = -1;
    pid_t pid;

    check_int(gmsfs_graph_select(space, NULL), 0);
    ptr = gmsfs_graph_alloc((intptr_t)CHUNK, 0, NULL);
    require(ptr != NULL);
    ptr[0] = 3;
    pid = fork();
    if (pid == 0)
        _exit(child_is_refused(pool, space, ptr));
    check_int(waitpid(pid, &status, 0), pid);
    check_int(WEXITSTATUS(status), 0);
    check(WIFEXITED(status));
    check_int(ptr[0], 3);
    check_str(read_line("state"), "RW");
    check_int(stats_of(pool).live, 1);
}

static void *fork_meanwhile(void *context)
{
    struct worker *worker = context;
    int status;

    for (int i = 0; i < 30; i++) {
        pid_t pid = fork();

        if (pid == 0)
            _exit(child_is_refused(worker->pool, worker->space, NULL));
        worker->wrong |= waitpid(pid, &status, 0) != pid || status != 0;
    }
    return NULL;
}

TAP_TEST(fork_in_the_midst_of_allocations_leaves_a_child_that_works)
{
    auto_pool *pool = fresh_awake_pool();
    struct worker workers[2];
    pthread_t threads[2];

    workers[0] = (struct worker){pool, new_space(pool, 0), STREAM(64), 0};
    workers[1] = workers[0];
    require(pthread_create(threads, NULL, allocate_much, workers) == 0);
    require(pthread_create(threads + 1, NULL, fork_meanwhile, workers + 1) == 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        check_int(workers[i].wrong, 0);
    }
}

/* ---- the guard, of threads (test_graph_cuda has devices) ------------------------------------ */

struct launcher {
    gmsfs_graph_pool_t *pool;
    unsigned *counter;
    int result;
};

static void *launch_many(void *context)
{
    struct launcher *launcher = context;

    for (int i = 0; i < 2000 && !launcher->result; i++) {
        launcher->result = gmsfs_graph_enter(launcher->pool, NULL, GMSFS_GRAPH_ORDER);
        ++*launcher->counter; /* under the guard's lock only */
        if (!launcher->result)
            launcher->result = gmsfs_graph_leave(launcher->pool, NULL);
    }
    return NULL;
}

TAP_TEST(guard_lets_threads_launch_one_after_the_other)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    struct launcher launchers[THREADS];
    pthread_t threads[THREADS];
    unsigned counter = 0;

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;

    for (int i = 0; i < THREADS; i++) {
        launchers[i] = (struct launcher){pool, &counter, 0};
        require(pthread_create(threads + i, NULL, launch_many, launchers + i) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        check_int(launchers[i].result, 0);
    }
    check_int(counter, THREADS * 2000);
out:
    end_pool(pool);
}

static void *enter_refusing(void *context)
{
    struct launcher *launcher = context;

    launcher->result = gmsfs_graph_enter(launcher->pool, NULL, GMSFS_GRAPH_REFUSE);
    return NULL;
}

static int try_in_a_thread(gmsfs_graph_pool_t *pool)
{
    struct launcher launcher = {.pool = pool};
    pthread_t thread;

    require(pthread_create(&thread, NULL, enter_refusing, &launcher) == 0);
    pthread_join(thread, NULL);
    return launcher.result;
}

TAP_TEST(guard_refuses_a_second_launch_and_what_would_unmap)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_REFUSE), 0);
    check_int(try_in_a_thread(pool), -EBUSY);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), -EDEADLK);
    check_int(gmsfs_graph_sleep(pool, 0), -EDEADLK);
    check_int(gmsfs_graph_shrink(pool, NULL), -EDEADLK);
    check_int(gmsfs_graph_space_free(space), -EDEADLK);
    check_int(gmsfs_graph_leave(pool, NULL), 0);
    check_int(gmsfs_graph_leave(pool, NULL), -EPERM);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_REFUSE), -ENOLCK);
out:
    end_pool(pool);
}

static void *sleep_in_a_thread(void *context)
{
    struct launcher *launcher = context;

    launcher->result = gmsfs_graph_sleep(launcher->pool, 0);
    return NULL;
}

TAP_TEST(sleep_waits_for_a_thread_that_launches)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    struct launcher launcher = {.pool = pool, .result = 1};
    unsigned char *ptr = take(new_space(pool, 0), 1);
    pthread_t thread;

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), 0);
    require(pthread_create(&thread, NULL, sleep_in_a_thread, &launcher) == 0);
    usleep(50000);
    ptr[0] = 1;
    check_str(read_line("state"), "RW");
    check_int(gmsfs_graph_leave(pool, NULL), 0);
    pthread_join(thread, NULL);
    check_int(launcher.result, 0);
    check_str(read_line("state"), "EMPTY");
out:
    end_pool(pool);
}

TAP_TEST(thread_that_launches_may_allocate_while_a_sleep_waits_for_it)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    struct launcher launcher = {.pool = pool, .result = 1};
    pthread_t thread;

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), 0);
    require(pthread_create(&thread, NULL, sleep_in_a_thread, &launcher) == 0);
    usleep(50000);
    alarm(WAIT_MS / 1000); /* it would wait for the sleep, and the sleep for this thread */
    take(space, CHUNK);
    alarm(0);
    check_int(gmsfs_graph_leave(pool, NULL), 0);
    pthread_join(thread, NULL);
    check_int(launcher.result, 0);
out:
    end_pool(pool);
}

static void *enter_and_leave(void *context)
{
    struct launcher *launcher = context;

    launcher->result = gmsfs_graph_enter(launcher->pool, NULL, GMSFS_GRAPH_ORDER);
    if (!launcher->result)
        launcher->result = gmsfs_graph_leave(launcher->pool, NULL);
    return NULL;
}

static void *enter_and_end(void *context)
{
    struct launcher *launcher = context;

    launcher->result = gmsfs_graph_enter(launcher->pool, NULL, GMSFS_GRAPH_ORDER);
    return NULL;
}

TAP_TEST(thread_that_ends_without_leaving_has_left)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    struct launcher launcher = {.pool = pool, .result = 1};
    pthread_t thread;

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;
    require(pthread_create(&thread, NULL, enter_and_end, &launcher) == 0);
    pthread_join(thread, NULL);
    check_int(launcher.result, 0);
    check_int(gmsfs_graph_leave(pool, NULL), -EPERM);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_REFUSE), 0);
    check_int(gmsfs_graph_leave(pool, NULL), 0);
    require(pthread_create(&thread, NULL, enter_and_end, &launcher) == 0);
    pthread_join(thread, NULL);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
out:
    end_pool(pool);
}

TAP_TEST(child_of_fork_does_not_wait_for_threads_that_waited_to_launch)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    struct launcher launcher = {.pool = pool, .result = 1};
    int status = -1;
    pthread_t thread;
    pid_t pid;

    if (!is_host(gmsfs_graph_handle(pool)))
        goto out;
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), 0);
    require(pthread_create(&thread, NULL, enter_and_leave, &launcher) == 0);
    usleep(50000);
    pid = fork();
    if (pid == 0) {
        alarm(WAIT_MS / 1000);
        gmsfs_graph_close(pool);
        _exit(0);
    }
    check_int(waitpid(pid, &status, 0), pid);
    check_int(status, 0);
    check_int(gmsfs_graph_leave(pool, NULL), 0);
    pthread_join(thread, NULL);
    check_int(launcher.result, 0);
out:
    end_pool(pool);
}
