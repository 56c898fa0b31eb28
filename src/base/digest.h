/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest - XXH3-128 as the formats of gmsfs have it: 16 big-endian bytes, or 32 hex digits
 *
 * Pure and header-only. Finds damage and mix-ups, not forgers.
 */
#ifndef GMSFS_BASE_DIGEST_H
#define GMSFS_BASE_DIGEST_H

#include "base/hex.h"
#include "base/xxh3.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define DIGEST_BYTES      16u
#define DIGEST_TEXT_BYTES 33u

static inline void digest_put(XXH128_hash_t hash, uint8_t digest[DIGEST_BYTES])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, hash);
    memcpy(digest, canonical.digest, DIGEST_BYTES);
}

static inline void digest_make(const void *bytes, size_t size_bytes, uint8_t digest[DIGEST_BYTES])
{
    digest_put(XXH3_128bits(bytes, size_bytes), digest);
}

static inline bool digest_is_zero(const uint8_t digest[DIGEST_BYTES])
{
    static const uint8_t zero[DIGEST_BYTES];

    return memcmp(digest, zero, DIGEST_BYTES) == 0;
}

static inline const char *digest_text(const uint8_t digest[DIGEST_BYTES],
                                      char text[DIGEST_TEXT_BYTES])
{
    hex_format(digest, DIGEST_BYTES, text);
    return text;
}

#endif
