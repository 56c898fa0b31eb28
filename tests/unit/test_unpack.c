/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the msgpack reader: values it accepts and refuses, and its position after a refusal. */
#include "pack/unpack.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

/* A copy of exactly this size, so that the sanitizer sees any read beyond it. */
static struct unpack open_bytes(const void *bytes, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    require(copy != NULL);
    memcpy(copy, bytes, size);
    return (struct unpack){copy, copy + size};
}

#define LITERAL(text) (text), sizeof(text) - 1

static void expect_int(const void *bytes, size_t size, uint64_t magnitude, bool is_negative)
{
    struct unpack unpack = open_bytes(bytes, size);
    const uint8_t *start = unpack.at;
    uint64_t value, found;
    bool sign;

    if (is_negative)
        check_int(unpack_uint(&unpack, &value), -EINVAL);
    check(unpack.at == start);
    check_int(unpack_int(&unpack, &found, &sign), 0);
    check_int(found, magnitude);
    check_int(sign, is_negative);
    check(unpack.at == unpack.end);
    unpack.at = start;
    if (!is_negative) {
        check_int(unpack_uint(&unpack, &value), 0);
        check_int(value, magnitude);
    }
    free((void *)start);
}

TAP_TEST(an_integer_comes_in_every_width_and_keeps_its_sign)
{
    expect_int(LITERAL("\x00"), 0, false);
    expect_int(LITERAL("\x7f"), 127, false);
    expect_int(LITERAL("\xff"), 1, true);
    expect_int(LITERAL("\xe0"), 32, true);
    expect_int(LITERAL("\xcc\xff"), 255, false);
    expect_int(LITERAL("\xcd\x00\x01"), 1, false);
    expect_int(LITERAL("\xce\xff\xff\xff\xff"), UINT32_MAX, false);
    expect_int(LITERAL("\xcf\xff\xff\xff\xff\xff\xff\xff\xff"), UINT64_MAX, false);
    expect_int(LITERAL("\xd0\x7f"), 127, false);
    expect_int(LITERAL("\xd0\x80"), 128, true);
    expect_int(LITERAL("\xd1\xff\xff"), 1, true);
    expect_int(LITERAL("\xd1\x80\x00"), 32768, true);
    expect_int(LITERAL("\xd2\x80\x00\x00\x00"), 2147483648u, true);
    expect_int(LITERAL("\xd3\x00\x00\x00\x00\x00\x00\x00\x00"), 0, false);
    expect_int(LITERAL("\xd3\xff\xff\xff\xff\xff\xff\xff\xff"), 1, true);
    expect_int(LITERAL("\xd3\x80\x00\x00\x00\x00\x00\x00\x00"), UINT64_C(1) << 63, true);
}

TAP_TEST(a_value_that_is_no_integer_is_refused_in_place)
{
    static const char *const others[] = {"",     "\xc0", "\xc2",     "\xca\1\1\1\1", "\xa0", "\x90",
                                         "\x80", "\xcc", "\xcd\x01", "\xd3\1\1\1",   "\xd4"};
    uint64_t magnitude;
    bool is_negative;

    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct unpack unpack = open_bytes(others[i], strlen(others[i]));
        const uint8_t *start = unpack.at;
        check_int(unpack_int(&unpack, &magnitude, &is_negative), -EINVAL);
        check_int(unpack_uint(&unpack, &magnitude), -EINVAL);
        check(unpack.at == start);
        free((void *)start);
    }
}

TAP_TEST(a_value_that_is_cut_off_is_refused_in_place)
{
    static const uint8_t text[] = {0xd9, 5, 'a', 'b'}, bytes[] = {0xc4, 3, 1, 2};
    static const uint8_t number[] = {0xcf, 1, 2, 3}, count[] = {0xdd, 0xff, 0xff};
    struct unpack unpack = {text, text + sizeof text};
    const char *at;
    const uint8_t *value;
    size_t size;
    uint32_t items;
    uint64_t read;

    check_int(unpack_str(&unpack, &at, &size), -EINVAL);
    check(unpack.at == text);
    unpack = (struct unpack){bytes, bytes + sizeof bytes};
    check_int(unpack_bin(&unpack, &value, &size), -EINVAL);
    check(unpack.at == bytes);
    unpack = (struct unpack){number, number + sizeof number};
    check_int(unpack_uint(&unpack, &read), -EINVAL);
    check(unpack.at == number);
    unpack = (struct unpack){count, count + sizeof count};
    check_int(unpack_array(&unpack, &items), -EINVAL);
    check(unpack.at == count);
    unpack = (struct unpack){number, number};
    check_int(unpack_uint(&unpack, &read), -EINVAL);
    check_int(unpack_map(&unpack, &items), -EINVAL);
    check(!unpack_nil(&unpack));
}

TAP_TEST(a_bool_is_one_of_two_bytes_and_no_number)
{
    struct unpack unpack = open_bytes(LITERAL("\xc3\xc2\x01"));
    const uint8_t *start = unpack.at;
    bool value = false;

    check_int(unpack_bool(&unpack, &value), 0);
    check(value);
    check_int(unpack_bool(&unpack, &value), 0);
    check(!value);
    check_int(unpack_bool(&unpack, &value), -EINVAL);
    check_int(unpack_left(&unpack), 1);
    unpack.at = unpack.end;
    check_int(unpack_bool(&unpack, &value), -EINVAL);
    free((void *)start);
}

/* Skipped whole with a byte after it; refused with any of its bytes missing. */
static void expect_skipped(const void *bytes, size_t size)
{
    uint8_t longer[700];
    struct unpack unpack;

    require(size < sizeof longer);
    memcpy(longer, bytes, size);
    longer[size] = 0xc1;
    unpack = open_bytes(longer, size + 1);
    const uint8_t *start = unpack.at;
    check_int(unpack_skip(&unpack), 0);
    check_int(unpack.at - start, (int64_t)size);
    free((void *)start);
    for (size_t cut = 0; cut < size; cut++) {
        unpack = open_bytes(bytes, cut);
        start = unpack.at;
        check_int(unpack_skip(&unpack), -EINVAL);
        check(unpack.at == start);
        free((void *)start);
    }
}

/* A first byte, a number of so many bytes with this value, and zeros after it. */
static void expect_sized(int first, size_t width, uint64_t number, size_t zeros)
{
    uint8_t bytes[600] = {(uint8_t)first};

    for (size_t i = 0; i < width; i++)
        bytes[1 + i] = (uint8_t)(number >> 8 * (width - 1 - i));
    expect_skipped(bytes, 1 + width + zeros);
}

TAP_TEST(every_kind_of_value_is_skipped_to_its_last_byte)
{
    static const size_t fixed[] = {
        [0xc0] = 0, [0xc2] = 0, [0xc3] = 0, [0xca] = 4, [0xcb] = 8, [0xcc] = 1,
        [0xcd] = 2, [0xce] = 4, [0xcf] = 8, [0xd0] = 1, [0xd1] = 2, [0xd2] = 4,
        [0xd3] = 8, [0xd4] = 2, [0xd5] = 3, [0xd6] = 5, [0xd7] = 9, [0xd8] = 17};

    for (size_t first = 0; first < 0x100; first++) {
        if (first < 0x80 || first >= 0xe0)
            expect_sized((int)first, 0, 0, 0);
        else if (first < 0xc0)
            expect_sized((int)first, 0, 0,
                         first < 0x90   ? 2 * (first - 0x80)
                         : first < 0xa0 ? first - 0x90
                                        : first - 0xa0);
        else if (first <= 0xd8 && first != 0xc1 && !(first >= 0xc4 && first <= 0xc9))
            expect_sized((int)first, 0, 0, fixed[first]);
    }
    for (int wide = 0; wide < 3; wide++) {
        expect_sized(0xc4 + wide, (size_t)1 << wide, 200, 200); /* bin */
        expect_sized(0xc7 + wide, (size_t)1 << wide, 200, 201); /* ext and its type */
        expect_sized(0xd9 + wide, (size_t)1 << wide, 200, 200); /* str */
    }
    for (int wide = 0; wide < 2; wide++) {
        expect_sized(0xdc + wide, (size_t)2 << wide, 200, 200); /* array */
        expect_sized(0xde + wide, (size_t)2 << wide, 200, 400); /* map */
    }
}

TAP_TEST(a_skipped_value_may_hold_anything_in_any_depth)
{
    size_t depth = 1000000;
    auto_free uint8_t *bytes = malloc(depth + 1);
    struct unpack unpack;

    /* [{nil: [ext, "\xff"], 1: {}}, bin] */
    expect_skipped(LITERAL("\x92\x82\xc0\x92\xd4\x05\x00\xa1\xff\x01\x80\xc4\x02\x91\x91"));
    require(bytes != NULL);
    memset(bytes, 0x91, depth);
    bytes[depth] = 0xc0;
    unpack = (struct unpack){bytes, bytes + depth + 1};
    check_int(unpack_skip(&unpack), 0);
    check_int(unpack_left(&unpack), 0);
    unpack = (struct unpack){bytes, bytes + depth};
    check_int(unpack_skip(&unpack), -EINVAL);
    check(unpack.at == bytes);
}

TAP_TEST(counts_that_the_bytes_cannot_hold_are_refused_before_they_are_counted_out)
{
    static const char lies[][12] = {"\xdd\xff\xff\xff\xff\xc0", "\xdf\xff\xff\xff\xff\xc0",
                                    "\xc6\xff\xff\xff\xff\xc0", "\xc9\xff\xff\xff\xff\xc0",
                                    "\xdb\xff\xff\xff\xff\xc0", "\x92\x92\x92\x92\xc0\xc0\xc0\xc0",
                                    "\xde\x01\x01\xc0\xc0\xc0"};

    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        struct unpack unpack = open_bytes(lies[i], strlen(lies[i]));
        const uint8_t *start = unpack.at;
        check_int(unpack_skip(&unpack), -EINVAL);
        check(unpack.at == start);
        free((void *)start);
    }
}

TAP_TEST(the_byte_that_msgpack_never_uses_is_no_value)
{
    struct unpack unpack = open_bytes(LITERAL("\x91\xc1"));
    const uint8_t *start = unpack.at;

    check_int(unpack_skip(&unpack), -EINVAL);
    unpack.at++;
    check_int(unpack_skip(&unpack), -EINVAL);
    free((void *)start);
}
