/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the file side of a move, as lanes read and write it. */
#include "copier/lane_file.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
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
    file = (struct lane_file){.fd = make_memfd(3 * 4096, 0)};
    check_write_and_read(4094);
    close(file.fd);
}

TAP_TEST(a_file_that_ends_before_is_an_error_and_does_not_grow)
{
    char got[5];

    file = (struct lane_file){.fd = make_memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK)};
    check_int(lane_file_read(&file, got, 5, 4094), -ENODATA);
    check_int(lane_file_read(&file, got, 5, 9000), -ENODATA);
    check(lane_file_write(&file, "bytes", 5, 4094) < 0);
    check_int(lseek(file.fd, 0, SEEK_END), 4096);
    close(file.fd);
}

/* Blocks go past the page cache as long as the file system accepts them; without such files, all go
 * through it. */
TAP_TEST(blocks_refused_past_the_page_cache_go_through_it)
{
    int fd = open("/tmp", O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    char *block = aligned_alloc(4096, 4096), got[5];
    int flags;

    require(block != NULL);
    memset(block, 0, 4096);
    if (fd < 0)
        fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    require(fd >= 0);
    flags = fcntl(fd, F_GETFL);
    file = (struct lane_file){.fd = fd};
    for (uint64_t offset = 0; offset < 3 * 4096; offset += 4096)
        check_int(lane_file_write(&file, block, 4096, offset), 0);
    check_int(lane_file_read(&file, block, 4096, 4096), 0);
    check_int(fcntl(fd, F_GETFL), flags);
    check_write_and_read(4094);
    check_int(lane_file_read(&file, got, 5, 3 * 4096 - 4), -ENODATA);
    close(file.fd);
    free(block);
}

TAP_TEST(failures_are_reported_by_errno)
{
    file = (struct lane_file){.fd = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    require(file.fd >= 0);
    check_int(lane_file_write(&file, "bytes", 5, 0), -EBADF);
    close(file.fd);
    file.fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    require(file.fd >= 0);
    check_int(lane_file_write(&file, "bytes", 5, 0), -ENOSPC);
    close(file.fd);
}

TAP_TEST(a_mapped_file_is_written_there_while_another_thread_writes)
{
    atomic_bool is_written = false;
    char *at;

    file = (struct lane_file){.fd = make_memfd(2 * 4096, 0), .at_begin = 4096};
    at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 4096);
    require(at != MAP_FAILED);
    file.at = at;
    check_write_and_read(4097);
    check_bytes(at + 1, 5, "bytes", 5);
    file.is_written = &is_written;
    check_write_and_read(5000);
    check(!is_written);
    is_written = true;
    check_write_and_read(6000);
    check(is_written);
    munmap(at, 4096);
    close(file.fd);
}

/* On a machine without such pages the result is an errno, not a signal. */
TAP_TEST(a_page_that_cannot_be_made_is_an_errno)
{
    auto_fd fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);
    char *at;
    int error;

    if (fd < 0)
        return;
    require(ftruncate(fd, (off_t)HUGE_PAGE_BYTES) == 0);
    at = mmap(NULL, HUGE_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    require(at != MAP_FAILED);
    error = lane_file_make_pages(at, HUGE_PAGE_BYTES);
    check(error == 0 || error == -ENOSPC);
    if (error == 0)
        memset(at, 1, HUGE_PAGE_BYTES);
    munmap(at, HUGE_PAGE_BYTES);
}
