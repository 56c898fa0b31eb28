/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of a move, as lanes read and write it. */
#include "copier/lane_file.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static struct lane_file file;

static int make_memfd(size_t bytes, int seals)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    require(fd >= 0);
    require(ftruncate(fd, (off_t)bytes) == 0);
    require(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void check_write_and_read(uint64_t offset)
{
    char got[5];

    check_int(lane_file_write(&file, "bytes", 5, offset), 0);
    check_int(lane_file_read(&file, got, 5, offset), 0);
    check_bytes(got, 5, "bytes", 5);
    check_int(lane_file_read(&file, got, 1, offset - 1), 0);
    check_int(got[0], 0);
}

TAP_TEST(parts_are_written_and_read_at_their_place)
{
    lane_file_open(&file, make_memfd(3 * 4096, 0), true, 4090, 4100);
    check(!file.map); /* it could shrink */
    check_write_and_read(4094);
    lane_file_close(&file);
}

TAP_TEST(a_file_that_cannot_shrink_is_written_through_a_mapping)
{
    lane_file_open(&file, make_memfd(3 * 4096, F_SEAL_SHRINK), true, 4090, 4100);
    check(file.map != NULL);
    check_write_and_read(4094);
    check_write_and_read(4090 + 4100 - 5);
    lane_file_close(&file);
    lane_file_open(&file, make_memfd(4096, F_SEAL_SHRINK), false, 0, 4096);
    check(!file.map); /* to be read */
    lane_file_close(&file);
}

TAP_TEST(a_file_that_ends_before_is_an_error_and_does_not_grow)
{
    char got[5];

    lane_file_open(&file, make_memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK), true, 4094, 5);
    check(!file.map);
    check_int(lane_file_read(&file, got, 5, 4094), -ENODATA);
    check_int(lane_file_read(&file, got, 5, 9000), -ENODATA);
    check(lane_file_write(&file, "bytes", 5, 4094) < 0);
    check_int(lseek(file.fd, 0, SEEK_END), 4096);
    lane_file_close(&file);
}

TAP_TEST(what_cannot_be_done_is_said_by_errno)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    require(fd >= 0);
    lane_file_open(&file, fd, true, 0, 5);
    check_int(lane_file_write(&file, "bytes", 5, 0), -EBADF);
    lane_file_close(&file);
    fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    require(fd >= 0);
    lane_file_open(&file, fd, true, 0, 5);
    check_int(lane_file_write(&file, "bytes", 5, 0), -ENOSPC);
    lane_file_close(&file);
}

/* On a machine without such pages a page cannot be had, and nobody dies of it. */
TAP_TEST(a_file_in_huge_pages_is_written_though_write_cannot)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);

    if (fd < 0)
        return;
    require(ftruncate(fd, (off_t)(2 * HUGE_PAGE_BYTES)) == 0);
    require(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    lane_file_open(&file, fd, true, HUGE_PAGE_BYTES - 2, 5);
    if (file.map)
        check_write_and_read(HUGE_PAGE_BYTES - 2);
    else
        check(lane_file_write(&file, "bytes", 5, HUGE_PAGE_BYTES - 2) < 0);
    lane_file_close(&file);
}
