/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores as one: their locks and their commits. */
#include "group_fixture.h"

/* ---- the plain course --------------------------------------------------------------------- */

TAP_TEST(all_locks_are_taken_and_all_commits_bear_one_id)
{
    auto_engine engine = engine_open();
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
    auto_engine engine = engine_open(), twin = engine_open();
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
}

TAP_TEST(a_handle_that_is_connected_is_ebusy_and_keeps_its_lock)
{
    auto_engine engine = engine_open();
    size_t last = store_count - 1;

    check_int(gmsfs_connect(engine.handles[last], GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), -EBUSY);
    check_int(gmsfs_granted_lock(engine.handles[0]), GMSFS_MODE_NONE);
    check_int(gmsfs_granted_lock(engine.handles[last]), GMSFS_MODE_RW);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ENOLCK);
    check_int(gmsfs_granted_lock(engine.handles[last]), GMSFS_MODE_RW);
}

TAP_TEST(one_store_is_a_group_whatever_its_commit_says)
{
    auto_engine engine = engine_open();
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
}

/* ---- all or nothing ----------------------------------------------------------------------- */

TAP_TEST(when_one_lock_is_not_free_none_is_kept)
{
    enum gmsfs_mode modes[] = {GMSFS_MODE_RW, GMSFS_MODE_RO, GMSFS_MODE_RW_OR_RO};
    auto_engine engine = engine_open();

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
}

static void on_signal(int number)
{
    (void)number;
}

TAP_TEST(signals_do_not_shorten_the_time_for_all)
{
    struct sigaction act = {.sa_handler = on_signal}, old;
    struct itimerval often = {{0, 20000}, {0, 20000}}, never = {{0, 0}, {0, 0}};
    auto_engine engine = engine_open();
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
}

/* The session of a lock is ended from outside while it waits for the others. */
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
    end_session(stores[0].path, id);
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
    auto_engine engine = engine_open(), other = engine_open();

    empty_group();
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
    check_int(engine_connect(&other, GMSFS_MODE_RW_OR_RO, 0), -EAGAIN);
    engine_fill(&engine, 4);
    check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(engine_connect(&other, GMSFS_MODE_RW_OR_RO, 0), 0);
    check(engine_has(&other, GMSFS_MODE_RO));
}

/* Takes each of the stores, in turn, out of the group. */
TAP_TEST(ro_refuses_a_mix_and_rw_or_ro_becomes_the_writer)
{
    static const uint8_t foreign[16] = "another load....";
    auto_engine engine = engine_open();

    for (size_t at = 0; at < store_count; at++) {
        publish_group(1, NULL);
        publish_alone(at, 2, at % 2 ? foreign : NULL);
        check_int(engine_connect(&engine, GMSFS_MODE_RO, WAIT_MS), -ESTALE);
        check(engine_has(&engine, GMSFS_MODE_NONE));
        check(all_free());
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, 0), 0);
        check(engine_has(&engine, GMSFS_MODE_RW));
        engine_disconnect(&engine);
        /* Looking has harmed no store: the commits are still there. */
        check_int(gmsfs_connect(engine.handles[at], GMSFS_MODE_RO, 0), 0);
        check_fill(engine.handles[at], 2);
        check_int(gmsfs_disconnect(engine.handles[at]), 0);
    }
}

TAP_TEST(stores_committed_without_a_group_id_are_a_mix)
{
    auto_engine engine = engine_open();

    for (size_t i = 0; i < store_count; i++)
        publish_alone(i, 1, NULL);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), -ESTALE);
    check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, 0), 0);
    check(engine_has(&engine, GMSFS_MODE_RW));
}

TAP_TEST(a_crash_between_the_first_commits_heals_itself)
{
    auto_engine engine = engine_open();

    for (size_t commits = 1; commits < store_count; commits++) {
        empty_group();
        die_after(commits, 5);
        /* A part is not committed yet, and might be. */
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
}

TAP_TEST(a_crash_between_commits_over_a_whole_group_is_a_mix_and_heals_itself)
{
    auto_engine engine = engine_open();

    for (size_t commits = 1; commits < store_count; commits++) {
        for (size_t i = 0; i < store_count; i++) /* no part of it may be rolled back to */
            publish_alone(i, 1, (const uint8_t *)"one whole group.");
        die_after(commits, 2);
        /* The writer replaced the layouts, so uncommitted ones are as before. */
        check_int(engine_connect(&engine, GMSFS_MODE_RO, WAIT_MS), -ESTALE);
        check_int(engine_connect(&engine, GMSFS_MODE_RW_OR_RO, WAIT_MS), 0);
        check(engine_has(&engine, GMSFS_MODE_RW));
        engine_fill(&engine, 3);
        check_int(gmsfs_commit_group(engine.handles, store_count, GMSFS_COMMIT_STAY, NULL), 0);
        for (size_t i = 0; i < store_count; i++)
            check_fill(engine.handles[i], 3);
        engine_disconnect(&engine);
    }
}

/* ---- commits that fail -------------------------------------------------------------------- */

/* Makes an entry that points outside of its allocation, until `mend`. */
static void spoil(gmsfs_t *writer, bool mend)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;

    check_int(gmsfs_list_handles(writer, NULL, &list, &count), 0);
    require(count == 1);
    check_int(
        gmsfs_metadata_put(writer, &(struct gmsfs_metadata){.key = "k",
                                                            .value = "v",
                                                            .value_bytes = 1,
                                                            .slot = list->slot,
                                                            .offset = mend ? 0 : UINT64_MAX / 2}),
        0);
    free(list);
}

TAP_TEST(a_layout_that_any_of_the_stores_refuses_is_found_before_the_first_commit)
{
    auto_engine engine = engine_open();
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
}

/* The rest of a group that failed half-way still has its lock. */
TAP_TEST(the_rest_of_a_group_can_be_committed_with_its_id)
{
    static const uint8_t id[16] = "begun by another";
    auto_engine engine = engine_open();

    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 2);
    for (size_t i = store_count; i-- > 1;)
        check_int(gmsfs_commit(engine.handles[i], GMSFS_COMMIT_GROUP, id), 0);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ENOLCK);
    check_int(gmsfs_granted_lock(engine.handles[0]), GMSFS_MODE_RW);
    check_int(gmsfs_commit(engine.handles[0], GMSFS_COMMIT_GROUP, id), 0);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0);
    check_fill(engine.handles[0], 2);
}

TAP_TEST(a_session_that_was_revoked_is_found_before_the_first_commit)
{
    auto_engine engine = engine_open();
    struct gmsfs_info info;
    uint8_t id[16];

    publish_group(1, id);
    check_int(engine_connect(&engine, GMSFS_MODE_RW, WAIT_MS), 0);
    engine_fill(&engine, 2);
    check_int(gmsfs_get_info(engine.handles[0], &info), 0);
    end_session(stores[0].path, info.session);
    check_int(gmsfs_commit_group(engine.handles, store_count, 0, NULL), -ESTALE);
    check_int(gmsfs_is_connected(engine.handles[0]), 0);
    check_int(gmsfs_is_connected(engine.handles[1]), 1);
    engine_disconnect(&engine);
    check_int(engine_connect(&engine, GMSFS_MODE_RO, 0), 0); /* rolled back, so whole */
    check_int(gmsfs_get_info(engine.handles[1], &info), 0);
    check_bytes(info.group, 16, id, 16);
}
