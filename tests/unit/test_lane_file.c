/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of files, as the lanes of a move read and write them. */
#include "copier/lane_file.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static int make_file(unsigned flags, size_t bytes)
{
    int fd = memfd_create("file", MFD_CLOEXEC | flags);

    require(fd >= 0);
    require(ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

TAP_TEST(parts_are_written_and_read_at_their_place)
{
    int fd = make_file(0, 8192);
    char got[5];

    check_int(lane_file_write(fd, "bytes", 5, 4094), 0);
    check_int(lane_file_read(fd, got, 5, 4094), 0);
    check_bytes(got, 5, "bytes", 5);
    check_int(lane_file_read(fd, got, 1, 4093), 0);
    check_int(got[0], 0);
    close(fd);
}

TAP_TEST(a_file_that_ends_before_is_an_error_and_does_not_grow)
{
    int fd = make_file(MFD_ALLOW_SEALING, 4096);
    char got[5];

    require(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0);
    check_int(lane_file_read(fd, got, 5, 4094), -ENODATA);
    check_int(lane_file_read(fd, got, 5, 9000), -ENODATA);
    check(lane_file_write(fd, "bytes", 5, 4094) < 0);
    check_int(lseek(fd, 0, SEEK_END), 4096);
    close(fd);
}

TAP_TEST(what_cannot_be_done_is_said_by_errno)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char got[5];

    require(fd >= 0);
    check_int(lane_file_write(fd, "bytes", 5, 0), -EBADF);
    close(fd);
    fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    require(fd >= 0);
    check_int(lane_file_write(fd, "bytes", 5, 0), -ENOSPC);
    close(fd);
    check_int(lane_file_read(-1, got, 5, 0), -EBADF);
}

/* Where the machine has such pages; else the mapping is refused, and that is told. */
TAP_TEST(a_file_in_huge_pages_is_written_though_write_cannot)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB), error;
    char got[5];

    if (fd < 0)
        return;
    require(ftruncate(fd, (off_t)(2 * HUGE_PAGE_BYTES)) == 0);
    error = lane_file_write(fd, "bytes", 5, HUGE_PAGE_BYTES - 2);
    check(error == 0 || error == -ENOMEM);
    if (error == 0) {
        check_int(lane_file_read(fd, got, 5, HUGE_PAGE_BYTES - 2), 0);
        check_bytes(got, 5, "bytes", 5);
    }
    check_int(lane_file_write(fd, "bytes", 5, 2 * HUGE_PAGE_BYTES - 2), -ENODATA);
    close(fd);
}
