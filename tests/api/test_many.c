/* SPDX-License-Identifier: Apache-2.0 */
/* Many allocations under few descriptors; threads; no descriptor left behind. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "api.h"

#define MEMORY_BYTES ((uint64_t)64 << 20) /* bound of these tests on the device */
#define PAGE_BYTES   4096

static uint32_t publish_many(void)
{
    gmsfs_t *writer = open_fresh_writer();
    struct gmsfs_mapping *list = NULL;
    uint64_t count = MEMORY_BYTES / granularity_of(writer);
    size_t attached = 0;

    count = count < 3000 ? count : 3000;
    check_int(gmsfs_allocate_handles(writer, (uint32_t)count, 100, "many", NULL, 0, NULL), 0);
    check_int(gmsfs_attach_all(writer, GMSFS_ACCESS_WRITE, &list, &attached), 0);
    check_int(attached, count);
    for (size_t i = 0; i < attached; i++)
        *(uint32_t *)list[i].ptr = (uint32_t)i;
    free(list);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
    return (uint32_t)count;
}

static void attach_and_check(uint32_t count)
{
    gmsfs_t *reader = open_locked(GMSFS_MODE_RO);
    struct gmsfs_mapping *list = NULL;
    size_t attached = 0;

    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &attached), 0);
    require(attached == count);
    for (uint32_t i = 0; i < count; i++)
        if (*(uint32_t *)list[i].ptr != i || list[i].rank != i)
            check_int(*(uint32_t *)list[i].ptr, i);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(count_memory(), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    for (uint32_t i = 0; i < count; i++)
        if (*(uint32_t *)list[i].ptr != i)
            check_int(*(uint32_t *)list[i].ptr, i);
    free(list);
    gmsfs_close(reader);
}

static void attach_under_limit(uint32_t count, rlim_t fds)
{
    struct rlimit old, low;

    require(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = fds;
    require(setrlimit(RLIMIT_NOFILE, &low) == 0);
    attach_and_check(count);
    setrlimit(RLIMIT_NOFILE, &old);
}

TAP_TEST(whole_layout_is_attached_with_few_descriptors)
{
    uint32_t count = publish_many();
    int before = count_fds();

    attach_under_limit(count, 1024);
    attach_under_limit(count, 32);
    attach_under_limit(count, (rlim_t)before + 8);
    check_int(count_fds(), before);
}

TAP_TEST(several_allocations_that_differ_are_made_in_order)
{
    const struct gmsfs_new_allocation wanted[] = {
        {.size_bytes = 5000000, .tag = "weights"},
        {.size_bytes = 1, .tag = "kv", .name = "named"},
        {.size_bytes = 4096},
    };
    auto_store *writer = open_locked(GMSFS_MODE_RW);
    struct gmsfs_handle_info info;
    uint64_t slots[3];

    check_int(gmsfs_clear_all_handles(writer), 0);
    check_int(gmsfs_allocate_each(writer, wanted, 3, 0, slots), 0);
    for (uint64_t i = 0; i < 3; i++) {
        check_int(gmsfs_get_handle_info(writer, slots[i], &info), 0);
        check_int(info.rank, i);
        check_int(info.size_bytes, wanted[i].size_bytes);
        check_str(info.tag, wanted[i].tag ? wanted[i].tag : "");
        if (wanted[i].name)
            check_str(info.name, wanted[i].name);
    }
}

TAP_TEST(of_several_allocations_none_is_made_if_one_is_refused)
{
    struct gmsfs_new_allocation wanted[GMSFS_ALLOCATE_EACH_MAX + 1] = {
        {.size_bytes = 4096}, {.size_bytes = 4096, .name = "twice"}, {.size_bytes = 4096}};
    auto_store *writer = open_locked(GMSFS_MODE_RW);
    auto_free struct gmsfs_handle_info *list = NULL;
    size_t count;

    check_int(gmsfs_clear_all_handles(writer), 0);
    wanted[2].name = "twice";
    check_int(gmsfs_allocate_each(writer, wanted, 3, 0, NULL), -EEXIST);
    wanted[2].name = NULL;
    wanted[2].size_bytes = UINT64_MAX / 2;
    check_int(gmsfs_allocate_each(writer, wanted, 3, 0, NULL), -ENOMEM);
    wanted[2].size_bytes = 0;
    check_int(gmsfs_allocate_each(writer, wanted, 3, 0, NULL), -EINVAL);
    check_int(gmsfs_allocate_each(writer, wanted, GMSFS_ALLOCATE_EACH_MAX + 1, 0, NULL), -EINVAL);
    check_int(gmsfs_list_handles(writer, NULL, &list, &count), 0);
    check_int(count, 0);
}

/* Fills the last page of each, from the last byte on. */
static void fill_ends(gmsfs_t *writer, char byte)
{
    struct gmsfs_mapping *list = NULL;
    size_t count;

    check_int(gmsfs_attach_all(writer, GMSFS_ACCESS_WRITE, &list, &count), 0);
    for (size_t i = 0; i < count; i++) {
        char *bytes = list[i].ptr;
        uint64_t at = list[i].size_bytes - 1;

        do
            bytes[at++] = byte;
        while (at % PAGE_BYTES);
    }
    free(list);
}

TAP_TEST(mappings_have_zeros_behind_exact_memory)
{
    static const struct gmsfs_new_allocation wanted[] = {
        {.size_bytes = 5000000}, {.size_bytes = 1}, {.size_bytes = 4096}, {.size_bytes = 4097}};
    gmsfs_t *client = open_locked(GMSFS_MODE_RW);
    bool is_exact = is_host(client); /* a GPU's memory ends with the aligned size */
    struct gmsfs_mapping *list = NULL;
    uint64_t slots[4];
    size_t count = 0;

    check_int(gmsfs_clear_all_handles(client), 0);
    check_int(gmsfs_allocate_each(client, wanted, 4, GMSFS_ALLOC_EXACT, slots), 0);
    fill_ends(client, 'x');
    check_int(gmsfs_commit(client, GMSFS_COMMIT_IMMUTABLE, NULL), 0);
    gmsfs_close(client);
    client = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(client, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 4);
    for (size_t i = 0; i < count; i++) {
        const char *bytes = list[i].ptr;

        check_int(list[i].size_bytes, wanted[i].size_bytes);
        check_int(bytes[list[i].size_bytes - 1], 'x');
        for (uint64_t at = list[i].size_bytes; is_exact && at < list[i].aligned_bytes; at++)
            require(bytes[at] == 0);
    }
    free(list);
    gmsfs_close(client);
}

TAP_TEST(full_descriptor_table_fails_cleanly)
{
    uint32_t count = publish_many();
    auto_store *reader = open_locked(GMSFS_MODE_RO);
    auto_free struct gmsfs_mapping *list = NULL;
    int taken[4096], used = 0;
    size_t attached = 0;

    attach_under_limit(count, 1024);
    while (used < 4096 && (taken[used] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0 &&
           taken[used] < 1000)
        used++;
    struct rlimit old, low;
    require(getrlimit(RLIMIT_NOFILE, &old) == 0);
    low = old;
    low.rlim_cur = 1001;
    require(setrlimit(RLIMIT_NOFILE, &low) == 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &attached), -EMFILE);
    setrlimit(RLIMIT_NOFILE, &old);
    for (int i = 0; i <= used && i < 4096; i++)
        close(taken[i]);
    check_int(count_memory(), 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &attached), 0);
    check_int(attached, count);
}

struct attach_often {
    gmsfs_t *handle;
    uint64_t slot;
};

static void *attach_often(void *context)
{
    const struct attach_often *often = context;
    intptr_t failures = 0;

    for (int i = 0; i < 200; i++) {
        void *ptr = NULL;
        uint64_t slot = 0;
        if (gmsfs_attach_mapping(often->handle, often->slot, GMSFS_ACCESS_READ, &ptr) ||
            gmsfs_resolve(often->handle, ptr, &slot, NULL) || slot != often->slot ||
            *(volatile unsigned char *)ptr != 7 || gmsfs_destroy_mapping(often->handle, ptr))
            failures++;
    }
    return (void *)failures;
}

TAP_TEST(threads_share_a_handle)
{
    struct gmsfs_handle_info *list = NULL;
    struct attach_often often;
    pthread_t threads[4];
    size_t count = 0;
    void *failures;

    publish(10, "t", 7);
    often.handle = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_list_handles(often.handle, NULL, &list, &count), 0);
    require(count == 1);
    often.slot = list[0].slot;
    for (int i = 0; i < 4; i++)
        require(pthread_create(&threads[i], NULL, attach_often, &often) == 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &failures);
        check_int((intptr_t)failures, 0);
    }
    free(list);
    check_int(gmsfs_total_bytes(often.handle), 0);
    gmsfs_close(often.handle);
}

/* Forks while others attach: a child has none of the memory, at any moment. */
static void *fork_often(void *unused)
{
    intptr_t failures = 0;

    (void)unused;
    for (int i = 0; i < 100; i++) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit(count_memory() == 0 ? 0 : 1);
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            failures++;
    }
    return (void *)failures;
}

TAP_TEST(fork_while_attaching_copies_no_memory)
{
    pthread_t forker;
    auto_store *reader = NULL;
    void *failures;

    publish_many();
    reader = open_locked(GMSFS_MODE_RO);
    require(pthread_create(&forker, NULL, fork_often, NULL) == 0);
    for (int i = 0; i < 10; i++) {
        check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
        check_int(gmsfs_unmap_all_vas(reader, GMSFS_UNMAP_KEEP_LOCK), 0);
        check_int(gmsfs_remap_all_vas(reader, 0, 1), 0);
    }
    pthread_join(forker, &failures);
    check_int((intptr_t)failures, 0);
}

/* Takes any addresses that are free for a moment. */
static void *map_often(void *stop)
{
    while (!atomic_load((atomic_int *)stop)) {
        void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED)
            munmap(page, 4096);
    }
    return NULL;
}

TAP_TEST(attaching_and_foreign_mappings_do_not_meet)
{
    uint32_t count = publish_many();
    auto_store *reader = open_locked(GMSFS_MODE_RO);
    atomic_int stop = 0;
    pthread_t mapper;

    require(pthread_create(&mapper, NULL, map_often, &stop) == 0);
    for (int i = 0; i < 20; i++) {
        struct gmsfs_mapping *list = NULL;
        size_t attached = 0;
        check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &attached), 0);
        check_int(attached, count);
        for (size_t k = 0; k < attached; k++)
            if (*(volatile uint32_t *)list[k].ptr != k)
                check_int(*(uint32_t *)list[k].ptr, k);
        for (size_t k = 0; k < attached; k++)
            check_int(gmsfs_destroy_mapping(reader, list[k].ptr), 0);
        free(list);
    }
    atomic_store(&stop, 1);
    pthread_join(mapper, NULL);
}

TAP_TEST(no_descriptor_is_left_behind)
{
    int before;

    publish(10, "t", 7);
    before = count_fds();
    for (int i = 0; i < 100; i++) {
        gmsfs_t *reader = open_locked(GMSFS_MODE_RO);
        check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
        gmsfs_close(reader);
    }
    check_int(count_fds(), before);
    check_int(count_memory(), 0);
}

static int break_sockets(void)
{
    struct stat status;
    int broken = 0;

    for (int fd = 3; fd < 1024; fd++)
        if (fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode))
            broken += shutdown(fd, SHUT_RDWR) == 0;
    return broken;
}

TAP_TEST(broken_connection_is_made_anew)
{
    auto_store *reader = NULL;

    publish(10, "t", 7);
    reader = open_locked(GMSFS_MODE_RO);
    for (int i = 0; i < 3; i++) {
        struct gmsfs_mapping *list = NULL;
        size_t count = 0;
        check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
        check_int(count, 1);
        free(list);
        check(break_sockets() >= 1);
    }
}

/* Several small allocations, and the file of each. */
struct several {
    gmsfs_t *writer;
    uint64_t slots[5];
    ino_t files[5];
};

static ino_t file_of(int fd)
{
    struct stat status;

    require(fstat(fd, &status) == 0);
    close(fd);
    return status.st_ino;
}

static struct several make_several(void)
{
    const struct gmsfs_new_allocation small = {.size_bytes = 4096};
    struct several several = {.writer = open_locked(GMSFS_MODE_RW)};
    int fd;

    check_int(gmsfs_clear_all_handles(several.writer), 0);
    check_int(
        gmsfs_allocate_each(several.writer,
                            (struct gmsfs_new_allocation[]){small, small, small, small, small}, 5,
                            0, several.slots),
        0);
    for (size_t i = 0; i < 5; i++) {
        require(gmsfs_export_handle(several.writer, several.slots[i], GMSFS_ACCESS_READ, &fd) == 0);
        several.files[i] = file_of(fd);
    }
    return several;
}

/* `which`: the digits of the requested ones */
static void check_exported(const struct several *several, const char *which)
{
    uint64_t slots[GMSFS_ALLOCATE_EACH_MAX] = {0};
    int fds[GMSFS_ALLOCATE_EACH_MAX];
    size_t count = strlen(which);

    for (size_t i = 0; i < count; i++)
        slots[i] = several->slots[which[i] - '0'];
    check_int(gmsfs_export_each(several->writer, slots, count, GMSFS_ACCESS_READ, fds), 0);
    for (size_t i = 0; i < count; i++)
        check(file_of(fds[i]) == several->files[which[i] - '0']);
}

TAP_TEST(several_descriptors_are_of_the_allocations_that_were_named_in_whatever_order)
{
    struct several several = make_several();
    int before = count_fds();

    check_exported(&several, "01234");
    check_exported(&several, "2");
    check_exported(&several, "04");
    check_exported(&several, "402");
    check_exported(&several, "032");
    check_exported(&several, "002");
    check_int(gmsfs_free_handle(several.writer, several.slots[1]), 0);
    check_exported(&several, "0234");
    check_int(count_fds(), before);
    gmsfs_close(several.writer);
}

TAP_TEST(of_several_descriptors_none_comes_if_one_cannot)
{
    struct several several = make_several();
    auto_store *writer = several.writer;
    int fds[GMSFS_ALLOCATE_EACH_MAX + 1], before = count_fds();

    check_int(gmsfs_free_handle(writer, several.slots[3]), 0);
    check_int(gmsfs_export_each(writer, several.slots, 5, GMSFS_ACCESS_READ, fds), -ENOENT);
    for (int i = 0; i < 5; i++)
        check_int(fds[i], -1);
    check_int(count_fds(), before);
    check_int(gmsfs_export_each(writer, several.slots, 0, GMSFS_ACCESS_READ, fds), -EINVAL);
    check_int(gmsfs_export_each(writer, several.slots, GMSFS_ALLOCATE_EACH_MAX + 1,
                                GMSFS_ACCESS_READ, fds),
              -EINVAL);
    check_int(gmsfs_export_each(writer, several.slots, 1, 0, fds), -EINVAL);
    check_int(gmsfs_disconnect(writer), 0);
    check_int(gmsfs_export_each(writer, several.slots, 1, GMSFS_ACCESS_READ, fds), -ENOLCK);
}

TAP_TEST(no_descriptor_comes_once_the_session_was_revoked)
{
    for (size_t count = 1; count <= 3; count++) {
        struct several several = make_several();
        int fds[3], before = count_fds();

        end_session_of(several.writer);
        check_int(gmsfs_export_each(several.writer, several.slots, count, GMSFS_ACCESS_READ, fds),
                  -ESTALE);
        for (size_t i = 0; i < count; i++)
            check_int(fds[i], -1);
        check_int(count_fds(), before);
        gmsfs_close(several.writer);
    }
}
