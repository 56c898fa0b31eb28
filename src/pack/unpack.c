/* SPDX-License-Identifier: Apache-2.0 */
#include "unpack.h"

#include <errno.h>

/* First bytes of values, from the msgpack specification. */
enum {
    POSITIVE_FIXINT_LAST = 0x7f,
    FIXMAP_FIRST = 0x80,
    FIXARRAY_FIRST = 0x90,
    FIXSTR_FIRST = 0xa0,
    NIL = 0xc0,
    NEVER_USED = 0xc1,
    FALSE = 0xc2,
    TRUE = 0xc3,
    BIN_8 = 0xc4, /* 16, 32 follow */
    UINT_8 = 0xcc,
    UINT_64 = 0xcf,
    INT_8 = 0xd0,
    INT_64 = 0xd3,
    STR_8 = 0xd9,    /* 16, 32 follow */
    ARRAY_16 = 0xdc, /* 32 follows */
    MAP_16 = 0xde,   /* 32 follows */
    NEGATIVE_FIXINT_FIRST = 0xe0,
};

size_t unpack_left(const struct unpack *unpack)
{
    return (size_t)(unpack->end - unpack->at);
}

/* Returns the first byte, or -1 at the end. */
static int first_byte(const struct unpack *unpack)
{
    return unpack->at < unpack->end ? *unpack->at : -1;
}

/* Reads a big-endian number of this width after the first byte, without moving the reader. */
static int peek_number(const struct unpack *unpack, size_t width, uint64_t *value)
{
    uint64_t number = 0;

    if (unpack_left(unpack) < 1 + width)
        return -EINVAL;
    for (size_t i = 1; i <= width; i++)
        number = number << 8 | unpack->at[i];
    *value = number;
    return 0;
}

/* Reads the first byte and such a number. */
static int read_number(struct unpack *unpack, size_t width, uint64_t *value)
{
    int error = peek_number(unpack, width, value);

    if (error == 0)
        unpack->at += 1 + width;
    return error;
}

static int read_count(struct unpack *unpack, int fix_first, int wide_first, uint32_t *count)
{
    int first = first_byte(unpack);
    uint64_t value;
    int error = -EINVAL;

    if (first >= fix_first && first < fix_first + 16) {
        *count = (uint32_t)(first - fix_first);
        unpack->at++;
        return 0;
    }
    if (first == wide_first)
        error = read_number(unpack, 2, &value);
    else if (first == wide_first + 1)
        error = read_number(unpack, 4, &value);
    if (error == 0)
        *count = (uint32_t)value;
    return error;
}

int unpack_map(struct unpack *unpack, uint32_t *count)
{
    return read_count(unpack, FIXMAP_FIRST, MAP_16, count);
}

int unpack_array(struct unpack *unpack, uint32_t *count)
{
    return read_count(unpack, FIXARRAY_FIRST, ARRAY_16, count);
}

int unpack_int(struct unpack *unpack, uint64_t *magnitude, bool *is_negative)
{
    int first = first_byte(unpack);
    uint64_t value;

    *is_negative = first >= NEGATIVE_FIXINT_FIRST;
    if ((first >= 0 && first <= POSITIVE_FIXINT_LAST) || *is_negative) {
        *magnitude = *is_negative ? 0x100u - (unsigned)first : (unsigned)first;
        unpack->at++;
        return 0;
    }
    if (first >= UINT_8 && first <= UINT_64)
        return read_number(unpack, (size_t)1 << (first - UINT_8), magnitude);
    if (first < INT_8 || first > INT_64)
        return -EINVAL;
    size_t width = (size_t)1 << (first - INT_8);
    int error = read_number(unpack, width, &value);
    if (error < 0)
        return error;
    *is_negative = value >> (width * 8 - 1);
    /* Two's complement of this width. */
    *magnitude = *is_negative ? (~value & UINT64_MAX >> (64 - width * 8)) + 1 : value;
    return 0;
}

int unpack_uint(struct unpack *unpack, uint64_t *value)
{
    struct unpack ahead = *unpack;
    uint64_t magnitude;
    bool is_negative;

    if (unpack_int(&ahead, &magnitude, &is_negative) < 0 || is_negative)
        return -EINVAL;
    *unpack = ahead;
    *value = magnitude;
    return 0;
}

/* Reads a length of 1, 2 or 4 bytes by the first byte, and points at the bytes after it. */
static int read_bytes(struct unpack *unpack, int wide_first, const uint8_t **bytes, size_t *size)
{
    int first = first_byte(unpack);
    uint64_t length;

    if (first < wide_first || first > wide_first + 2)
        return -EINVAL;
    size_t width = (size_t)1 << (first - wide_first);
    if (peek_number(unpack, width, &length) < 0 || length > unpack_left(unpack) - 1 - width)
        return -EINVAL;
    *bytes = unpack->at + 1 + width;
    *size = (size_t)length;
    unpack->at += 1 + width + length;
    return 0;
}

int unpack_str(struct unpack *unpack, const char **text, size_t *bytes)
{
    int first = first_byte(unpack);
    const uint8_t *start;
    size_t length;
    int error;

    if (first >= FIXSTR_FIRST && first < FIXSTR_FIRST + 32) {
        length = (size_t)(first - FIXSTR_FIRST);
        if (unpack_left(unpack) < 1 + length)
            return -EINVAL;
        start = unpack->at + 1;
        unpack->at += 1 + length;
    } else {
        error = read_bytes(unpack, STR_8, &start, &length);
        if (error < 0)
            return error;
    }
    *text = (const char *)start;
    *bytes = length;
    return 0;
}

int unpack_bin(struct unpack *unpack, const uint8_t **value, size_t *bytes)
{
    return read_bytes(unpack, BIN_8, value, bytes);
}

bool unpack_nil(struct unpack *unpack)
{
    if (first_byte(unpack) != NIL)
        return false;
    unpack->at++;
    return true;
}

int unpack_bool(struct unpack *unpack, bool *value)
{
    int first = first_byte(unpack);

    if (first != FALSE && first != TRUE)
        return -EINVAL;
    *value = first == TRUE;
    unpack->at++;
    return 0;
}

/* Extent of a value with a first byte from NIL to 0xdf: the width of its count, its fixed bytes,
 * and the bytes and items per count. */
static const struct {
    uint8_t number, bytes, bytes_each, items_each;
} extents[NEGATIVE_FIXINT_FIRST - NIL] = {
    [BIN_8 - NIL] = {1, 0, 1, 0},
    {2, 0, 1, 0},
    {4, 0, 1, 0}, /* bin */
    [0xc7 - NIL] = {1, 1, 1, 0},
    {2, 1, 1, 0},
    {4, 1, 1, 0}, /* ext: its type */
    [0xca - NIL] = {0, 4, 0, 0},
    {0, 8, 0, 0}, /* float */
    [UINT_8 - NIL] = {0, 1, 0, 0},
    {0, 2, 0, 0},
    {0, 4, 0, 0},
    {0, 8, 0, 0},
    [INT_8 - NIL] = {0, 1, 0, 0},
    {0, 2, 0, 0},
    {0, 4, 0, 0},
    {0, 8, 0, 0},
    [0xd4 - NIL] = {0, 2, 0, 0},
    {0, 3, 0, 0},
    {0, 5, 0, 0},
    {0, 9, 0, 0},
    {0, 17, 0, 0},
    [STR_8 - NIL] = {1, 0, 1, 0},
    {2, 0, 1, 0},
    {4, 0, 1, 0},
    [ARRAY_16 - NIL] = {2, 0, 0, 1},
    {4, 0, 0, 1},
    [MAP_16 - NIL] = {2, 0, 0, 2},
    {4, 0, 0, 2},
};

/* Computes the bytes of a value without its items, and the number of its items. */
static int measure(const struct unpack *unpack, uint64_t *bytes, uint64_t *items)
{
    int first = first_byte(unpack);
    uint64_t number = 0;

    *bytes = 1;
    *items = 0;
    if (first < 0 || first == NEVER_USED)
        return -EINVAL;
    if (first >= NIL && first < NEGATIVE_FIXINT_FIRST) {
        int row = first - NIL;
        if (peek_number(unpack, extents[row].number, &number) < 0)
            return -EINVAL;
        *bytes += extents[row].number + extents[row].bytes + number * extents[row].bytes_each;
        *items = number * extents[row].items_each;
    } else if (first >= FIXSTR_FIRST && first < NIL) {
        *bytes += (uint64_t)(first - FIXSTR_FIRST);
    } else if (first >= FIXARRAY_FIRST && first < FIXSTR_FIRST) {
        *items = (uint64_t)(first - FIXARRAY_FIRST);
    } else if (first >= FIXMAP_FIRST && first < FIXARRAY_FIRST) {
        *items = 2 * (uint64_t)(first - FIXMAP_FIRST);
    }
    return *bytes <= unpack_left(unpack) ? 0 : -EINVAL;
}

int unpack_skip(struct unpack *unpack)
{
    struct unpack ahead = *unpack;
    uint64_t expected = 1;

    while (expected > 0) {
        uint64_t bytes, items;
        if (measure(&ahead, &bytes, &items) < 0)
            return -EINVAL;
        ahead.at += bytes;
        expected += items - 1;
        if (expected > unpack_left(&ahead))
            return -EINVAL;
    }
    *unpack = ahead;
    return 0;
}
