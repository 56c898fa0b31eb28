/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pack - msgpack into memory that is large enough, each value in its shortest form
 *
 * For records, which are written for every request and may have thousands of rows, and for the
 * library's documents. The caller has counted the room by PACK_MAX_BYTES; each function returns the
 * position of the next value. Nothing here fails.
 */
#ifndef GMSFS_PACK_PACK_H
#define GMSFS_PACK_PACK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Most bytes of a number, or of the head of an array, a text or a binary. */
#define PACK_MAX_BYTES 9u

static inline uint8_t *pack_big_endian(uint8_t *at, uint8_t first, uint64_t value, unsigned bytes)
{
    *at++ = first;
    for (unsigned i = bytes; i > 0; i--)
        *at++ = (uint8_t)(value >> ((i - 1) * 8));
    return at;
}

static inline uint8_t *pack_nil(uint8_t *at)
{
    *at = 0xc0;
    return at + 1;
}

static inline uint8_t *pack_uint(uint8_t *at, uint64_t value)
{
    if (value < 0x80) {
        *at = (uint8_t)value;
        return at + 1;
    }
    if (value <= UINT8_MAX)
        return pack_big_endian(at, 0xcc, value, 1);
    if (value <= UINT16_MAX)
        return pack_big_endian(at, 0xcd, value, 2);
    if (value <= UINT32_MAX)
        return pack_big_endian(at, 0xce, value, 4);
    return pack_big_endian(at, 0xcf, value, 8);
}

/* count: below 16 */
static inline uint8_t *pack_map(uint8_t *at, size_t count)
{
    *at = (uint8_t)(0x80 | count);
    return at + 1;
}

static inline uint8_t *pack_array(uint8_t *at, size_t count)
{
    if (count < 16) {
        *at = (uint8_t)(0x90 | count);
        return at + 1;
    }
    return count <= UINT16_MAX ? pack_big_endian(at, 0xdc, count, 2)
                               : pack_big_endian(at, 0xdd, count, 4);
}

/* Writes a length in one, two or four bytes behind the first byte of that width. */
static inline uint8_t *pack_length(uint8_t *at, uint8_t first, size_t size)
{
    if (size <= UINT8_MAX)
        return pack_big_endian(at, first, size, 1);
    return size <= UINT16_MAX ? pack_big_endian(at, first + 1, size, 2)
                              : pack_big_endian(at, first + 2, size, 4);
}

/* Write the head of a text or of a binary of `size` bytes. */
static inline uint8_t *pack_str_head(uint8_t *at, size_t size)
{
    if (size >= 32)
        return pack_length(at, 0xd9, size);
    *at = (uint8_t)(0xa0 | size);
    return at + 1;
}

static inline uint8_t *pack_bin_head(uint8_t *at, size_t size)
{
    return pack_length(at, 0xc4, size);
}

static inline uint8_t *pack_bin(uint8_t *at, const void *bytes, size_t size)
{
    at = pack_bin_head(at, size);
    if (size > 0)
        memcpy(at, bytes, size);
    return at + size;
}

#endif
