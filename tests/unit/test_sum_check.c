/* SPDX-License-Identifier: Apache-2.0 */
/* Tests sums of bytes that pass in any order. */
#include "source/sum_check.h"

#include "base/hex.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BYTES ((size_t)1 << 20)
#define PIECE ((size_t)64 << 10)
#define COUNT (BYTES / PIECE)

static uint8_t content[BYTES];
static struct source_sum sum;
static struct failure failure;
static int fd;
static atomic_bool is_cancelled;

/* Of `content`, by Python's hashlib and zlib, and bit by bit. */
static const char *const sums[] = {
    [SOURCE_SUM_MD5] = "f3ceec8b1f9c0f29153ff45c96b0b3d5",
    [SOURCE_SUM_SHA1] = "60808f1527cc426fc945f2c6307a5217ff3cb6a2",
    [SOURCE_SUM_SHA256] = "f555e6c9884fc59dd58982eda7390f27522b1025aa1492e5dd2a9c916291b409",
    [SOURCE_SUM_CRC32] = "0f6e9d9b",
    [SOURCE_SUM_CRC32C] = "cb28f6ae",
    [SOURCE_SUM_CRC64NVME] = "56ea26445c2b0550",
};

static void make(enum source_sum_kind kind)
{
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (uint8_t)(i * 13 + i / 255);
    sum.kind = kind;
    require(hex_parse(sums[kind], sum.bytes, strlen(sums[kind]) / 2) == 0);
    fd = memfd_create("store", MFD_CLOEXEC);
    require(fd >= 0 && pwrite(fd, content, BYTES, 100) == (ssize_t)BYTES);
}

static struct sum_check *begin(void)
{
    int error;
    struct sum_check *check = sum_check_new(&sum, BYTES, &is_cancelled, &error);

    require(check && error == 0);
    return check;
}

static void pass(struct sum_check *check, size_t piece, int to)
{
    sum_check_pass(check, piece * PIECE, content + piece * PIECE, PIECE, to, piece * PIECE + 100);
}

static int end(struct sum_check *check)
{
    uint64_t from, size_bytes;
    int error;

    while (sum_check_misses(check, &from, &size_bytes))
        sum_check_pass(check, from, content + from, (size_t)size_bytes, -1, 0);
    error = sum_check_compare(check, &failure);
    sum_check_free(check);
    return error;
}

TAP_TEST(bytes_in_order_and_in_any_order_have_one_sum)
{
    struct sum_check *check;

    for (unsigned kind = SOURCE_SUM_MD5; kind <= SOURCE_SUM_CRC64NVME; kind++) {
        make((enum source_sum_kind)kind);
        check = begin();
        for (size_t i = 0; i < COUNT; i++)
            pass(check, i, -1);
        check_int(end(check), 0);
        check = begin();
        for (size_t i = COUNT; i-- > 0;)
            pass(check, i, fd);
        check_int(end(check), 0);
        check = begin();
        for (size_t i = 0; i < COUNT; i++)
            pass(check, (i * 7 + 3) % COUNT, fd);
        check_int(end(check), 0);
        close(fd);
    }
}

TAP_TEST(missing_bytes_are_told_and_bytes_that_pass_twice_count_once)
{
    struct sum_check *check;

    make(SOURCE_SUM_SHA256);
    check = begin();
    pass(check, 0, fd);
    pass(check, 0, fd);
    sum_check_pass(check, 10, content + 10, PIECE, fd, 110);
    for (size_t i = 2; i < COUNT; i += 2)
        pass(check, i, fd);
    check_int(end(check), 0);
    close(fd);
}

TAP_TEST(a_file_of_which_little_was_read_is_not_asked_for)
{
    uint64_t from, size_bytes;
    struct sum_check *check;

    make(SOURCE_SUM_SHA256);
    check = begin();
    for (size_t i = 0; i < COUNT / 2 - 1; i++)
        pass(check, i, -1);
    check(!sum_check_misses(check, &from, &size_bytes));
    check_int(sum_check_compare(check, &failure), 0);
    sum_check_free(check);
    close(fd);
}

TAP_TEST(a_sum_that_is_cancelled_is_not_known)
{
    struct sum_check *check;

    make(SOURCE_SUM_SHA256);
    content[0] ^= 1;
    check = begin();
    for (size_t i = 1; i < COUNT; i++)
        pass(check, i, fd);
    atomic_store(&is_cancelled, true);
    pass(check, 0, fd);
    check_int(end(check), 0);
    atomic_store(&is_cancelled, false);
    close(fd);
}

TAP_TEST(another_byte_is_found_wherever_it_passes)
{
    struct sum_check *check;
    char text[] = "x";

    make(SOURCE_SUM_SHA256);
    content[BYTES - 1] ^= 1;
    check = begin();
    for (size_t i = 0; i < COUNT; i++)
        pass(check, i, -1);
    check_int(end(check), -EBADMSG);
    check(strstr(failure.text, "their sha256 is") != NULL);
    content[BYTES - 1] ^= 1;
    require(pwrite(fd, text, 1, 100 + 5 * PIECE) == 1);
    check = begin();
    for (size_t i = COUNT; i-- > 0;)
        pass(check, i, fd);
    check_int(end(check), -EBADMSG);
    close(fd);
}

TAP_TEST(sums_of_other_kinds_are_not_known)
{
    int error;

    sum.kind = SOURCE_SUM_NONE;
    check(sum_check_new(&sum, BYTES, &is_cancelled, &error) == NULL);
    check_int(error, 0);
}
