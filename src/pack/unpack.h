/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack - a strict reader of msgpack from memory
 *
 * Each call reads one value of the expected type; any other type is -EINVAL and the reader does not
 * move. For bytes that a client sent: allocates nothing, never recurses, never reads past the end,
 * and skips only on request. A count is not checked: each item takes at least one byte, so the
 * caller refuses a count above unpack_left before it allocates memory for it. Numbers and lengths
 * need not be in their shortest form.
 */
#ifndef GMSFS_PACK_UNPACK_H
#define GMSFS_PACK_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct unpack {
    const uint8_t *at;
    const uint8_t *end;
};

size_t unpack_left(const struct unpack *unpack);
int unpack_map(struct unpack *unpack, uint32_t *count);
int unpack_array(struct unpack *unpack, uint32_t *count);
/* Also reads a number in a signed format, if it is not negative. */
int unpack_uint(struct unpack *unpack, uint64_t *value);
/* Any integer, from -2^63 to 2^64 - 1; zero is not negative. */
int unpack_int(struct unpack *unpack, uint64_t *magnitude, bool *is_negative);
int unpack_bool(struct unpack *unpack, bool *value);
/* Points into the bytes; the caller checks UTF-8. */
int unpack_str(struct unpack *unpack, const char **text, size_t *bytes);
int unpack_bin(struct unpack *unpack, const uint8_t **value, size_t *bytes);
/* Reads a nil; false, without moving, if there is none. */
bool unpack_nil(struct unpack *unpack);
/* Skips one value with its items at any depth; does not check texts for UTF-8 nor the types of map
 * keys. */
int unpack_skip(struct unpack *unpack);

#endif
