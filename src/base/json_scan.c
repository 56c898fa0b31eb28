/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_scan.h"

#include "base/clean.h"
#include "base/hex.h"

#include <string.h>

#define HEX_DIGITS 4u

/* ---- tokens -------------------------------------------------------------------------------- */

static void skip_blanks(struct json_scan *scan)
{
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\t' || *scan->at == '\n' || *scan->at == '\r'))
        scan->at++;
}

static bool is_digit(const struct json_scan *scan)
{
    return scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9';
}

bool json_scan_take(struct json_scan *scan, char character)
{
    skip_blanks(scan);
    if (scan->at == scan->end || *scan->at != character)
        return false;
    scan->at++;
    return true;
}

bool json_scan_is_over(struct json_scan *scan)
{
    skip_blanks(scan);
    return scan->at == scan->end;
}

bool json_scan_string(struct json_scan *scan, struct json_token *token)
{
    if (!json_scan_take(scan, '"'))
        return false;
    token->text = scan->at;
    for (; scan->at < scan->end && *scan->at != '"'; scan->at++) {
        if ((unsigned char)*scan->at < ' ')
            return false;
        if (*scan->at == '\\' && ++scan->at == scan->end)
            return false;
    }
    if (scan->at == scan->end)
        return false;
    token->bytes = (size_t)(scan->at++ - token->text);
    return true;
}

bool json_scan_number(struct json_scan *scan, uint64_t *number)
{
    skip_blanks(scan);
    const char *first = scan->at;
    for (*number = 0; is_digit(scan); scan->at++)
        if (__builtin_mul_overflow(*number, 10u, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*scan->at - '0'), number))
            return false;
    if (scan->at == first || (*first == '0' && scan->at > first + 1))
        return false;
    return scan->at == scan->end || !strchr(".eE", *scan->at) || *scan->at == '\0';
}

bool json_scan_integer(struct json_scan *scan, int64_t *number)
{
    bool is_negative = json_scan_take(scan, '-');
    uint64_t magnitude;

    if ((is_negative && !is_digit(scan)) || !json_scan_number(scan, &magnitude) ||
        magnitude > INT64_MAX)
        return false;
    *number = is_negative ? -(int64_t)magnitude : (int64_t)magnitude;
    return true;
}

/* ---- values -------------------------------------------------------------------------------- */

static bool skip_digits(struct json_scan *scan)
{
    const char *first = scan->at;

    while (is_digit(scan))
        scan->at++;
    return scan->at > first;
}

static bool skip_number(struct json_scan *scan)
{
    if (scan->at < scan->end && *scan->at == '-')
        scan->at++;
    const char *first = scan->at;
    if (!skip_digits(scan) || (*first == '0' && scan->at > first + 1))
        return false;
    if (scan->at < scan->end && *scan->at == '.') {
        scan->at++;
        if (!skip_digits(scan))
            return false;
    }
    if (scan->at == scan->end || (*scan->at != 'e' && *scan->at != 'E'))
        return true;
    scan->at++;
    if (scan->at < scan->end && (*scan->at == '+' || *scan->at == '-'))
        scan->at++;
    return skip_digits(scan);
}

static bool skip_word(struct json_scan *scan)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t bytes = strlen(words[i]);

        if ((size_t)(scan->end - scan->at) < bytes || memcmp(scan->at, words[i], bytes) != 0)
            continue;
        scan->at += bytes;
        return true;
    }
    return false;
}

static bool skip_plain(struct json_scan *scan)
{
    struct json_token token;

    if (*scan->at == '"')
        return json_scan_string(scan, &token);
    return *scan->at == '-' || is_digit(scan) ? skip_number(scan) : skip_word(scan);
}

static bool skip_key(struct json_scan *scan)
{
    struct json_token key;

    return json_scan_string(scan, &key) && json_scan_take(scan, ':');
}

/* Ends every list and object that ends here; *goes_on: another value follows. */
static bool skip_ends(struct json_scan *scan, uint64_t objects, unsigned *depth, bool *goes_on)
{
    for (*goes_on = false; *depth > 0; --*depth) {
        bool is_object = objects >> (*depth - 1) & 1;

        if (json_scan_take(scan, ',')) {
            *goes_on = true;
            return !is_object || skip_key(scan);
        }
        if (!json_scan_take(scan, is_object ? '}' : ']'))
            return false;
    }
    return true;
}

bool json_scan_skip(struct json_scan *scan)
{
    uint64_t objects = 0; /* bit N: level N is an object */
    unsigned depth = 0;
    bool goes_on = true;

    while (goes_on) {
        skip_blanks(scan);
        if (scan->at == scan->end)
            return false;
        bool is_object = *scan->at == '{', opens = is_object || *scan->at == '[';

        if (!opens) {
            if (!skip_plain(scan))
                return false;
        } else {
            if (depth == JSON_SCAN_MAX_DEPTH)
                return false;
            scan->at++;
            objects = (objects & ~(1ull << depth)) | (uint64_t)is_object << depth;
            depth++;
            if (!json_scan_take(scan, is_object ? '}' : ']')) {
                if (is_object && !skip_key(scan))
                    return false;
                continue;
            }
            depth--;
        }
        if (!skip_ends(scan, objects, &depth, &goes_on))
            return false;
    }
    return true;
}

/* ---- strings ------------------------------------------------------------------------------- */

bool json_token_is(const struct json_token *token, const char *word)
{
    for (size_t i = 0; i < token->bytes; i++)
        if (token->text[i] != word[i])
            return false; /* also at the word's end, as no token has a NUL */
    return word[token->bytes] == '\0';
}

static bool decode_hex(const char *at, const char *end, uint32_t *character)
{
    uint8_t bytes[HEX_DIGITS / 2];

    if ((size_t)(end - at) < HEX_DIGITS || hex_parse(at, bytes, sizeof bytes) < 0)
        return false;
    *character = (uint32_t)bytes[0] << 8 | bytes[1];
    return true;
}

/* Decodes the digits behind `\u`, two of them for characters beyond the first 65,536. Returns the
 * bytes taken; 0: no such character. */
static size_t decode_unicode(const char *at, const char *end, uint32_t *character)
{
    uint32_t low;

    if (!decode_hex(at, end, character) || *character == 0)
        return 0;
    if (*character < 0xd800 || *character > 0xdfff)
        return HEX_DIGITS;
    at += HEX_DIGITS;
    if (*character > 0xdbff || end - at < 2 || at[0] != '\\' || at[1] != 'u' ||
        !decode_hex(at + 2, end, &low) || low < 0xdc00 || low > 0xdfff)
        return 0;
    *character = 0x10000 + ((*character - 0xd800) << 10) + (low - 0xdc00);
    return 2 * HEX_DIGITS + 2;
}

static char *put_utf8(char *out, uint32_t character)
{
    if (character < 0x80) {
        *out++ = (char)character;
        return out;
    }
    if (character < 0x800) {
        *out++ = (char)(0xc0 | character >> 6);
    } else {
        if (character < 0x10000) {
            *out++ = (char)(0xe0 | character >> 12);
        } else {
            *out++ = (char)(0xf0 | character >> 18);
            *out++ = (char)(0x80 | (character >> 12 & 0x3f));
        }
        *out++ = (char)(0x80 | (character >> 6 & 0x3f));
    }
    *out++ = (char)(0x80 | (character & 0x3f));
    return out;
}

/* Decodes an escape behind its backslash. Returns the bytes taken; 0: there is no such escape. */
static size_t decode_escape(const char *at, const char *end, uint32_t *character)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *letter = *at ? strchr(letters, *at) : NULL;

    if (letter) {
        *character = (unsigned char)meant[letter - letters];
        return 1;
    }
    size_t taken = *at == 'u' ? decode_unicode(at + 1, end, character) : 0;
    return taken ? taken + 1 : 0;
}

bool json_token_decode(const struct json_token *token, char *out, size_t *bytes)
{
    const char *at = token->text, *end = at + token->bytes;
    char *to = out;
    uint32_t character;

    while (at < end) {
        if (*at != '\\') {
            *to++ = *at++;
            continue;
        }
        size_t taken = decode_escape(at + 1, end, &character);

        if (taken == 0)
            return false;
        at += 1 + taken;
        to = put_utf8(to, character);
    }
    *bytes = (size_t)(to - out);
    return clean_is_utf8(out, *bytes);
}
