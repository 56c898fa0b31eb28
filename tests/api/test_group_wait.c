/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores as one: waiters for their locks, and readers that sleep meanwhile. */
#include "group_fixture.h"

/* ---- waiting ------------------------------------------------------------------------------ */

TAP_TEST(a_group_of_readers_holds_nothing_while_it_waits)
{
    auto_engine engine = engine_open();
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
}

/* A reader with a lock would exclude the loader whose commit it waits for. */
TAP_TEST(readers_that_wait_for_a_half_committed_group_let_it_be_healed)
{
    auto_engine engine = engine_open();
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
}

TAP_TEST(who_waits_for_a_loader_reads_what_it_commits_also_when_it_stays)
{
    auto_engine engine = engine_open();
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
}

/* Has a healer wait behind another one, which then stays as a reader, or leaves. */
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

/* Each comes before the one before it leaves, and has time enough to get in while the healer looks
 * around. Holding one off clears the healer's way. */
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
    auto_engine engine = engine_open();
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
}

TAP_TEST(a_child_of_fork_is_told_and_leaves_the_parents_locks)
{
    auto_engine engine = engine_open();
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
}

/* ---- sleeping readers --------------------------------------------------------------------- */

/* The locks that RW_OR_RO takes and releases on its way leave no trace in the handle. */
TAP_TEST(sleepers_wake_after_a_group_that_was_tried_in_vain)
{
    auto_engine engine = engine_open();
    auto_free struct gmsfs_mapping *list = NULL;
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
}
