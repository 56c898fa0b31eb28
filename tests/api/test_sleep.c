/* SPDX-License-Identifier: Apache-2.0 */
/* Sleeping and waking: unmap_all, remap_all, reallocate_all, and the causes of their refusals. */
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "api.h"
#include "ioctl_hook.h"

/* The library's requests to the mount. */
static atomic_int requests;

static int on_ioctl(unsigned long request)
{
    (void)request;
    atomic_fetch_add(&requests, 1);
    return 0;
}

static void publish_two(uint64_t second_bytes, int fill)
{
    gmsfs_t *writer = open_fresh_writer();
    void *ptr = NULL;

    if (check_int(gmsfs_create_mapping(writer, 100, "first", NULL, &ptr), 0))
        memset(ptr, fill, 100);
    if (check_int(gmsfs_create_mapping(writer, second_bytes, "second", NULL, &ptr), 0))
        memset(ptr, fill + 1, second_bytes);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static gmsfs_t *open_attached(unsigned char **first, unsigned char **second)
{
    gmsfs_t *reader = open_locked(GMSFS_MODE_RO);
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 2);
    *first = list[0].ptr;
    *second = list[1].ptr;
    free(list);
    return reader;
}

static gmsfs_t *open_published(unsigned char **first, unsigned char **second)
{
    publish_two(200, 1);
    return open_attached(first, second);
}

TAP_TEST(sleeper_pins_nothing_and_wakes_with_its_pointers)
{
    unsigned char *first, *second;
    gmsfs_t *reader = open_published(&first, &second), *writer;

    check_int(gmsfs_remap_all_vas(reader, 0, 0), -EINVAL);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(gmsfs_is_unmapped(reader), 1);
    check_int(gmsfs_is_connected(reader), 0);
    check_int(count_memory(), 0);
    check_str(rights_at(first), "---p");
    writer = open_locked(GMSFS_MODE_RW);
    check_int(gmsfs_remap_all_vas(reader, 0, 1), -EAGAIN);
    check_int(gmsfs_remap_all_vas(reader, 50, 1), -ETIMEDOUT);
    gmsfs_close(writer);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(gmsfs_is_unmapped(reader), 0);
    check_int(gmsfs_granted_lock(reader), GMSFS_MODE_RO);
    check_int(first[99], 1);
    check_int(second[199], 2);
    gmsfs_close(reader);
}

TAP_TEST(same_structure_with_new_bytes_is_stale_only_when_strict)
{
    unsigned char *first, *second;
    auto_store *reader = open_published(&first, &second);

    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    publish_two(200, 5);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), -ESTALE);
    check_int(gmsfs_is_connected(reader), 0);
    check_int(count_memory(), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), 0);
    check_int(first[0], 5);
    check_int(second[0], 6);
}

TAP_TEST(other_structure_is_stale_and_nothing_is_mapped)
{
    unsigned char *first, *second;
    auto_store *reader = open_published(&first, &second);

    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    publish_two(201, 1);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), -ESTALE);
    check_int(gmsfs_is_unmapped(reader), 1);
    check_int(gmsfs_is_connected(reader), 0);
    check_str(rights_at(first), "---p");
    check_str(rights_at(second), "---p");
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), -ESTALE);
    check_int(gmsfs_granted_lock(reader), GMSFS_MODE_RO);
    check_int(count_memory(), 0);
}

TAP_TEST(keep_lock_keeps_the_lock)
{
    unsigned char *first, *second;
    auto_store *reader = open_published(&first, &second);

    check_int(gmsfs_unmap_all_vas(reader, GMSFS_UNMAP_KEEP_LOCK), 0);
    check_int(gmsfs_granted_lock(reader), GMSFS_MODE_RO);
    check_int(count_memory(), 0);
    check_int(gmsfs_remap_all_vas(reader, 0, 1), 0);
    check_int(second[0], 2);
}

TAP_TEST(writer_sleeps_after_commit_and_wakes_as_reader)
{
    auto_store *store = open_fresh_writer();
    unsigned char *a = NULL, *b = NULL;
    uint64_t slot = 0;

    check_int(gmsfs_create_mapping(store, 10, "gone", &slot, (void **)&a), 0);
    check_int(gmsfs_create_mapping(store, 10, "kept", NULL, (void **)&b), 0);
    b[0] = 44;
    check_int(gmsfs_free_handle(store, slot), 0);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), 0);
    check_int(b[0], 44);
    check_str(rights_at(b), "r--s");
}

/* The same structure without the gap in slots: found by rank. */
TAP_TEST(remap_finds_by_rank_where_slots_differ)
{
    auto_store *store = open_fresh_writer();
    unsigned char *a = NULL, *b = NULL;
    struct gmsfs_handle_info *list = NULL;
    uint64_t slot = 0, found = 0;
    size_t count = 0;
    auto_fd fd = -1;

    check_int(gmsfs_create_mapping(store, 10, "x", &slot, (void **)&a), 0);
    check_int(gmsfs_create_mapping(store, 10, "kept", NULL, (void **)&b), 0);
    check_int(gmsfs_free_handle(store, slot), 0);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    publish(10, "kept", 21);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 0), 0);
    check_int(b[9], 21);
    check_int(gmsfs_list_handles(store, NULL, &list, &count), 0);
    require(count == 1);
    check_int(gmsfs_resolve(store, b, &found, NULL), 0);
    check_int(found, list[0].slot);
    free(list);
    check_int(gmsfs_descriptor_of(store, b, &fd), 0);
}

TAP_TEST(reallocate_gives_new_memory_at_the_same_addresses)
{
    auto_store *store = open_fresh_writer();
    uint64_t granularity = granularity_of(store), slot[3] = {0}, found = 0;
    struct gmsfs_handle_info *list = NULL;
    unsigned char *ptr[3] = {NULL}, *again = NULL;
    size_t count = 0;

    check_int(gmsfs_create_mapping(store, 10, "kv", &slot[0], (void **)&ptr[0]), 0);
    check_int(gmsfs_create_mapping(store, 10, "kv", &slot[1], (void **)&ptr[1]), 0);
    check_int(gmsfs_create_mapping(store, granularity + 1, "big", &slot[2], (void **)&ptr[2]), 0);
    check_int(gmsfs_attach_mapping(store, slot[1], GMSFS_ACCESS_WRITE, (void **)&again), 0);
    memset(ptr[2], 1, granularity + 1);
    check_int(gmsfs_reallocate_all_handles(store), -EINVAL);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_is_connected(store), 0);
    check_int(count_memory(), 0);
    check_int(gmsfs_reallocate_all_handles(store), -ENOLCK);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(store), 0);
    check_int(gmsfs_reallocate_all_handles(store), 0);
    check_int(gmsfs_is_unmapped(store), 0);
    check_int(ptr[2][granularity], 0);
    ptr[1][3] = 9;
    check_int(again[3], 9);
    check_int(ptr[0][3], 0);
    check_int(gmsfs_list_handles(store, NULL, &list, &count), 0);
    require(count == 3);
    check_str(list[0].tag, "kv");
    check_str(list[2].tag, "big");
    check_int(list[2].size_bytes, granularity + 1);
    check_int(gmsfs_resolve(store, ptr[2], &found, NULL), 0);
    check_int(found, list[2].slot);
    free(list);
    check_int(gmsfs_commit(store, 0, NULL), 0);
}

/* Waits until all freed memory has returned: a helper of the daemon frees it later. */
static void wait_for_memory(void)
{
    struct statvfs device;

    for (int tries = 0; tries < WAIT_MS; tries++) {
        require(statvfs(store_path(), &device) == 0);
        if (device.f_bfree == device.f_blocks)
            return;
        usleep(1000);
    }
    check(device.f_bfree == device.f_blocks);
}

/* Takes all free memory but a little, so that two more do not fit where one does. A commit empties
 * the store first: memory that a writer only cleared would be given up to make room. */
TAP_TEST(reallocate_that_does_not_fit_changes_nothing)
{
    auto_store *store = open_fresh_writer();
    uint64_t granularity = granularity_of(store);
    struct gmsfs_info before, after;
    void *one = NULL, *two = NULL;
    struct statvfs device, later;

    check_int(gmsfs_commit(store, 0, NULL), 0);
    wait_for_memory();
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_create_mapping(store, 10, "one", NULL, &one), 0);
    check_int(gmsfs_create_mapping(store, 10, "two", NULL, &two), 0);
    check_int(gmsfs_unmap_all_vas(store, GMSFS_UNMAP_KEEP_LOCK), 0);
    require(statvfs(store_path(), &device) == 0);
    if (device.f_bavail * device.f_frsize > 2 * granularity)
        check_int(gmsfs_allocate_handle(store, device.f_bavail * device.f_frsize - granularity,
                                        "hog", NULL, NULL),
                  0);
    check_int(gmsfs_get_info(store, &before), 0);
    require(statvfs(store_path(), &device) == 0);
    check_int(gmsfs_reallocate_all_handles(store), -ENOMEM);
    require(statvfs(store_path(), &later) == 0);
    check_int(later.f_bavail, device.f_bavail);
    check_int(gmsfs_get_info(store, &after), 0);
    check_int(after.allocations, before.allocations);
    check_int(gmsfs_is_unmapped(store), 1);
    check_int(count_memory(), 0);
    check_int(gmsfs_remap_all_vas(store, 0, 1), 0);
    check_str(rights_at(one), "rw-s");
}

TAP_TEST(reader_sleeping_over_an_uncommitted_layout_goes_by_size)
{
    auto_store *store = open_fresh_writer();
    unsigned char *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 10, "t", NULL, (void **)&ptr), 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    publish(10, "t", 17);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), -ESTALE);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 0), 0);
    check_int(ptr[0], 17);
}

/* By then the store has lost its tags. */
TAP_TEST(reader_reallocates_what_it_attached)
{
    struct gmsfs_handle_info *list = NULL;
    unsigned char *first, *second;
    auto_store *store = NULL;
    size_t count = 0;

    publish_two(200, 1);
    store = open_attached(&first, &second);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(store), 0);
    check_int(gmsfs_reallocate_all_handles(store), 0);
    check_int(gmsfs_list_handles(store, NULL, &list, &count), 0);
    require(count == 2);
    check_str(list[0].tag, "first");
    check_str(list[1].tag, "second");
    free(list);
    check_str(rights_at(second), "rw-s");
    check_int(second[0], 0);
}

/* Equal sizes are not enough: the pointers would point at other tensors. */
TAP_TEST(writer_does_not_wake_on_another_structure_of_the_same_sizes)
{
    unsigned char *first, *second;
    auto_store *store = NULL;

    publish_two(100, 1);
    store = open_attached(&first, &second);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    publish(100, "other", 3);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_allocate_handle(store, 100, "another", NULL, NULL), 0);
    check_int(gmsfs_remap_all_vas(store, 0, 0), -ESTALE);
    check_int(count_memory(), 0);
}

TAP_TEST(writer_wakes_on_the_layout_that_it_slept_over)
{
    unsigned char *first, *second;
    auto_store *store = NULL;

    publish_two(200, 1);
    store = open_attached(&first, &second);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_remap_all_vas(store, 0, 1), 0);
    check_int(second[0], 2);
}

TAP_TEST(reopen_needs_an_idle_handle)
{
    unsigned char *first, *second;
    auto_store *reader = open_published(&first, &second);

    check_int(gmsfs_reopen(reader), -EBUSY);
    check_int(gmsfs_disconnect(reader), 0);
    check_int(gmsfs_reopen(reader), -EBUSY);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(gmsfs_reopen(reader), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(first[0], 1);
}

/* Returns whether it was one: all connections of this process are to `.fds`. */
static int shut_down(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && shutdown(fd, SHUT_RDWR) == 0;
}

TAP_TEST(sleeper_keeps_its_connection_and_makes_another_when_it_was_dropped)
{
    unsigned char *first, *second;
    int awake, dropped = 0;
    auto_store *reader = NULL;

    publish_two(200, 1);
    reader = open_attached(&first, &second);
    awake = count_fds();
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(count_fds(), awake);
    for (int fd = 3; fd < 64; fd++)
        dropped += shut_down(fd);
    check_int(dropped, 1);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(second[199], 2);
    check_int(count_fds(), awake);
}

/* Two tags in one store, and a reader of both: weights and cache. */
static gmsfs_t *open_two_tags(unsigned char **weights, unsigned char **cache)
{
    gmsfs_t *store = open_fresh_writer();
    void *ptr[2] = {NULL, NULL};

    check_int(gmsfs_create_mapping(store, 4096, "weights", NULL, &ptr[0]), 0);
    check_int(gmsfs_create_mapping(store, 4096, "kv_cache", NULL, &ptr[1]), 0);
    require(ptr[0] && ptr[1]);
    memset(ptr[0], 1, 4096);
    memset(ptr[1], 2, 4096);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    *weights = ptr[0];
    *cache = ptr[1];
    return store;
}

TAP_TEST(one_tag_sleeps_and_wakes_while_the_other_is_used)
{
    unsigned char *weights, *cache;
    auto_store *store = open_two_tags(&weights, &cache);
    struct gmsfs_memory_info info = {0};

    check_int(gmsfs_unmap_tag(store, "kv_cache"), 0);
    check_int(weights[4095], 1);
    check_str(rights_at(cache), "---p");
    check_int(gmsfs_is_unmapped(store), 0);
    check_int(gmsfs_memory_info(store, &info), 0);
    check_int(info.shared_bytes, info.preserved_bytes);
    check_int(gmsfs_unmap_tag(store, "kv_cache"), 0);
    check_int(gmsfs_remap_tag(store, "weights"), 0);
    check_str(rights_at(cache), "---p");
    check_int(gmsfs_remap_tag(store, "kv_cache"), 0);
    check_int(cache[4095], 2);
    check_int(gmsfs_unmap_tag(store, "unused"), 0);
    check_int(weights[0], 1);
}

TAP_TEST(all_wake_together_after_one_tag_slept_before_the_rest)
{
    unsigned char *weights, *cache;
    auto_store *store = open_two_tags(&weights, &cache);

    check_int(gmsfs_unmap_tag(store, "weights"), 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_remap_tag(store, "weights"), -EINVAL);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), 0);
    check_int(weights[0], 1);
    check_int(cache[0], 2);
    check_int(gmsfs_disconnect(store), 0);
    check_int(gmsfs_unmap_tag(store, "weights"), -ENOLCK);
}

/* Attaching has fetched the tags, so that a wake of one tag works too. */
TAP_TEST(reader_sleeps_and_wakes_by_one_request_each)
{
    unsigned char *first, *second;
    auto_store *reader = open_published(&first, &second);

    atomic_store(&requests, 0);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(atomic_exchange(&requests, 0), 1);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(atomic_exchange(&requests, 0), 1);
    check_int(gmsfs_unmap_tag(reader, "second"), 0);
    check_int(atomic_exchange(&requests, 0), 0);
    check_str(rights_at(second), "---p");
    check_int(first[99], 1);
}
