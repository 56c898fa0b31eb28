/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions: registered by a client and read by a server, of a client's memory and of a store, and
 * their ends. test_regions_refused.c has refusals.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

#include "regions_fixture.h"

/* ---- a client and a server ------------------------------------------------------------------ */

TAP_TEST(a_server_reads_and_writes_what_a_client_registered)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    auto_fd fd = make_object(8192);
    char bytes[8] = {0};

    require(pwrite(fd, "abcdefgh", 8, 100) == 8);
    check_int(register_fd(regions, "input 0/\xc3\xa4", fd, 100, 4096), 0);
    check_int(gmsfs_region_open(regions, SELF, "input 0/\xc3\xa4", &region, &reason), 0);
    require(region != NULL);
    const struct gmsfs_region_info *info = gmsfs_region_info(region);
    check_str(info->name, "input 0/\xc3\xa4");
    check_str(info->key, "/some_key");
    check_int(info->offset, 100);
    check_int(info->byte_size, 4096);
    check_int(info->kind, GMSFS_REGION_SYSTEM);
    check_int(info->references, 1);
    check_int(info->flags, GMSFS_REGION_WRITABLE | GMSFS_REGION_DESCRIPTOR);
    check_int(gmsfs_region_read(region, 2, bytes, 4, &reason), 0);
    check_bytes(bytes, 4, "cdef", 4);
    check_int(gmsfs_region_write(region, 4092, "last", 4, &reason), 0);
    check_int(pread(fd, bytes, 4, 100 + 4092), 4);
    check_bytes(bytes, 4, "last", 4);
    gmsfs_region_close(region);
}

TAP_TEST(a_region_is_mapped_where_it_begins)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    auto_fd fd = make_object(3 * 4096);
    void *ptr = NULL;

    require(register_fd(regions, "r", fd, 5000, 4096) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_WRITE, &ptr), 0);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr), -EBUSY);
    memcpy(ptr, "here", 4);
    char bytes[4];
    check_int(pread(fd, bytes, 4, 5000), 4);
    check_bytes(bytes, 4, "here", 4);
    check_int(gmsfs_region_unmap(region), 0);
    check_int(gmsfs_region_unmap(region), 0);
    gmsfs_region_close(region);
}

TAP_TEST(an_object_that_may_only_be_read_is_only_read)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    char path[64];
    void *ptr;
    int fd = make_object(4096), readable;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    readable = open(path, O_RDONLY | O_CLOEXEC);
    require(readable >= 0 && register_fd(regions, "r", readable, 0, 10) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    check_int(gmsfs_region_write(region, 0, "x", 1, NULL), -EACCES);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_WRITE, &ptr), -EACCES);
    gmsfs_region_close(region);
    close(readable);
    close(fd);
}

TAP_TEST(a_key_without_a_descriptor_is_opened_as_shared_memory)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    struct gmsfs_region_request wish = wish_of("r", -1, 0, 64);
    char key[64], bytes[4];
    auto_fd fd = -1;

    snprintf(key, sizeof key, "/gmsfs_test_regions_%d", getpid());
    wish.key = key;
    check_int(gmsfs_region_register(regions, &wish, &reason), -ENOENT);
    check_int(reason, GMSFS_REGION_NO_OBJECT);
    fd = shm_open(key, O_RDWR | O_CREAT | O_EXCL, 0600);
    require(fd >= 0 && ftruncate(fd, 64) == 0 && pwrite(fd, "abcd", 4, 0) == 4);
    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    shm_unlink(key); /* like the resource tracker of a client */
    check_int(gmsfs_region_open(regions, SELF, "r", &region, NULL), 0);
    check_int(gmsfs_region_read(region, 0, bytes, 4, NULL), 0);
    check_bytes(bytes, 4, "abcd", 4);
    gmsfs_region_close(region);
}

TAP_TEST(a_cuda_region_is_its_handle)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    struct gmsfs_region_request wish = cuda_wish("cu0");
    char byte;
    void *ptr;

    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    require(gmsfs_region_open(regions, SELF, "cu0", &region, NULL) == 0);
    const struct gmsfs_region_info *info = gmsfs_region_info(region);
    check(info->kind == GMSFS_REGION_CUDA && info->device_id == -1 && info->flags == 0);
    check(info->byte_size == UINT64_MAX - 31);
    check_bytes(info->raw_handle, 64, wish.raw_handle, 64);
    check_int(gmsfs_region_descriptor(region), -ENODATA);
    check_int(gmsfs_region_read(region, 0, &byte, 1, NULL), -EOPNOTSUPP);
    check_int(gmsfs_region_write(region, 0, &byte, 1, NULL), -EOPNOTSUPP);
    check_int(gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr), -EOPNOTSUPP);
    gmsfs_region_close(region);
}

TAP_TEST(a_list_is_whole_and_in_order_of_names)
{
    auto_regions *regions = open_regions();
    struct gmsfs_region_request wish = cuda_wish("cu");
    struct gmsfs_region_info *list = NULL;
    char name[16];
    size_t count = 9;
    auto_fd fd = make_object(4096);

    check_int(gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count), 0);
    check(count == 0 && list == NULL);
    for (int i = 49; i >= 0; i--) {
        snprintf(name, sizeof name, "r%02d", i);
        require(register_fd(regions, name, fd, 0, (uint64_t)i + 1) == 0);
    }
    require(gmsfs_region_register(regions, &wish, NULL) == 0);
    check_int(gmsfs_region_list(regions, SELF, GMSFS_REGION_SYSTEM, &list, &count), 0);
    require(count == 50);
    for (size_t i = 0; i < count; i++)
        check_int(list[i].byte_size, i + 1);
    gmsfs_region_list_free(list);
    check_int(gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count), 0);
    check_int(count, 51);
    check_str(list[0].name, "cu");
    gmsfs_region_list_free(list);
    uint64_t gone = 0;
    check_int(gmsfs_region_unregister_all(regions, SELF, GMSFS_REGION_SYSTEM, &gone), 0);
    check_int(gone, 50);
    check_int(gmsfs_region_list(regions, SELF, GMSFS_REGION_ANY, &list, &count), 0);
    check_int(count, 1);
    gmsfs_region_list_free(list);
}

/* ---- stores -------------------------------------------------------------------------------- */

TAP_TEST(a_committed_allocation_is_a_region_for_readers)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    gmsfs_t *writer;
    char key[512], bytes[4];
    void *ptr;
    struct gmsfs_region_request wish;

    publish(1000, "t", 7);
    wish = store_wish(key, sizeof key);
    wish.offset = 990;
    wish.byte_size = 11;
    check_int(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
    check_int(reason, GMSFS_REGION_BAD_RANGE);
    wish.byte_size = 10;
    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    writer = open_store();
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), -EAGAIN);
    check_int(gmsfs_region_open(regions, SELF, "w", &region, &reason), 0);
    require(region != NULL);
    check(gmsfs_region_info(region)->flags & GMSFS_REGION_ALLOCATION);
    check_str(gmsfs_region_info(region)->key, key);
    check_int(gmsfs_region_read(region, 6, bytes, 4, NULL), 0);
    check_bytes(bytes, 4, "\7\7\7\7", 4);
    check_int(gmsfs_region_read(region, 7, bytes, 4, &reason), -ERANGE);
    check_int(gmsfs_region_write(region, 0, bytes, 4, NULL), -EACCES);
    if (gmsfs_region_info(region)->memory == GMSFS_MEMORY_HOST) {
        check_int(gmsfs_region_map(region, GMSFS_ACCESS_READ, &ptr), 0);
        check_bytes(ptr, 4, "\7\7\7\7", 4);
    }
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "w"), 0);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, 0), -EAGAIN); /* it drains */
    gmsfs_region_close(region);
    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_region_register(regions, &wish, &reason), -EAGAIN);
    check_int(reason, GMSFS_REGION_UNCOMMITTED);
    gmsfs_close(writer);
}

/* ---- references ---------------------------------------------------------------------------- */

TAP_TEST(a_region_in_use_drains_and_goes_with_its_last_reference)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *first = NULL, *second = NULL;
    struct gmsfs_region_info info;
    auto_fd fd = make_object(4096);
    char byte;

    require(register_fd(regions, "r", fd, 0, 10) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &first, NULL) == 0);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_SYSTEM, "r"), 0);
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, "r", &info), 0);
    check(info.flags & GMSFS_REGION_DRAINING);
    check_int(register_fd(regions, "r", fd, 0, 10), -EEXIST);
    check_int(gmsfs_region_open(regions, SELF, "r", &second, NULL), 0);
    gmsfs_region_close(first);
    check_int(gmsfs_region_read(second, 9, &byte, 1, NULL), 0);
    gmsfs_region_close(second);
    check_int(gmsfs_region_get(regions, SELF, GMSFS_REGION_ANY, "r", &info), -ENOENT);
    check_int(register_fd(regions, "r", fd, 0, 10), 0);
}

TAP_TEST(a_holder_that_is_killed_drops_its_references)
{
    auto_regions *regions = open_regions();
    int fd = make_object(4096), ready[2];
    pid_t child;
    char byte;

    require(register_fd(regions, "r", fd, 0, 1) == 0 && pipe(ready) == 0);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        gmsfs_regions_t *own = NULL;
        gmsfs_region_t *held;
        int wrong = gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r") != -ECHILD;

        wrong |= gmsfs_regions_open(mount_path, &own);
        for (int i = 0; i < 5 && !wrong; i++)
            wrong |= gmsfs_region_open(own, SELF, "r", &held, NULL);
        if (write(ready[1], wrong ? "w" : "r", 1) == 1)
            pause();
        _exit(1);
    }
    check(read(ready[0], &byte, 1) == 1 && byte == 'r');
    check_int(count_references(regions, "r"), 5);
    check_int(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r"), 0);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (int i = 0; i < 500 && count_references(regions, "r") >= 0; i++)
        usleep(10000);
    check_int(count_references(regions, "r"), -ENOENT);
    close(ready[0]);
    close(ready[1]);
    close(fd);
}

TAP_TEST(nothing_is_left_of_many_rounds)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL;
    int fd = make_object(4096), before;
    void *ptr;

    require(register_fd(regions, "warm", fd, 0, 1) == 0);
    require(gmsfs_region_open(regions, SELF, "warm", &region, NULL) == 0);
    gmsfs_region_close(region);
    before = count_fds();
    for (int i = 0; i < 300; i++) {
        require(register_fd(regions, "r", fd, 0, 4096) == 0);
        require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
        require(gmsfs_region_map(region, GMSFS_ACCESS_WRITE, &ptr) == 0);
        require(gmsfs_region_unregister(regions, SELF, GMSFS_REGION_ANY, "r") == 0);
        gmsfs_region_close(region);
    }
    check_int(count_fds(), before);
    check_int(count_references(regions, "r"), -ENOENT);
    close(fd);
}

TAP_TEST(a_reference_is_handed_to_another_process)
{
    auto_regions *regions = open_regions();
    gmsfs_region_t *region = NULL, *there = NULL;
    struct gmsfs_region_info info;
    int fd = make_object(4096), file = -1, memory = -1;
    char bytes[4];

    require(pwrite(fd, "abcd", 4, 0) == 4 && register_fd(regions, "r", fd, 0, 64) == 0);
    require(gmsfs_region_open(regions, SELF, "r", &region, NULL) == 0);
    info = *gmsfs_region_info(region);
    check_int(gmsfs_region_detach(region, &file, &memory), 0);
    check_int(count_references(regions, "r"), 1);
    check_int(gmsfs_region_attach(-1, memory, &info, &there), -EBADF);
    check_int(gmsfs_region_attach(file, memory, &info, &there), 0);
    check_int(gmsfs_region_read(there, 0, bytes, 4, NULL), 0);
    check_bytes(bytes, 4, "abcd", 4);
    gmsfs_region_close(there);
    check_int(count_references(regions, "r"), 0);
    close(fd);
}
