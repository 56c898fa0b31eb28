/* SPDX-License-Identifier: Apache-2.0 */
/* The keeper's table of registered files; tests/34-mapped.bats has the kernel beside it. */
#include "daemon/backings.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct row {
    uint64_t memory;
    uint32_t number, is_ending;
};

static const struct row head = {0x73676e696b636162, 9, 0};

static int make_file(int seals)
{
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    require(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static int make_table(const struct row *rows, size_t count)
{
    int fd = memfd_create("table", MFD_CLOEXEC);

    require(fd >= 0 && write(fd, rows, count * sizeof *rows) == (ssize_t)(count * sizeof *rows));
    return fd;
}

/* A descriptor that is no connection to the kernel: the ioctl fails there with ENOTTY. */
static int open_no_fuse(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    require(fd >= 0);
    return fd;
}

TAP_TEST(only_memory_whose_bytes_are_final_is_registered)
{
    static const int less[] = {0, SEALS & ~F_SEAL_WRITE, SEALS & ~F_SEAL_SEAL,
                               SEALS & ~F_SEAL_SHRINK, SEALS & ~F_SEAL_GROW};
    int fuse_fd = open_no_fuse(), plain_fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct backings backings;
    uint32_t number;

    check_int(backings_take(&backings, make_table(&head, 1), fuse_fd), 0);
    for (size_t i = 0; i < sizeof less / sizeof less[0]; i++) {
        int fd = make_file(less[i]);
        check_int(backings_add(&backings, fuse_fd, 1, fd, &number), -EPERM);
        close(fd);
    }
    check_int(backings_add(&backings, fuse_fd, 1, plain_fd, &number), -EPERM);
    int fd = make_file(SEALS);
    check_int(backings_add(&backings, fuse_fd, 1, fd, &number), -ENOTTY); /* the kernel is asked */
    check_int(backings.items.count, 0);
    close(fd);
    close(plain_fd);
    close(fuse_fd);
    backings_free(&backings);
}

TAP_TEST(without_a_table_nothing_is_registered)
{
    int fuse_fd = open_no_fuse(), fd = make_file(SEALS);
    struct backings backings;
    uint32_t number;

    check_int(backings_take(&backings, -1, fuse_fd), 0);
    check_int(backings_add(&backings, fuse_fd, 1, fd, &number), -EPERM);
    close(fd);
    close(fuse_fd);
    backings_free(&backings);
}

TAP_TEST(a_next_keeper_knows_the_numbers_and_closes_those_that_were_ending)
{
    const struct row rows[] = {head, {70, 3, 0}, {0}, {71, 8, 1}, {72, 9, 0}};
    int fuse_fd = open_no_fuse(), table = make_table(rows, 5);
    struct backings backings;
    struct row left;
    uint32_t number;

    check_int(backings_take(&backings, table, fuse_fd), 0);
    check_int(backings.items.count, 2);
    check_int(backings_add(&backings, fuse_fd, 70, -1, &number), 0);
    check_int(number, 3);
    check_int(backings_add(&backings, fuse_fd, 72, -1, &number), 0);
    check_int(number, 9);
    check_int(pread(table, &left, sizeof left, 3 * sizeof left), sizeof left);
    check_int((long long)left.memory, 0);
    backings_remove(&backings, fuse_fd, 70);
    backings_remove(&backings, fuse_fd, 70);
    check_int(backings.items.count, 1);
    check_int(pread(table, &left, sizeof left, sizeof left), sizeof left);
    check_int((long long)left.memory, 0);
    close(fuse_fd);
    backings_free(&backings);
}

TAP_TEST(a_next_keeper_notes_the_last_number_for_the_keeper_behind_it)
{
    const struct row rows[] = {head, {70, 10, 0}}; /* the former keeper died before it noted 10 */
    int fuse_fd = open_no_fuse(), table = make_table(rows, 2);
    struct backings backings;
    struct row first;

    check_int(backings_take(&backings, table, fuse_fd), 0);
    check_int(pread(table, &first, sizeof first, 0), sizeof first);
    check_int(first.number, 10);
    check_int((long long)first.memory, (long long)head.memory);
    close(fuse_fd);
    backings_free(&backings);
}

TAP_TEST(what_is_no_table_is_refused)
{
    const struct row other = {1, 2, 3};
    auto_fd fuse_fd = open_no_fuse();
    struct backings backings;

    check_int(backings_take(&backings, make_table(&other, 1), fuse_fd), -EPROTO);
    backings_free(&backings);
    check_int(backings_take(&backings, make_table(&head, 0), fuse_fd), -EPROTO);
    backings_free(&backings);
}
