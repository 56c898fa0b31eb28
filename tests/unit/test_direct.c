/* SPDX-License-Identifier: Apache-2.0 */
/* Tests reads past the page cache: the bytes are the same as through it, at any offset and size. */
#include "source/direct.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define FILE_BYTES ((size_t)3 * 1000 * 1000 + 17)
#define ROOM_BYTES ((size_t)256 << 10)
#define PART_BYTES (1u << 20)
#define GIB        (UINT64_C(1) << 30)

static uint8_t *bytes_of_file;

/* Makes a file without a name, on the tests' file system; sync: also on the disk. */
static int make_file(bool is_kept_in_cache)
{
    const char *dir = getenv("TMPDIR");
    int fd = open(dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    require(fd >= 0);
    bytes_of_file = malloc(FILE_BYTES);
    require(bytes_of_file);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes_of_file[i] = (uint8_t)(i * 7 + i / 251);
    require(pwrite(fd, bytes_of_file, FILE_BYTES, 0) == (ssize_t)FILE_BYTES);
    require(fsync(fd) == 0);
    if (!is_kept_in_cache)
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    return fd;
}

static void drop_file(int fd)
{
    close(fd);
    free(bytes_of_file);
}

/* Reads by as many calls as needed. */
static bool reads_right(struct direct_file *file, uint8_t *room, uint64_t at, size_t size_bytes)
{
    while (size_bytes > 0) {
        size_t step = direct_fit(file, at, size_bytes, ROOM_BYTES);
        uint8_t *bytes;

        if (step == 0 || direct_read(file, room, at, step, &bytes) != 0 || bytes < room ||
            bytes + step > room + ROOM_BYTES || memcmp(bytes, bytes_of_file + at, step) != 0)
            return false;
        at += step;
        size_bytes -= step;
    }
    return true;
}

static void check_places(enum direct_use use)
{
    static const uint64_t begins[] = {0, 1, 511, 4095, 4096, 4097, 1000 * 1000, FILE_BYTES - 4097};
    static const size_t sizes[] = {1, 4095, 4096, 65535, 65536, 65537, 262144, 1000 * 1000};
    uint8_t *room = aligned_alloc(DIRECT_ALIGN_BYTES, ROOM_BYTES);
    int fd = make_file(false);
    struct direct_file file;

    require(room);
    direct_open(&file, fd, use, 0, FILE_BYTES);
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++)
            if (begins[i] + sizes[j] <= FILE_BYTES)
                check(reads_right(&file, room, begins[i], sizes[j]));
    check(reads_right(&file, room, 0, FILE_BYTES));
    direct_close(&file);
    drop_file(fd);
    free(room);
}

TAP_TEST(bytes_from_and_to_anywhere_are_read_past_the_cache)
{
    check_places(DIRECT_ALWAYS);
}

TAP_TEST(and_through_it)
{
    check_places(DIRECT_NEVER);
}

TAP_TEST(a_file_that_ends_before_is_told)
{
    enum direct_use uses[] = {DIRECT_ALWAYS, DIRECT_NEVER};
    uint8_t *room = aligned_alloc(DIRECT_ALIGN_BYTES, ROOM_BYTES), *bytes;

    require(room);
    for (size_t i = 0; i < 2; i++) {
        int fd = make_file(false);
        struct direct_file file;

        direct_open(&file, fd, uses[i], 0, FILE_BYTES);
        require(ftruncate(fd, 150000) == 0);
        check(direct_read(&file, room, 100000, 50000, &bytes) == 0);
        check(direct_read(&file, room, 100000, 50001, &bytes) == -ENODATA);
        check(direct_read(&file, room, 100000, 100000, &bytes) == -ENODATA);
        check(direct_read(&file, room, 150000, 1, &bytes) == -ENODATA);
        check(direct_read(&file, room, 1000000, 100000, &bytes) == -ENODATA);
        direct_close(&file);
        drop_file(fd);
    }
    free(room);
}

TAP_TEST(a_read_begins_aligned_unless_it_is_the_first)
{
    struct direct_file file = {.direct_fd = 0};

    check(direct_fit(&file, 100, 1000000, ROOM_BYTES) == ROOM_BYTES - 100);
    check(direct_fit(&file, 4096, 1000000, ROOM_BYTES) == ROOM_BYTES);
    check(direct_fit(&file, 4095, 1000000, 8192 + 5) == 4097);
    check(direct_fit(&file, 100, 77, ROOM_BYTES) == 77);
    check(direct_room_bytes(1) == 8192);
    check(direct_room_bytes(4096) == 8192);
    check(direct_room_bytes(4097) == 12288);
    file.direct_fd = -1;
    check(direct_fit(&file, 100, 1000000, ROOM_BYTES) == ROOM_BYTES);
}

/* Moved pieces of any size still cover the whole, without gap or overlap. */
TAP_TEST(moved_pieces_cover_the_whole)
{
    for (uint64_t offset = 0; offset < 10000; offset += 333) {
        uint64_t whole = 100001, covered = 0;

        for (uint64_t at = 0; at < whole; at += 8192) {
            uint64_t begin = at, end = at + 8192 < whole ? at + 8192 : whole;
            direct_align(offset, whole, &begin, &end);
            check(begin == covered);
            check(begin == 0 || (offset + begin) % DIRECT_ALIGN_BYTES == 0);
            covered = end;
        }
        check(covered == whole);
    }
}

TAP_TEST(files_that_the_cache_can_hold_are_read_through_it)
{
    check(direct_decide(DIRECT_AUTO, 8 * GIB, 0, 8 * GIB) == DIRECT_NEVER);
    check(direct_decide(DIRECT_AUTO, 8 * GIB, 0, 8 * GIB - 1) == DIRECT_AUTO);
    check(direct_decide(DIRECT_AUTO, 8 * GIB, 8 * GIB, 16 * GIB) == DIRECT_NEVER);
    check(direct_decide(DIRECT_AUTO, 8 * GIB, 8 * GIB + 1, 16 * GIB) == DIRECT_AUTO);
    check(direct_decide(DIRECT_AUTO, 1, 8 * GIB, 1 * GIB) == DIRECT_AUTO);
    check(direct_decide(DIRECT_AUTO, UINT64_MAX, 1, UINT64_MAX) == DIRECT_AUTO);
    check(direct_decide(DIRECT_ALWAYS, 1, 0, GIB) == DIRECT_ALWAYS);
    check(direct_decide(DIRECT_NEVER, GIB, 0, 0) == DIRECT_NEVER);
}

TAP_TEST(cached_bytes_are_read_through_the_cache)
{
    int fd = make_file(true);
    struct direct_file file;

    check(direct_count_cached(fd, 0, FILE_BYTES) >= FILE_BYTES);
    direct_open(&file, fd, DIRECT_AUTO, 0, FILE_BYTES);
    check(!direct_is_on(&file));
    direct_close(&file);
    drop_file(fd);
}

TAP_TEST(cached_bytes_are_counted_in_the_part_that_is_read)
{
    const char *dir = getenv("TMPDIR");
    auto_fd fd = open(dir ? dir : "/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    uint64_t whole = 4 * PART_BYTES;
    char *part = calloc(1, PART_BYTES);
    struct direct_file file;

    /* A hole, except for the second part. */
    require(fd >= 0 && part && ftruncate(fd, (off_t)whole) == 0);
    require(pwrite(fd, part, PART_BYTES, PART_BYTES) == (ssize_t)PART_BYTES);
    free(part);
    check_int(direct_count_cached(fd, 0, PART_BYTES), 0);
    check_int(direct_count_cached(fd, PART_BYTES, PART_BYTES), PART_BYTES);
    check_int(direct_count_cached(fd, PART_BYTES + 100, 1), DIRECT_ALIGN_BYTES);
    check_int(direct_count_cached(fd, 2 * PART_BYTES, 2 * PART_BYTES), 0);
    check_int(direct_count_cached(fd, 0, whole), PART_BYTES);
    direct_open(&file, fd, DIRECT_AUTO, PART_BYTES, PART_BYTES);
    check(!direct_is_on(&file));
    direct_close(&file);
}

TAP_TEST(the_option_has_three_words)
{
    enum direct_use use = DIRECT_AUTO;

    check(direct_parse("always", &use) == 0 && use == DIRECT_ALWAYS);
    check(direct_parse("never", &use) == 0 && use == DIRECT_NEVER);
    check(direct_parse("auto", &use) == 0 && use == DIRECT_AUTO);
    check(direct_parse("", &use) == -EINVAL);
    check(direct_parse("alway", &use) == -EINVAL);
}
