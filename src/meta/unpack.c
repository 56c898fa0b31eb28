/* SPDX-License-Identifier: Apache-2.0 */
#include "unpack.h"

#include <errno.h>

/* First bytes, as the msgpack specification numbers them. */
enum {
    POSITIVE_FIXINT_LAST = 0x7f,
    FIXMAP_FIRST = 0x80,
    FIXARRAY_FIRST = 0x90,
    FIXSTR_FIRST = 0xa0,
    NIL = 0xc0,
    BIN_8 = 0xc4, /* 16, 32 follow */
    UINT_8 = 0xcc,
    UINT_64 = 0xcf,
    INT_8 = 0xd0,
    INT_64 = 0xd3,
    STR_8 = 0xd9,    /* 16, 32 follow */
    ARRAY_16 = 0xdc, /* 32 follows */
    MAP_16 = 0xde,   /* 32 follows */
};

size_t unpack_left(const struct unpack *unpack)
{
    return (size_t)(unpack->end - unpack->at);
}

/* The first byte, or -1 at the end. */
static int first_byte(const struct unpack *unpack)
{
    return unpack->at < unpack->end ? *unpack->at : -1;
}

/* A big-endian number of this width behind the first byte; the reader does not move. */
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

int unpack_uint(struct unpack *unpack, uint64_t *value)
{
    int first = first_byte(unpack);
    size_t width;
    int error;

    if (first >= 0 && first <= POSITIVE_FIXINT_LAST) {
        *value = (uint64_t)first;
        unpack->at++;
        return 0;
    }
    if (first >= UINT_8 && first <= UINT_64)
        return read_number(unpack, (size_t)1 << (first - UINT_8), value);
    if (first < INT_8 || first > INT_64)
        return -EINVAL;
    width = (size_t)1 << (first - INT_8);
    error = peek_number(unpack, width, value);
    if (error == 0 && *value >> (width * 8 - 1))
        error = -EINVAL;
    /* negative */

    if (error == 0)
        unpack->at += 1 + width;
    return error;
}

/* Reads a length of 1, 2 or 4 bytes behind wide_first.., and points at as many bytes behind it. */
static int read_bytes(struct unpack *unpack, int wide_first, const uint8_t **bytes, size_t *size)
{
    int first = first_byte(unpack);
    uint64_t length;
    size_t width;

    if (first < wide_first || first > wide_first + 2)
        return -EINVAL;
    width = (size_t)1 << (first - wide_first);
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
