/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_scan - reads JSON without memory of its own, a token at a time
 *
 * Pure. For values that may be many, and come from any writer: a text is checked as far as it is
 * read, and after a false nothing more may be read. Blanks before a token are skipped.
 */
#ifndef GMSFS_BASE_JSON_SCAN_H
#define GMSFS_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JSON_SCAN_MAX_DEPTH 64u /* of lists and objects in each other */

struct json_scan {
    const char *at, *end;
};

/* A string between its quotes, as it is spelled. */
struct json_token {
    const char *text;
    size_t bytes;
};

/* Takes this character, if it is the next. */
bool json_scan_take(struct json_scan *scan, char character);
bool json_scan_string(struct json_scan *scan, struct json_token *token);
/* Takes a whole number from 0 up, without a fraction or an exponent. */
bool json_scan_number(struct json_scan *scan, uint64_t *number);
/* Takes a whole number from -INT64_MAX to INT64_MAX, likewise. */
bool json_scan_integer(struct json_scan *scan, int64_t *number);
/* Takes any value. */
bool json_scan_skip(struct json_scan *scan);
/* Returns true if nothing but blanks is left. */
bool json_scan_is_over(struct json_scan *scan);

bool json_token_is(const struct json_token *token, const char *word);
/* Writes the text that a string means, UTF-8 without NULs; `out` has room for token->bytes. False:
 * it means no such text. */
bool json_token_decode(const struct json_token *token, char *out, size_t *bytes);

#endif
