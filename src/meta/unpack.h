/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unpack - a strict reader of msgpack from memory
 *
 * Reads one expected thing after the other; what stands there instead is -EINVAL and the reader
 * does not move. For bytes that a client sent: it allocates nothing, never recurses, never reads
 * past the end, and skips only what it is told to. A count is what the bytes claim: each item takes
 * at least a byte, so a count above unpack_left is a lie to be refused before anything is allocated
 * for it. Numbers and lengths need not be in their shortest form.
 */
#ifndef GMSFS_META_UNPACK_H
#define GMSFS_META_UNPACK_H

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
/* Also one that is written as a signed number, if it is not negative. */
int unpack_uint(struct unpack *unpack, uint64_t *value);
/* Any integer, from -2^63 to 2^64 - 1; zero is not negative. */
int unpack_int(struct unpack *unpack, uint64_t *magnitude, bool *is_negative);
int unpack_bool(struct unpack *unpack, bool *value);
/* Points into the bytes; UTF-8 is the caller's to check. */
int unpack_str(struct unpack *unpack, const char **text, size_t *bytes);
int unpack_bin(struct unpack *unpack, const uint8_t **value, size_t *bytes);
/* Whether a nil stood there; then it is read. */
bool unpack_nil(struct unpack *unpack);
/* Over one value with all that is in it, however deep; texts in it need not be UTF-8, and keys of
 * maps may be anything. */
int unpack_skip(struct unpack *unpack);

#endif
