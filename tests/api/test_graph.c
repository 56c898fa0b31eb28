/* SPDX-License-Identifier: Apache-2.0 */
/* Graph pools: spaces over the same chunks, growing and shrinking. test_graph_sleep.c has sleep and
 * wake. */
#include "graph_fixture.h"

/* ---- the store ---------------------------------------------------------------------------- */

TAP_TEST(store_is_made_for_its_user_alone)
{
    auto_pool *pool = fresh_pool();
    struct stat status;

    require(stat(graph_path(), &status) == 0);
    check_int(status.st_mode & 07777, 0700);
    check_str(read_line("state"), "EMPTY");
}

TAP_TEST(no_directory_is_made_outside_of_a_mount)
{
    gmsfs_graph_pool_t *pool = NULL;
    char directory[] = "/tmp/gmsfs-graph-XXXXXX", path[64];

    require(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/graph", directory);
    check_int(gmsfs_graph_open(path, 0, &pool), -ENOTTY);
    check(access(path, F_OK) < 0);
    check_int(rmdir(directory), 0);
    check(pool == NULL);
}

TAP_TEST(chunk_is_32_mib_unless_told_and_a_multiple_of_the_granularity)
{
    gmsfs_graph_pool_t *pool = fresh_pool(), *other = NULL;

    check_int(gmsfs_graph_open(graph_path(), CHUNK + 1, &other), -EINVAL);
    check_int(stats_of(pool).chunk_bytes, CHUNK);
    gmsfs_graph_close(pool);
    pool = open_pool(0);
    check_int(stats_of(pool).chunk_bytes, GMSFS_GRAPH_CHUNK_BYTES);
    end_pool(pool);
}

TAP_TEST(a_pool_that_cannot_be_leaves_no_store_and_none_that_was_there_is_removed)
{
    gmsfs_graph_pool_t *pool = fresh_pool(), *other = NULL;

    end_pool(pool);
    check(access(graph_path(), F_OK) < 0);
    check_int(gmsfs_graph_open(graph_path(), CHUNK + 1, &other), -EINVAL);
    check(access(graph_path(), F_OK) < 0);
    require(mkdir(graph_path(), 0700) == 0);
    check_int(gmsfs_graph_open(graph_path(), CHUNK + 1, &other), -EINVAL);
    check(access(graph_path(), F_OK) == 0);
    check_int(rmdir(graph_path()), 0);
}

TAP_TEST(awake_pool_has_the_lock_and_says_what_it_is)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);

    take(space, CHUNK + 1);
    check_str(read_line("state"), "RW");
    check_str(read_line("metadata/gmsfs.graph"), "{\"chunk_bytes\":4194304,\"spaces\":1,"
                                                 "\"address_bytes\":268435456,"
                                                 "\"high_bytes\":8388608}");
    check_int(stats_of(pool).awake, 1);
}

/* ---- spaces ------------------------------------------------------------------------------- */

TAP_TEST(spaces_alias_the_same_chunks)
{
    auto_pool *pool = fresh_awake_pool();
    unsigned char *a = take(new_space(pool, 0), 3 * CHUNK), *b = take(new_space(pool, 0), CHUNK);
    struct gmsfs_graph_stats stats;

    check(a != b);
    a[5] = 17;
    check_int(b[5], 17);
    b[CHUNK - 1] = 18;
    check_int(a[CHUNK - 1], 18);
    stats = stats_of(pool);
    check_int(stats.physical_bytes, 3 * CHUNK);
    check_int(stats.needed_bytes, 3 * CHUNK);
    check_int(stats.mapped_bytes, 4 * CHUNK);
    check_int(stats.address_bytes, 2 * ROOM);
    check_int(stats.spaces, 2);
    check_int(stats.live, 2);
    check_int(stats.live_bytes, 4 * CHUNK);
}

TAP_TEST(space_maps_what_it_reached_and_grows_without_the_others)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *small = new_space(pool, 0), *large = new_space(pool, 0);
    unsigned char *a = take(small, 1), *b = take(large, 1);

    check_str(rights_at(a + CHUNK - 1), "rw-s");
    check_str(rights_at(a + CHUNK), "---p");
    take(large, 5 * CHUNK);
    check_str(rights_at(b + 5 * CHUNK), "rw-s");
    check_str(rights_at(a + CHUNK), "---p");
    check_int(space_stats_of(small).reached_bytes, CHUNK);
    check_int(space_stats_of(large).reached_bytes, 6 * CHUNK);
    take(small, 2 * CHUNK);
    b[2 * CHUNK] = 9;
    check_int(a[2 * CHUNK], 9);
    check_int(stats_of(pool).physical_bytes, 6 * CHUNK);
}

TAP_TEST(segments_take_the_lowest_gap_and_begin_at_multiples_of_512)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *a = take(space, 100), *b = take(space, 2000), *c = take(space, 1);

    check_int(b - a, 512);
    check_int(c - b, 2048);
    check_int(gmsfs_graph_space_dealloc(space, b), 0);
    check_int(gmsfs_graph_space_dealloc(space, b), -ENOENT);
    check_int(gmsfs_graph_space_dealloc(space, c + 1), -ENOENT);
    check(take(space, 512) == b);
}

TAP_TEST(eager_spaces_share_their_chunks_with_nobody)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *eager = new_space(pool, GMSFS_GRAPH_EAGER);
    unsigned char *shape = take(new_space(pool, 0), 2 * CHUNK), *input, *other;
    struct gmsfs_graph_stats stats;

    input = take(eager, CHUNK);
    other = take(new_space(pool, GMSFS_GRAPH_EAGER), 2 * CHUNK);
    memset(input, 1, CHUNK);
    memset(other, 2, 2 * CHUNK);
    memset(shape, 3, 2 * CHUNK);
    check_int(input[0] + input[CHUNK - 1], 2);
    check_int(other[0] + other[2 * CHUNK - 1], 4);
    stats = stats_of(pool);
    check_int(stats.physical_bytes, 5 * CHUNK);
    check_int(stats.eager_bytes, 3 * CHUNK);
    check_int(space_stats_of(eager).eager, 1);
}

TAP_TEST(memory_of_a_freed_eager_space_serves_the_others)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *eager = new_space(pool, GMSFS_GRAPH_EAGER), *shape = new_space(pool, 0);
    unsigned char *buffer = take(eager, 3 * CHUNK);

    check_int(gmsfs_graph_space_dealloc(eager, buffer), 0);
    check_int(gmsfs_graph_space_free(eager), 0);
    check_int(stats_of(pool).physical_bytes, 3 * CHUNK);
    check_int(stats_of(pool).needed_bytes, 0);
    take(shape, CHUNK);
    take(new_space(pool, GMSFS_GRAPH_EAGER), 2 * CHUNK);
    check_int(stats_of(pool).physical_bytes, 3 * CHUNK);
}

/* ---- freeing, shrinking, growing ------------------------------------------------------------ */

TAP_TEST(space_with_live_segments_is_busy)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    unsigned char *ptr = take(space, 10);

    check_int(gmsfs_graph_space_free(space), -EBUSY);
    ptr[0] = 1;
    check_int(gmsfs_graph_space_dealloc(space, ptr), 0);
    check_int(gmsfs_graph_select(space, NULL), 0);
    check_int(gmsfs_graph_space_free(space), -EBUSY);
    check_int(gmsfs_graph_deselect(pool, NULL), 0);
    check_int(gmsfs_graph_space_free(space), 0);
    check_int(stats_of(pool).spaces, 0);
    check_int(stats_of(pool).address_bytes, 0);
    check_str(rights_at(ptr), "");
}

TAP_TEST(largest_shape_is_freed_its_memory_goes_back_and_a_larger_one_comes_later)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *large = new_space(pool, 0);
    uint64_t freed = 77, before = device_free_bytes();
    unsigned char *small = take(new_space(pool, 0), 2 * CHUNK), *gone = take(large, 9 * CHUNK);
    unsigned char *larger;

    small[CHUNK] = 5;
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(freed, 0);
    check_int(gmsfs_graph_space_dealloc(large, gone), 0);
    check_int(gmsfs_graph_space_free(large), 0);
    check_int(stats_of(pool).physical_bytes, 9 * CHUNK);
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(freed, 7 * CHUNK);
    wait_for_free(before - 2 * CHUNK);
    check_int(small[CHUNK], 5);
    larger = take(new_space(pool, 0), 11 * CHUNK);
    check_int(larger[CHUNK], 5);
    larger[11 * CHUNK - 1] = 6;
    check_int(stats_of(pool).physical_bytes, 11 * CHUNK);
    check_int(stats_of(pool).high_bytes, 11 * CHUNK);
}

TAP_TEST(spaces_find_the_memory_that_a_pool_has_grown_to)
{
    auto_pool *pool = fresh_awake_pool();
    uint64_t freed = 0;
    unsigned char *ptr;

    check_int(gmsfs_graph_grow(pool, 4 * CHUNK - 1), 0);
    check_int(gmsfs_graph_grow(pool, CHUNK), 0);
    check_int(stats_of(pool).physical_bytes, 4 * CHUNK);
    check_int(stats_of(pool).high_bytes, 4 * CHUNK);
    check_int(stats_of(pool).needed_bytes, 0);
    ptr = take(new_space(pool, 0), 2 * CHUNK);
    ptr[2 * CHUNK - 1] = 3;
    take(new_space(pool, GMSFS_GRAPH_EAGER), CHUNK);
    check_int(stats_of(pool).physical_bytes, 4 * CHUNK);
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(freed, CHUNK);
    check_int(ptr[2 * CHUNK - 1], 3);
}

TAP_TEST(pool_that_cannot_grow_stays_as_it_was)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();

    check_int(gmsfs_graph_grow(pool, UINT64_MAX), -ENOMEM);
    check_int(gmsfs_graph_grow(pool, device_free_bytes() + CHUNK), -ENOMEM);
    check_int(stats_of(pool).physical_bytes, 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(gmsfs_graph_grow(pool, CHUNK), -ENOLCK);
    check_int(gmsfs_graph_grow(NULL, CHUNK), -EINVAL);
    gmsfs_graph_close(pool);
}

TAP_TEST(shrinking_unmaps_behind_the_last_live_segment)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0), *eager = new_space(pool, GMSFS_GRAPH_EAGER);
    unsigned char *low = take(space, CHUNK), *high = take(space, 3 * CHUNK);
    unsigned char *kept = take(eager, CHUNK), *dropped = take(eager, CHUNK);
    uint64_t freed = 0;

    kept[0] = 7;
    check_int(gmsfs_graph_space_dealloc(space, high), 0);
    check_int(gmsfs_graph_space_dealloc(eager, dropped), 0);
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(freed, 4 * CHUNK);
    check_str(rights_at(high), "---p");
    check_str(rights_at(dropped), "---p");
    check_str(rights_at(low), "rw-s");
    check_int(kept[0], 7);
    check(take(space, 2 * CHUNK) == high);
    check_int(stats_of(pool).physical_bytes, 4 * CHUNK);
}

/* ---- refusals ------------------------------------------------------------------------------- */

TAP_TEST(full_device_leaves_nothing_half_done)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0), *huge = NULL, *eager;
    unsigned char *a = take(space, CHUNK);
    struct gmsfs_graph_stats before, after;
    uint64_t room = device_free_bytes();
    void *ptr = NULL;

    check_int(gmsfs_graph_space_new(pool, UINT64_C(1) << 40, 0, &huge), 0);
    require(gmsfs_graph_space_new(pool, UINT64_C(1) << 40, GMSFS_GRAPH_EAGER, &eager) == 0);
    take(eager, CHUNK);
    before = stats_of(pool);
    check_int(gmsfs_graph_space_alloc(huge, room + 2 * CHUNK, &ptr), -ENOMEM);
    check_int(gmsfs_graph_space_alloc(eager, room + 2 * CHUNK, &ptr), -ENOMEM);
    check(ptr == NULL);
    after = stats_of(pool);
    check_bytes(&after, sizeof after, &before, sizeof before);
    a[0] = 3;
    take(huge, CHUNK);
}

TAP_TEST(space_whose_addresses_are_used_up_says_so)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = NULL;
    void *ptr = NULL;

    check_int(gmsfs_graph_space_new(pool, CHUNK + 1, 0, &space), 0);
    check_int(space_stats_of(space).address_bytes, 2 * CHUNK);
    take(space, CHUNK);
    check_int(gmsfs_graph_space_alloc(space, CHUNK + 1, &ptr), -ENOSPC);
    check_int(gmsfs_graph_space_alloc(space, UINT64_MAX, &ptr), -ENOSPC);
    take(space, CHUNK);
    check_int(gmsfs_graph_space_new(pool, UINT64_MAX, 0, &space), -ENOMEM);
}

TAP_TEST(misuse_is_an_errno)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool(), *none = NULL;
    gmsfs_graph_space_t *space = new_space(pool, 0), *made = NULL;
    struct gmsfs_graph_stats stats;
    void *ptr = NULL;

    check_int(gmsfs_graph_open(NULL, 0, &none), -EINVAL);
    check_int(gmsfs_graph_open("", 0, &none), -EINVAL);
    check_int(gmsfs_graph_open(graph_path(), 0, NULL), -EINVAL);
    check_int(gmsfs_graph_wake(NULL, 0), -EINVAL);
    check_int(gmsfs_graph_sleep(pool, 2), -EINVAL);
    check_int(gmsfs_graph_space_new(pool, 0, 0, &made), -EINVAL);
    check_int(gmsfs_graph_space_new(pool, 1, 2, &made), -EINVAL);
    check_int(gmsfs_graph_space_new(pool, 1, 0, NULL), -EINVAL);
    check_int(gmsfs_graph_space_alloc(space, 0, &ptr), -EINVAL);
    check_int(gmsfs_graph_space_alloc(NULL, 1, &ptr), -EINVAL);
    check_int(gmsfs_graph_space_dealloc(space, NULL), -ENOENT);
    check_int(gmsfs_graph_space_free(NULL), 0);
    check_int(gmsfs_graph_get_stats(NULL, &stats), -EINVAL);
    check_int(gmsfs_graph_select(NULL, NULL), -EINVAL);
    check_int(gmsfs_graph_deselect(pool, NULL), -ENOENT);
    check_int(gmsfs_graph_enter(pool, NULL, 0), -EINVAL);
    check_int(gmsfs_graph_leave(pool, NULL), -EPERM);
    check(gmsfs_graph_handle(NULL) == NULL);
    gmsfs_graph_close(NULL);
    end_pool(pool);
}

TAP_TEST(capture_holds_off_what_would_unmap)
{
    auto_pool *pool = fresh_awake_pool();
    gmsfs_graph_space_t *shape = new_space(pool, 0), *other = new_space(pool, 0);
    gmsfs_graph_space_t *eager = new_space(pool, GMSFS_GRAPH_EAGER);
    uint64_t freed;

    check_int(gmsfs_graph_space_dealloc(other, take(other, 1)), 0);
    check_int(gmsfs_graph_select(shape, NULL), 0);
    check_int(gmsfs_graph_sleep(pool, 0), -EBUSY);
    check_int(gmsfs_graph_shrink(pool, &freed), -EBUSY);
    check_int(gmsfs_graph_space_free(other), -EBUSY);
    check_int(stats_of(pool).awake, 1);
    check_int(gmsfs_graph_deselect(pool, NULL), 0);
    check_int(gmsfs_graph_select(eager, NULL), 0);
    check_int(gmsfs_graph_space_free(other), 0);
    check_int(gmsfs_graph_shrink(pool, &freed), 0);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
}

TAP_TEST(chunks_cost_no_descriptors_and_nothing_is_left)
{
    gmsfs_graph_pool_t *pool = fresh_awake_pool();
    gmsfs_graph_space_t *space = new_space(pool, 0);
    int memory = count_memory(), fds;

    take(space, CHUNK);
    fds = count_fds();
    take(space, 20 * CHUNK);
    check_int(count_fds(), fds);
    check_int(gmsfs_graph_sleep(pool, 0), 0);
    check_int(count_memory(), memory);
    end_pool(pool);
    check_int(count_memory(), 0);
}
