/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations, descriptors, addresses. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "api.h"

TAP_TEST(writer_fills_reader_sees_the_same_bytes)
{
    auto_free struct gmsfs_mapping *list = NULL;
    auto_store *reader = NULL;
    size_t count = 0;

    publish(5000, "weights", 0x5a);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    check_int(list[0].size_bytes, 5000);
    check_int(list[0].aligned_bytes % granularity_of(reader), 0);
    check(list[0].aligned_bytes >= 5000);
    check_int(((unsigned char *)list[0].ptr)[0], 0x5a);
    check_int(((unsigned char *)list[0].ptr)[4999], 0x5a);
    check_int(((unsigned char *)list[0].ptr)[5000], 0);
    check_str(rights_at(list[0].ptr), "r--s");
    check_int(gmsfs_total_bytes(reader), list[0].aligned_bytes);
    check_int(gmsfs_attach_mapping(reader, list[0].slot, GMSFS_ACCESS_WRITE, &(void *){NULL}),
              -EACCES);
}

TAP_TEST(commit_turns_the_writers_mappings_read_only)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &ptr), 0);
    check_str(rights_at(ptr), "rw-s");
    memset(ptr, 9, 100);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_str(rights_at(ptr), "r--s");
    check_int(*(unsigned char *)ptr, 9);
}

TAP_TEST(a_failed_immutable_commit_leaves_unsealed_memory_writable_and_the_rest_readable)
{
    gmsfs_t *store = open_fresh_writer();
    unsigned char *ptr[3];
    void *other;
    int fd = -1;

    if (!is_host(store)) { /* which alone is sealed */
        gmsfs_close(store);
        return;
    }
    for (int i = 0; i < 3; i++) {
        require(gmsfs_create_mapping(store, 100, "t", NULL, (void **)&ptr[i]) == 0);
        ptr[i][0] = (unsigned char)i;
    }
    require(gmsfs_descriptor_of(store, ptr[1], &fd) == 0);
    other = mmap(NULL, 100, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    require(other != MAP_FAILED);
    close(fd);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_IMMUTABLE, NULL), -EBUSY);
    check_str(rights_at(ptr[0]), "r--s");
    check_int(ptr[0][0], 0);
    check_str(rights_at(ptr[1]), "rw-s");
    check_str(rights_at(ptr[2]), "rw-s");
    ptr[2][0] = 7;
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    munmap(other, 100);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_IMMUTABLE | GMSFS_COMMIT_STAY, NULL), 0);
    check_str(rights_at(ptr[2]), "r--s");
    check_int(ptr[2][0], 7);
    gmsfs_close(store);
}

TAP_TEST(refused_commit_leaves_the_writer_its_memory)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata outside = {.key = "outside", .offset = UINT64_MAX / 2};
    unsigned char *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", &outside.slot, (void **)&ptr), 0);
    check_int(gmsfs_metadata_put(store, &outside), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    check_str(rights_at(ptr), "rw-s");
    ptr[0] = 1;
    check_int(gmsfs_metadata_delete(store, "outside"), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_str(rights_at(ptr), "r--s");
}

TAP_TEST(handles_are_listed_found_and_freed)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_handle_info *list = NULL, info;
    uint64_t first = 0, named = 0;
    size_t count = 0;

    check_int(gmsfs_allocate_handles(store, 3, 10, "a", NULL, 0, &first), 0);
    check_int(gmsfs_allocate_handle(store, 20, "b", "given", &named), 0);
    check_int(named, first + 3);
    check_int(gmsfs_allocate_handle(store, 20, "b", "given", NULL), -EEXIST);
    check_int(gmsfs_allocate_handle(store, 0, "b", NULL, NULL), -EINVAL);
    check_int(gmsfs_free_handle(store, first + 1), 0);
    check_int(gmsfs_free_handle(store, first + 1), -ENOENT);
    check_int(gmsfs_get_handle_info(store, first + 1, &info), -ENOENT);
    check_int(gmsfs_get_handle_info(store, named, &info), 0);
    check_str(info.name, "given");
    check_str(info.tag, "b");
    check_int(info.rank, 2);
    check_int(info.size_bytes, 20);
    check_int(info.aligned_bytes, granularity_of(store));
    check_int(gmsfs_list_handles(store, NULL, &list, &count), 0);
    check_int(count, 3);
    if (count == 3) {
        check_int(list[0].slot, first);
        check_int(list[1].slot, first + 2);
        check_int(list[2].slot, named);
    }
    free(list);
    check_int(gmsfs_list_handles(store, "a", &list, &count), 0);
    check_int(count, 2);
    free(list);
    check_int(gmsfs_clear_all_handles(store), 0);
    check_int(gmsfs_list_handles(store, NULL, &list, &count), 0);
    check_int(count, 0);
    check(list == NULL);
}

TAP_TEST(export_finds_a_slot_behind_gaps)
{
    auto_store *store = open_fresh_writer();
    uint64_t first = 0, last = 0;
    unsigned char byte = 0;
    void *ptr = NULL;
    int fd = -1;

    check_int(gmsfs_allocate_handles(store, 4, 10, "gap", NULL, 0, &first), 0);
    check_int(gmsfs_create_mapping(store, 10, "kept", &last, &ptr), 0);
    memset(ptr, 0x77, 10);
    check_int(gmsfs_free_handle(store, first), 0);
    check_int(gmsfs_free_handle(store, first + 2), 0);
    check_int(gmsfs_export_handle(store, last, GMSFS_ACCESS_READ, &fd), 0);
    if (is_host(store)) {
        check_int(pread(fd, &byte, 1, 9), 1);
        check_int(byte, 0x77);
        check_int(pwrite(fd, &byte, 1, 9), -1);
    }
    close(fd);
    check_int(gmsfs_export_handle(store, last, GMSFS_ACCESS_WRITE, &fd), 0);
    if (is_host(store))
        check_int(pwrite(fd, &byte, 1, 0), 1);
    close(fd);
    check_int(gmsfs_export_handle(store, first, GMSFS_ACCESS_READ, &fd), -ENOENT);
    check_int(gmsfs_export_handle(store, first + 900, GMSFS_ACCESS_WRITE, &fd), -ENOENT);
}

static uint64_t free_bytes(void)
{
    struct statvfs device;

    require(statvfs(store_path(), &device) == 0);
    return device.f_bavail * device.f_frsize;
}

/* Freed memory returns some time later. */
static uint64_t wait_for_free_bytes(uint64_t used_bytes)
{
    struct statvfs device;
    int waited_ms = 0;

    require(statvfs(store_path(), &device) == 0);
    while (free_bytes() + used_bytes < device.f_blocks * device.f_frsize && waited_ms++ < WAIT_MS)
        usleep(1000);
    return free_bytes();
}

TAP_TEST(lock_and_memory_are_taken_together_and_allocations_draw_from_it)
{
    auto_store *store = open_store();
    uint64_t granularity, before;
    void *ptr = NULL;

    publish(10, "t", 1);
    granularity = granularity_of(store);
    check_int(gmsfs_connect_reserve(store, GMSFS_MODE_RO, 0, granularity), -EINVAL);
    check_int(gmsfs_connect_reserve(store, GMSFS_MODE_RW, WAIT_MS, UINT64_MAX), -ENOMEM);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_NONE);
    before = wait_for_free_bytes(granularity);
    check_int(gmsfs_connect_reserve(store, GMSFS_MODE_RW, WAIT_MS, 2 * granularity - 1), 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
    check_int(free_bytes(), before - 2 * granularity);
    check_int(gmsfs_create_mapping(store, 10, "u", NULL, &ptr), 0);
    check_int(free_bytes(), before - 2 * granularity);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(free_bytes(), before - granularity);
    check_int(gmsfs_connect_reserve(store, GMSFS_MODE_RW_OR_RO, WAIT_MS, granularity), 0);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RO);
    check_int(free_bytes(), before - granularity);
}

TAP_TEST(addresses_are_reserved_mapped_twice_and_given_back)
{
    auto_store *store = open_fresh_writer();
    uint64_t granularity = granularity_of(store), slot = 0, found = 0, offset = 0;
    char *va = NULL;

    check_int(gmsfs_allocate_handle(store, 100, "t", NULL, &slot), 0);
    check_int(gmsfs_reserve_va(store, 3 * granularity, (void **)&va), 0);
    require(va != NULL);
    check_int((uintptr_t)va % granularity, 0);
    check_str(rights_at(va), "---p");
    check_int(gmsfs_map_va(store, va, slot, GMSFS_ACCESS_WRITE), 0);
    check_int(gmsfs_map_va(store, va + 2 * granularity, slot, GMSFS_ACCESS_READ), 0);
    check_int(gmsfs_map_va(store, va, slot, GMSFS_ACCESS_READ), -EBUSY);
    check_int(gmsfs_map_va(store, va + 3 * granularity, slot, GMSFS_ACCESS_READ), -EFAULT);
    check_int(gmsfs_map_va(store, va + 1, slot, GMSFS_ACCESS_READ), -EINVAL);
    va[50] = 33;
    check_int(va[2 * granularity + 50], 33);
    check_int(gmsfs_resolve(store, va + 2 * granularity + 50, &found, &offset), 0);
    check_int(found, slot);
    check_int(offset, 50);
    check_int(gmsfs_resolve(store, va + granularity, &found, &offset), -ENOENT);
    check_int(gmsfs_free_va(store, va), -EBUSY);
    check_int(gmsfs_unmap_va(store, va), 0);
    check_int(gmsfs_unmap_va(store, va), -ENOENT);
    check_str(rights_at(va), "---p");
    check_int(gmsfs_map_va(store, va, slot, GMSFS_ACCESS_WRITE), 0);
    check_int(va[50], 33);
    check_int(gmsfs_unmap_va(store, va), 0);
    check_int(gmsfs_unmap_va(store, va + 2 * granularity), 0);
    check_int(gmsfs_free_va(store, va + granularity), -ENOENT);
    check_int(gmsfs_free_va(store, va), 0);
    check_str(rights_at(va), "");
}

TAP_TEST(descriptor_of_an_address_is_a_new_one)
{
    auto_store *store = open_fresh_writer();
    struct stat status;
    void *ptr = NULL;
    int fd = -1;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &ptr), 0);
    check_int(gmsfs_descriptor_of(store, (char *)ptr + 10, &fd), 0);
    check_int(fstat(fd, &status), 0);
    check_int(status.st_size, granularity_of(store));
    check_int(pwrite(fd, "x", 1, 10), 1);
    check_int(((char *)ptr)[10], 'x');
    close(fd);
    check_int(gmsfs_descriptor_of(store, &fd, &fd), -ENOENT);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), -ENOLCK);
    check_int(gmsfs_connect(store, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), 0);
    if (is_host(store))
        check_int(pwrite(fd, "y", 1, 10), -1);
    close(fd);
}

TAP_TEST(descriptor_of_an_earlier_layout_is_stale)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;
    int fd = -1;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &ptr), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    publish(200, "u", 4);
    check_int(gmsfs_connect(store, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_descriptor_of(store, ptr, &fd), -ESTALE);
}

TAP_TEST(destroy_gives_everything_back)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_info info = {0};
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;
    void *one = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &one), 0);
    check_int(gmsfs_destroy_mapping(store, (char *)one + 1), -ENOENT);
    check_int(gmsfs_destroy_mapping(store, one), 0);
    check_str(rights_at(one), "");
    check_int(gmsfs_allocate_handles(store, 3, 10, "t", NULL, 0, NULL), 0);
    check_int(gmsfs_attach_all(store, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 3); /* its mapping kept the first one's memory */
    check_int(gmsfs_destroy_mapping(store, list[1].ptr), 0);
    check_str(rights_at(list[1].ptr), "---p");
    for (size_t i = 0; i < count; i++)
        check_int(gmsfs_destroy_mapping(store, list[i].ptr), i == 1 ? -ENOENT : 0);
    check_str(rights_at(list[0].ptr), "");
    check_int(gmsfs_total_bytes(store), 0);
    check_int(count_memory(), 0);
    free(list);
    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.allocations, 3); /* allocations that were only attached stay in the layout */
}

TAP_TEST(failed_create_leaves_no_allocation)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_info info;
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, UINT64_MAX, "t", NULL, &ptr) < 0, 1);
    check_int(gmsfs_create_mapping(store, (uint64_t)1 << 60, "t", NULL, &ptr) < 0, 1);
    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.allocations, 0);
    check(ptr == NULL);
}

TAP_TEST(memory_outlives_the_lock_while_it_is_mapped)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &ptr), 0);
    memset(ptr, 3, 100);
    check_int(gmsfs_abort(store, NULL), 0);
    publish(300, "other", 8);
    check_int(*(unsigned char *)ptr, 3);
    check_int(gmsfs_destroy_mapping(store, ptr), 0);
}

TAP_TEST(private_copy_is_this_processs_own_and_stays_in_sleep)
{
    unsigned char *shared = NULL, *copy = NULL;
    struct gmsfs_memory_info info = {0};
    auto_free struct gmsfs_mapping *list = NULL;
    auto_store *store = NULL;
    size_t count = 0;
    uint64_t granularity;

    publish(5000, "t", 5);
    store = open_locked(GMSFS_MODE_RO);
    granularity = granularity_of(store);
    check_int(gmsfs_attach_all(store, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    shared = list[0].ptr;
    check_int(gmsfs_attach_mapping(store, list[0].slot, GMSFS_ACCESS_READ, &(void *){NULL}), 0);
    check_int(gmsfs_copy_private(store, shared + 4000, 1000, (void **)&copy), 0);
    check_int(copy[999], 5);
    copy[0] = 6;
    check_int(shared[4000], 5);
    check_int(gmsfs_memory_info(store, &info), 0);
    check_int(info.shared_bytes, granularity); /* although it is mapped twice */
    check_int(info.private_bytes, 1000);
    check_int(info.preserved_bytes, 0);
    check_int(gmsfs_copy_private(store, shared, granularity + 1, (void **)&copy), -ENOENT);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(copy[0], 6);
    check_int(gmsfs_copy_private(store, shared, 1, &(void *){NULL}), -ENOENT);
    check_int(gmsfs_memory_info(store, &info), 0);
    check_int(info.shared_bytes, 0);
    check_int(info.preserved_bytes, 2 * granularity);
    check_int(gmsfs_free_private(store, copy + 1), -ENOENT);
    check_int(gmsfs_free_private(store, copy), 0);
    check_str(rights_at(copy), "");
}

static int count_call(void *context)
{
    ++*(int *)context;
    return 0;
}

static int refuse_call(void *context)
{
    (void)context;
    return -EBUSY;
}

TAP_TEST(callers_way_to_synchronise_comes_before_commit_and_sleep)
{
    auto_store *store = open_fresh_writer();
    void *ptr = NULL;
    int calls = 0;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &ptr), 0);
    check_int(gmsfs_set_synchronise(store, refuse_call, NULL), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EBUSY);
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_RW);
    check_str(rights_at(ptr), "rw-s");
    check_int(gmsfs_set_synchronise(store, count_call, &calls), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(calls, 1);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(calls, 2);
}
