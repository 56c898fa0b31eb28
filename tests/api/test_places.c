/* SPDX-License-Identifier: Apache-2.0 */
/* A store that is demoted while its clients sleep: the memory that they find when they wake. */
#include <pthread.h>

#include "places_fixture.h"

#define HANDLES 100

static void publish_two(int fill)
{
    gmsfs_t *writer = open_fresh_writer();
    unsigned char *ptr = NULL;

    if (check_int(gmsfs_create_mapping(writer, 100, "first", NULL, (void **)&ptr), 0))
        memset(ptr, fill, 100);
    if (check_int(gmsfs_create_mapping(writer, 70000, "second", NULL, (void **)&ptr), 0))
        memset(ptr, fill + 1, 70000);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static gmsfs_t *open_attached(unsigned char *ptrs[2])
{
    gmsfs_t *reader = open_locked(GMSFS_MODE_RO);
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 2);
    ptrs[0] = list[0].ptr;
    ptrs[1] = list[1].ptr;
    free(list);
    return reader;
}

static void check_bytes_of(unsigned char *ptrs[2], int fill)
{
    for (int i = 0; i < 100; i++)
        check_int(ptrs[0][i], fill);
    check_int(ptrs[1][0], fill + 1);
    check_int(ptrs[1][69999], fill + 1);
}

TAP_TEST(who_sleeps_over_a_demotion_wakes_with_every_pointer_and_byte)
{
    unsigned char *ptrs[2];
    struct gmsfs_info before, after;
    auto_store *reader = NULL;

    publish_two(1);
    reader = open_attached(ptrs);
    before = look();
    check_int(before.residency, GMSFS_RESIDENCY_DEVICE);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    for (unsigned strict = 0; strict < 2; strict++) {
        move_to("host", GMSFS_RESIDENCY_HOST);
        check_int(gmsfs_remap_all_vas(reader, 0, (int)strict), -EAGAIN);
        check_int(gmsfs_remap_all_vas(reader, WAIT_MS, (int)strict), 0);
        check_bytes_of(ptrs, 1);
        check_int(gmsfs_get_info(reader, &after), 0);
        check_int(after.moves, before.moves + 2 * (strict + 1));
        check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    }
    check_str(after.layout_hash, before.layout_hash);
    check_int(after.generation, before.generation);
}

TAP_TEST(who_keeps_the_lock_asleep_keeps_the_store_on_its_device)
{
    unsigned char *ptrs[2];
    auto_store *reader = NULL;

    publish_two(1);
    reader = open_attached(ptrs);
    check_int(gmsfs_unmap_all_vas(reader, GMSFS_UNMAP_KEEP_LOCK), 0);
    check_int(order("host"), -EBUSY);
    check_int(gmsfs_remap_all_vas(reader, 0, 1), 0);
}

TAP_TEST(given_up_and_loaded_anew_in_other_slots_is_found_by_rank_unless_strict)
{
    unsigned char *ptrs[2];
    auto_store *reader = NULL;

    publish_two(1);
    reader = open_attached(ptrs);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    move_to("none", 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), -ENODATA);
    publish_two(7); /* slots are never used again */
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), -ESTALE);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), 0);
    check_bytes_of(ptrs, 7);
}

TAP_TEST(who_reads_anywhere_moves_nothing)
{
    auto_store *reader = open_store();
    auto_free struct gmsfs_mapping *list = NULL;
    unsigned char *ptrs[2];
    uint64_t moves;
    size_t count = 0;

    publish_two(1);
    move_to("host", GMSFS_RESIDENCY_HOST);
    moves = look().moves;
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), -EAGAIN);
    check_int(gmsfs_set_connect_flags(reader, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 2);
    ptrs[0] = list[0].ptr;
    ptrs[1] = list[1].ptr;
    check_bytes_of(ptrs, 1);
    check_int(look().moves, moves);
    check_int(look().residency, GMSFS_RESIDENCY_HOST);
}

TAP_TEST(who_replaces_waits_for_no_move_and_cannot_use_what_is_elsewhere)
{
    gmsfs_t *writer = open_store();
    struct gmsfs_handle_info *list = NULL;
    unsigned char *ptrs[2];
    size_t count = 0;
    void *ptr = NULL;
    int rolled_back = 0;

    publish_two(1);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(writer, GMSFS_CONNECT_REPLACE), 0);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), 0);
    check_int(gmsfs_list_handles(writer, NULL, &list, &count), 0);
    require(count == 2);
    check_int(gmsfs_attach_mapping(writer, list[0].slot, GMSFS_ACCESS_READ, &ptr), -EAGAIN);
    check_int(gmsfs_attach_mapping(writer, list[0].slot, GMSFS_ACCESS_WRITE, &ptr), -EAGAIN);
    check_int(gmsfs_commit(writer, 0, NULL), -EINVAL);
    check_int(gmsfs_abort(writer, &rolled_back), 0);
    check_int(rolled_back, 1);
    check_int(look().residency, GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), 0);
    check_int(gmsfs_clear_all_handles(writer), 0);
    check_int(gmsfs_create_mapping(writer, 10, "new", NULL, &ptr), 0);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    check_int(look().residency, GMSFS_RESIDENCY_DEVICE);
    free(list);
    gmsfs_close(writer);
    publish_two(3);
    move_to("host", GMSFS_RESIDENCY_HOST);
    writer = open_attached(ptrs); /* no flags: waits, and finds it */
    check_bytes_of(ptrs, 3);
    gmsfs_close(writer);
}

TAP_TEST(flags_that_are_none_are_refused)
{
    auto_store *store = open_store();

    check_int(gmsfs_set_connect_flags(store, 8), -EINVAL);
    check_int(gmsfs_set_connect_flags(store, GMSFS_CONNECT_ANY | GMSFS_CONNECT_REPLACE), 0);
    check_int(gmsfs_set_connect_flags(store, 0), 0);
}

static void *wake(void *handle)
{
    return (void *)(intptr_t)gmsfs_remap_all_vas(handle, WAIT_MS, 1);
}

TAP_TEST(many_handles_that_wake_at_once_need_one_promotion)
{
    static unsigned char *ptrs[HANDLES][2];
    static gmsfs_t *readers[HANDLES];
    pthread_t threads[HANDLES];
    uint64_t moves;

    publish_two(9);
    for (int i = 0; i < HANDLES; i++) {
        readers[i] = open_attached(ptrs[i]);
        check_int(gmsfs_unmap_all_vas(readers[i], 0), 0);
    }
    move_to("host", GMSFS_RESIDENCY_HOST);
    moves = look().moves;
    for (int i = 0; i < HANDLES; i++)
        require(pthread_create(&threads[i], NULL, wake, readers[i]) == 0);
    for (int i = 0; i < HANDLES; i++) {
        void *error;
        pthread_join(threads[i], &error);
        check_int((intptr_t)error, 0);
        check_bytes_of(ptrs[i], 9);
    }
    check_int(look().moves, moves + 1);
    for (int i = 0; i < HANDLES; i++)
        gmsfs_close(readers[i]);
}
