/* SPDX-License-Identifier: Apache-2.0 */
/* The other side of a move, as lanes read and write it. */
#include "copier/lane_file.h"

#include "vmm/memfd.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

static struct lane_maps maps;
static struct lane_file file;

static int make_memfd(size_t bytes, int seals)
{
    int fd = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    require(fd >= 0);
    require(ftruncate(fd, (off_t)bytes) == 0);
    require(fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

/* In huge pages where the kernel has some; -1: this user may not. */
static int make_huge(size_t bytes)
{
    int directory = memfd_open_huge(), fd;

    if (directory < 0)
        return -1;
    fd = memfd_make_in(directory);
    close(directory);
    require(fd >= 0);
    require(ftruncate(fd, (off_t)bytes) == 0);
    return fd;
}

static unsigned count_maps(void)
{
    unsigned count = 0;

    for (unsigned i = 0; i < LANE_MAPS; i++)
        count += maps.all[i].at != NULL;
    return count;
}

/* How many mappings went with it. */
static unsigned close_one(struct lane_file *one)
{
    struct lane_map old[LANE_MAPS];
    unsigned count = lane_file_close(one, &maps, old);

    lane_maps_unmap(old, count);
    return count;
}

/* The last one. */
static void close_file(void)
{
    close_one(&file);
    check_int(count_maps(), 0);
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
    lane_file_open(&file, &maps, make_memfd(3 * 4096, 0), true, 4090, 4100);
    check(!file.map); /* its pages are small */
    check_write_and_read(4094);
    close_file();
}

TAP_TEST(a_file_of_huge_pages_is_written_through_a_mapping)
{
    int fd = make_huge(2 * HUGE_PAGE_BYTES);

    if (fd < 0)
        return;
    lane_file_open(&file, &maps, dup(fd), true, HUGE_PAGE_BYTES, 100);
    check(file.map != NULL);
    check_write_and_read(HUGE_PAGE_BYTES + 3);
    check_write_and_read(2 * HUGE_PAGE_BYTES - 5);
    close_file();
    lane_file_open(&file, &maps, fd, false, 0, 4096);
    check(!file.map); /* to be read */
    close_file();
}

TAP_TEST(moves_of_one_file_share_a_mapping_that_goes_with_the_last_of_all)
{
    int fd = make_huge(HUGE_PAGE_BYTES), next = make_huge(HUGE_PAGE_BYTES);
    struct lane_file again, other;

    if (fd < 0)
        return;
    lane_file_open(&file, &maps, dup(fd), true, 0, 4096);
    lane_file_open(&again, &maps, dup(fd), true, 0, 1);
    lane_file_open(&other, &maps, next, true, 0, 1);
    require(file.map && other.map);
    check(other.map != file.map);
    check((again.map == file.map) == ((file.map->facts.stx_mask & STATX_BTIME) != 0));
    close_one(&again);
    check(file.map->at != NULL);
    close_one(&other);
    lane_file_open(&again, &maps, fd, true, 0, 1);
    check_int(lane_file_write(&again, "bytes", 5, 0), 0);
    close_one(&again);
    close_file();
}

TAP_TEST(a_mapping_that_later_moves_do_not_want_goes_while_they_run)
{
    int fd = make_huge(HUGE_PAGE_BYTES), other = make_huge(HUGE_PAGE_BYTES);
    struct lane_file next;

    if (fd < 0)
        return;
    lane_file_open(&file, &maps, fd, true, 0, 4096);
    require(file.map);
    lane_file_open(&next, &maps, other, true, 0, 1);
    require(next.map);
    close_one(&next);
    for (unsigned i = 0; i < 64; i++) {
        lane_file_open(&next, &maps, dup(fd), true, 0, 1);
        close_one(&next);
    }
    check_int(count_maps(), 1);
    close_file();
}

TAP_TEST(more_files_than_mappings_are_written_all_the_same)
{
    struct lane_file files[LANE_MAPS + 1];

    for (unsigned i = 0; i <= LANE_MAPS; i++) {
        int fd = make_huge(HUGE_PAGE_BYTES);
        if (fd < 0)
            return;
        lane_file_open(&files[i], &maps, fd, true, 0, 4096);
    }
    check(files[LANE_MAPS - 1].map != NULL);
    check(!files[LANE_MAPS].map);
    for (unsigned i = 0; i <= LANE_MAPS; i++)
        check_int(lane_file_write(&files[i], "bytes", 5, 4091), 0);
    for (unsigned i = 0; i <= LANE_MAPS; i++)
        close_one(&files[i]);
    check_int(count_maps(), 0);
}

TAP_TEST(a_file_that_ends_before_is_an_error_and_does_not_grow)
{
    char got[5];

    lane_file_open(&file, &maps, make_memfd(4096, F_SEAL_GROW | F_SEAL_SHRINK), true, 4094, 5);
    check(!file.map);
    check_int(lane_file_read(&file, got, 5, 4094), -ENODATA);
    check_int(lane_file_read(&file, got, 5, 9000), -ENODATA);
    check(lane_file_write(&file, "bytes", 5, 4094) < 0);
    check_int(lseek(file.fd, 0, SEEK_END), 4096);
    close_file();
}

/* Blocks go past the page cache as long as the file system takes them; where it has no such files,
 * all goes through it. */
TAP_TEST(what_a_file_system_refuses_past_the_page_cache_goes_through_it)
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
    lane_file_open(&file, &maps, fd, true, 0, 3 * 4096);
    for (uint64_t offset = 0; offset < 3 * 4096; offset += 4096)
        check_int(lane_file_write(&file, block, 4096, offset), 0);
    check_int(lane_file_read(&file, block, 4096, 4096), 0);
    check_int(fcntl(fd, F_GETFL), flags);
    check_write_and_read(4094);
    check_int(lane_file_read(&file, got, 5, 3 * 4096 - 4), -ENODATA);
    close_file();
    free(block);
}

TAP_TEST(what_cannot_be_done_is_said_by_errno)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    require(fd >= 0);
    lane_file_open(&file, &maps, fd, true, 0, 5);
    check_int(lane_file_write(&file, "bytes", 5, 0), -EBADF);
    close_file();
    fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    require(fd >= 0);
    lane_file_open(&file, &maps, fd, true, 0, 5);
    check_int(lane_file_write(&file, "bytes", 5, 0), -ENOSPC);
    close_file();
}

/* On a machine without such pages a page cannot be had, and nobody dies of it. */
TAP_TEST(a_file_in_huge_pages_is_written_though_write_cannot)
{
    int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | MFD_HUGE_2MB);

    if (fd < 0)
        return;
    require(ftruncate(fd, (off_t)(2 * HUGE_PAGE_BYTES)) == 0);
    require(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    lane_file_open(&file, &maps, fd, true, HUGE_PAGE_BYTES - 2, 5);
    if (file.map)
        check_write_and_read(HUGE_PAGE_BYTES - 2);
    else
        check(lane_file_write(&file, "bytes", 5, HUGE_PAGE_BYTES - 2) < 0);
    close_file();
}
