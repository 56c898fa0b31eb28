/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size - numbers of bytes in text for people
 *
 * Pure; for every part. Never guesses: refuses 1.5G, 4GB and an empty text.
 */
#ifndef GMSFS_BASE_SIZE_H
#define GMSFS_BASE_SIZE_H

#include <stddef.h>
#include <stdint.h>

#define SIZE_TEXT_BYTES 24u

/* Parses "4096", "256M", "4G", "1T", "4GiB": powers of 1024, K to P, in either case. -EINVAL: not a
 * size; -ERANGE: 2^63 or more. *bytes is set on success only. */
int size_parse(const char *text, uint64_t *bytes);

/* Writes "512 B", "4.0 GiB", rounded to one decimal; returns `text`. */
const char *size_format(uint64_t bytes, char text[SIZE_TEXT_BYTES]);

struct size_text {
    uint64_t bytes;
    char *text; /* SIZE_TEXT_BYTES */
};

/* The same for sizes that a reader compares: with two or three decimals, or in bytes, if different
 * sizes would look alike. */
void size_format_apart(const struct size_text *sizes, size_t count);

#endif
