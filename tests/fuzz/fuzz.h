/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz - shared by the fuzz targets
 *
 * Each tests/fuzz/fuzz_NAME.c includes this once and defines LLVMFuzzerTestOneInput; main is
 * libFuzzer's. The input is a block of exactly its size, so that a step over its end is found. A
 * failed property is a crash: `must` prints it and aborts, and libFuzzer keeps the input.
 */
#ifndef GMSFS_TESTS_FUZZ_FUZZ_H
#define GMSFS_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(condition)                                                                    \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* Returns a terminated copy of exactly that size; the caller frees it. */
__attribute__((unused)) static char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

__attribute__((unused)) static bool fuzz_same(const void *left, size_t left_bytes,
                                              const void *right, size_t right_bytes)
{
    return left_bytes == right_bytes && (left_bytes == 0 || memcmp(left, right, left_bytes) == 0);
}

/* A message is one line without control characters. */
__attribute__((unused)) static bool fuzz_is_line(const char *text)
{
    for (const char *at = text; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return false;
    }
    return *text != '\0';
}

#endif
