/* SPDX-License-Identifier: Apache-2.0 */
/*
 * words - texts of lines of words in one order and one spelling, as gmsfs-image(5) has them
 *
 * Pure. For the manifest of an image and for the file `pieces` of a store: a decoded text,
 * written again, is the same text. The bytes are hostile. Functions that return an int fail with
 * -EINVAL and a message for users in `error`, or with -ENOMEM.
 */
#ifndef GMSFS_META_WORDS_H
#define GMSFS_META_WORDS_H

#include "base/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WORDS_ERROR_BYTES    160u
#define WORDS_MAX_NAME_BYTES 255u

struct words_error {
    size_t line;                  /* 0: none */
    char text[WORDS_ERROR_BYTES]; /* one printable line */
};

struct words {
    const char *at, *end;
    const char *begin;
    size_t line; /* being read, from 1 */
    struct words_error *error;
};

/* Begins to decode a text of at most `most` bytes. */
int words_begin(struct words *words, const char *text, size_t text_bytes, size_t most,
                struct words_error *error);
/* Fails with this message and the present line. Returns -EINVAL. */
int words_fail(struct words *words, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Parts of a line; false: the text has something else. */
bool words_take(struct words *words, const char *text);
/* Parses a decimal number in its one spelling: no sign, no leading zeros. */
bool words_number(struct words *words, uint64_t *number);
bool words_hex(struct words *words, uint8_t *bytes, size_t count); /* lower case alone */

/* Parses a text to the end of the line, 1..most bytes; the caller frees it, even after a failure.
 */
int words_text(struct words *words, size_t most, char **text);
/* The same for the name of a file in `allocations/`. */
int words_allocation_name(struct words *words, char **name);
int words_end_line(struct words *words);

/* Whole lines. -EPROTONOSUPPORT: another version. */
int words_line_version(struct words *words, const char *word, const char *version,
                       const char *object);
int words_line_number(struct words *words, const char *word, uint64_t most, uint64_t *number);
int words_line_digest(struct words *words, const char *word, uint8_t digest[DIGEST_BYTES]);
/* Parses the last line, `end` and the sum of all bytes before it, and the end of the text. */
int words_line_end(struct words *words);

/* Checks that names are unique, because they are files of one directory. The first of `count`
 * names; the next one lies `step_bytes` behind it. */
int words_check_names(struct words *words, char *const *first, size_t step_bytes, size_t count);

void words_put_text(FILE *to, const char *text);
size_t words_count_text(const char *text); /* the bytes that it writes */
void words_put_digest(FILE *to, const char *word, const uint8_t digest[DIGEST_BYTES]);
/* Finishes a text of open_memstream(3): with its last line if asked; frees it after a failure. */
int words_put_end(FILE *to, bool with_sum, char **text, size_t *text_bytes);

#endif
