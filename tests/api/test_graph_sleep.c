/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools that sleep and wake: the memory that they free or keep, where the next wake finds it,
 * and the waits and refusals of a wake. */
#include "graph_fixture.h"

TAP_TEST(sleep_gives_everything_back_and_wakes_at_the_same_addresses)
{
    uint64_t before;
    auto_pool *pool = fresh_pool();
    gmsfs_graph_space_t *eager;
    unsigned char *a, *b, *buffer;
    struct gmsfs_graph_stats stats;

    before = device_free_bytes();
    require(gmsfs_graph_wake(pool, WAIT_MS) == 0);
    a = take(new_space(pool, 0), 3 * CHUNK);
    b = take(new_space(pool, 0), CHUNK);
    eager = new_space(pool, GMSFS_GRAPH_EAGER);
    buffer = take(eager, CHUNK);
    for (int round = 0; round < 3; round++) {
        check_int(gmsfs_graph_sleep(pool, 0), 0);
        check_int(gmsfs_graph_sleep(pool, 0), 0);
        check_str(read_line("state"), "EMPTY");
        wait_for_free(before);
        check_str(rights_at(a), "---p");
        check_str(rights_at(buffer), "---p");
        stats = stats_of(pool);
        check_int(stats.awake, 0);
        check_int(stats.physical_bytes, 0);
        check_int(stats.mapped_bytes, 0);
        check_int(stats.needed_bytes, 4 * CHUNK);
        check_int(stats.live, 3);
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
        check_int(gmsfs_graph_wake(pool, WAIT_MS), -EBUSY);
        a[7] = (unsigned char)(20 + round);
        buffer[7] = 1;
        check_int(b[7], 20 + round);
        check_int(stats_of(pool).physical_bytes, 4 * CHUNK);
        check_int(stats_of(pool).mapped_bytes, 5 * CHUNK);
    }
    check_int(gmsfs_graph_space_dealloc(eager, buffer), 0);
}

TAP_TEST(asleep_nothing_is_allocated_and_spaces_may_come_and_go)
{
    auto_pool *pool = fresh_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0), *other = new_space(pool, 0);
    uint64_t freed;
    void *ptr = NULL;

    check_int(gmsfs_graph_space_alloc(space, 1, &ptr), -ENOLCK);
    check_int(gmsfs_graph_shrink(pool, &freed), -ENOLCK);
    check_int(gmsfs_graph_enter(pool, NULL, GMSFS_GRAPH_ORDER), -ENOLCK);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    ptr = take(space, 2 * CHUNK);
    take(other, CHUNK);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_space_dealloc(space, ptr), 0);
    check_int(gmsfs_graph_space_free(space), 0);
    check_int(stats_of(pool).needed_bytes, CHUNK);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(stats_of(pool).physical_bytes, CHUNK);
}

TAP_TEST(kept_chunks_serve_the_next_pool)
{
    gmsfs_graph_pool_t *first = fresh_awake_pool(), *second = open_pool(CHUNK);
    unsigned char *a = take(new_space(first, 0), 4 * CHUNK), *b;
    uint64_t freed = 0;

    a[CHUNK + 3] = 41;
    check_int(gmsfs_graph_sleep(first, GMSFS_GRAPH_KEEP), 0);
    check_str(read_line("state"), "COMMITTED");
    check_str(read_line("metadata/gmsfs.graph"), "");
    check_int(gmsfs_graph_wake(second, WAIT_MS), 0);
    check_int(stats_of(second).physical_bytes, 4 * CHUNK);
    b = take(new_space(second, 0), 2 * CHUNK);
    check_int(b[CHUNK + 3], 41);
    check_int(stats_of(second).physical_bytes, 4 * CHUNK);
    check_int(gmsfs_graph_sleep(second, GMSFS_GRAPH_KEEP), 0);
    check_int(gmsfs_graph_wake(first, WAIT_MS), 0);
    check_int(a[CHUNK + 3], 41);
    check_int(gmsfs_graph_sleep(first, GMSFS_GRAPH_KEEP), 0);
    check_int(gmsfs_graph_wake(second, WAIT_MS), 0);
    check_int(gmsfs_graph_shrink(second, &freed), 0);
    check_int(freed, 2 * CHUNK);
    check_int(gmsfs_graph_sleep(second, GMSFS_GRAPH_KEEP), 0);
    check_int(gmsfs_graph_wake(first, WAIT_MS), 0);
    a[4 * CHUNK - 1] = 1;
    check_int(stats_of(first).physical_bytes, 4 * CHUNK);
    gmsfs_graph_close(second);
    end_pool(first);
}

TAP_TEST(chunks_that_were_given_up_meanwhile_are_made_anew)
{
    auto_pool *pool = fresh_awake_pool();
    unsigned char *a = take(new_space(pool, 0), 2 * CHUNK);
    char path[700];
    int fd;

    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    snprintf(path, sizeof path, "%s/residency", graph_path());
    fd = open(path, O_WRONLY | O_CLOEXEC);
    require(fd >= 0);
    check_int(write(fd, "none", 4), 4);
    close(fd);
    check_str(read_line("residency"), "none");
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(stats_of(pool).physical_bytes, 2 * CHUNK);
    a[2 * CHUNK - 1] = 1;
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    check_str(read_line("residency"), "device");
}

TAP_TEST(sleep_without_keep_frees_what_was_kept_before)
{
    auto_pool *pool = fresh_pool();
    uint64_t before = device_free_bytes();

    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    take(new_space(pool, 0), 2 * CHUNK);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    wait_for_free(before - 2 * CHUNK);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_str(read_line("state"), "EMPTY");
    wait_for_free(before);
}

TAP_TEST(pool_whose_store_was_removed_wakes_on_a_new_one)
{
    auto_pool *pool = fresh_pool();
    uint64_t before = device_free_bytes();
    struct stat status;
    unsigned char *a;

    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    a = take(new_space(pool, 0), 2 * CHUNK);
    for (unsigned flags = 0; flags <= GMSFS_GRAPH_KEEP; flags++) {
        check_int(gmsfs_graph_sleep(pool, flags), 0);
        remove_store(); /* with its contents */
        wait_for_free(before);
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
        require(stat(graph_path(), &status) == 0);
        check_int(status.st_mode & 07777, 0700);
        check_int(stats_of(pool).physical_bytes, 2 * CHUNK);
        a[2 * CHUNK - 1] = 1;
    }
}

TAP_TEST(wake_over_chunks_of_another_size_is_refused_and_leaves_them)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool(), *other = open_pool(2 * CHUNK);

    take(new_space(pool, 0), 2 * CHUNK);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    check_int(gmsfs_graph_wake(other, WAIT_MS), -EINVAL);
    check_str(read_line("state"), "COMMITTED");
    check_int(stats_of(other).awake, 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(stats_of(pool).physical_bytes, 2 * CHUNK);
    gmsfs_graph_close(other);
    end_pool(pool);
}

TAP_TEST(wake_over_what_is_no_chunk_is_refused_and_leaves_it)
{
    auto_pool *pool = fresh_pool();
    gmsfs_t *writer = NULL;

    require(gmsfs_open(graph_path(), &writer) == 0);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_allocate_handle(writer, CHUNK, "weights", NULL, NULL), 0);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), -EINVAL);
    check_str(read_line("state"), "COMMITTED");
}

TAP_TEST(wake_waits_as_long_as_it_is_told_and_the_holder_hears_of_it)
{
    gmsfs_graph_pool_t *holder = fresh_awake_pool(), *other = open_pool(CHUNK);
    struct gmsfs_info info = {0};
    int answers;
    pid_t pid;

    check_int(gmsfs_graph_wake(other, 0), -EAGAIN);
    check_int(gmsfs_graph_wake(other, 50), -ETIMEDOUT);
    check_int(stats_of(holder).waiters, 0);
    pid = start_self("wake", &answers);
    for (int i = 0; i < WAIT_MS && stats_of(holder).waiters == 0; i++)
        usleep(1000);
    check_int(stats_of(holder).waiters, 1);
    check_int(gmsfs_graph_sleep(holder, 0), 0);
    check_int(stats_of(holder).waiters, 0);
    check_int(waitpid(pid, NULL, 0), pid);
    close(answers);
    check_int(gmsfs_get_info(gmsfs_graph_handle(holder), &info), 0);
    gmsfs_graph_close(other);
    end_pool(holder);
}

TAP_TEST(reader_of_kept_chunks_holds_a_wake_off)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_t *reader = NULL;

    take(new_space(pool, 0), CHUNK);
    check_int(gmsfs_graph_sleep(pool, GMSFS_GRAPH_KEEP), 0);
    require(gmsfs_open(graph_path(), &reader) == 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_graph_wake(pool, 0), -EAGAIN);
    check_int(gmsfs_graph_wake(pool, 50), -ETIMEDOUT);
    gmsfs_close(reader);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
}

TAP_TEST(wake_that_lacks_memory_is_asleep_and_what_was_kept_stays)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool(), *small = open_pool(CHUNK);
    uint64_t room = device_free_bytes() - 2 * CHUNK;
    gmsfs_t *other;

    take(new_space(pool, 0), 6 * CHUNK);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_wake(small, WAIT_MS), 0);
    take(new_space(small, 0), 2 * CHUNK);
    check_int(gmsfs_graph_sleep(small, GMSFS_GRAPH_KEEP), 0);
    wait_for_free(room);
    other = open_fresh_writer();
    check_int(gmsfs_allocate_handle(other, room - 3 * CHUNK, "t", NULL, NULL), 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), -ENOMEM);
    check_str(read_line("state"), "COMMITTED");
    check_int(stats_of(pool).mapped_bytes, 0);
    check_int(device_free_bytes(), 3 * CHUNK);
    gmsfs_close(other);
    wait_for_free(room);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    check_int(stats_of(pool).physical_bytes, 6 * CHUNK);
    gmsfs_graph_close(small);
    end_pool(pool);
}

TAP_TEST(revoked_pool_says_so_and_sleep_puts_it_in_order)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *a = take(space, CHUNK);
    struct gmsfs_info info = {0};
    void *ptr = NULL;

    for (int keep = 0; keep < 2; keep++) {
        check_int(gmsfs_get_info(gmsfs_graph_handle(pool), &info), 0);
        end_session(graph_path(), info.session);
        check_int(gmsfs_graph_space_alloc(space, 4 * CHUNK, &ptr), -ESTALE);
        check_int(gmsfs_graph_sleep(pool, keep ? GMSFS_GRAPH_KEEP : 0), keep ? -ESTALE : 0);
        check_int(stats_of(pool).awake, 0);
        check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
        a[0] = 1;
    }
}

/* The deed of start_self("wake"): it waits for the store, and has it for a moment. */
TAP_TEST(deed_of_another_process)
{
    const char *deed = getenv("GMSFS_GRAPH_DEED");
    gmsfs_graph_pool_t *pool;

    if (!deed)
        return;
    pool = open_pool(CHUNK);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    gmsfs_graph_close(pool);
}
