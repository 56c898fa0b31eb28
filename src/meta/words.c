/* SPDX-License-Identifier: Apache-2.0 */
#include "words.h"

#include "name.h"

#include "base/clean.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define HEX_DIGITS "0123456789abcdef"

/* ---- parts of a line ----------------------------------------------------------------------- */

int words_begin(struct words *words, const char *text, size_t text_bytes, size_t most,
                struct words_error *error)
{
    *words = (struct words){text, text + text_bytes, text, 1, error};
    memset(error, 0, sizeof(*error));
    return text_bytes <= most ? 0 : words_fail(words, "more than %zu bytes", most);
}

int words_fail(struct words *words, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(words->error->text, sizeof(words->error->text), format, arguments);
    va_end(arguments);
    clean_text(words->error->text);
    words->error->line = words->line;
    return -EINVAL;
}

bool words_take(struct words *words, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(words->end - words->at) < length || memcmp(words->at, text, length) != 0)
        return false;
    words->at += length;
    return true;
}

bool words_number(struct words *words, uint64_t *number)
{
    const char *begin = words->at;
    uint64_t value = 0;

    while (words->at < words->end && *words->at >= '0' && *words->at <= '9') {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*words->at - '0'), &value))
            return false;
        words->at++;
    }
    *number = value;
    return words->at > begin && (*begin != '0' || words->at == begin + 1);
}

static int hex_value(char digit)
{
    const char *found = digit ? strchr(HEX_DIGITS, digit) : NULL;

    return found ? (int)(found - HEX_DIGITS) : -1;
}

bool words_hex(struct words *words, uint8_t *bytes, size_t count)
{
    if ((size_t)(words->end - words->at) < 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int high = hex_value(words->at[0]), low = hex_value(words->at[1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
        words->at += 2;
    }
    return true;
}

static bool is_plain(char byte)
{
    return (unsigned char)byte > ' ' && byte != 0x7f && byte != '\\';
}

/* Parses one byte of a text, written \xHH if it is not plain; -1: invalid. */
static int parse_byte(struct words *words)
{
    uint8_t byte;

    if (is_plain(*words->at))
        return (unsigned char)*words->at++;
    if (!words_take(words, "\\x") || !words_hex(words, &byte, 1) || is_plain((char)byte) || !byte)
        return -1;
    return byte;
}

int words_text(struct words *words, size_t most, char **text)
{
    const char *end = memchr(words->at, '\n', (size_t)(words->end - words->at));
    size_t length = 0;
    int byte;

    if (!end || end == words->at)
        return words_fail(words, "a name is missing");
    *text = malloc((size_t)(end - words->at) + 1);
    if (!*text)
        return -ENOMEM;
    while (words->at < end) {
        byte = parse_byte(words);
        if (byte < 0 || words->at > end || length == most) {
            (*text)[length] = '\0';
            return words_fail(words, "a name is spelled wrongly, or too long");
        }
        (*text)[length++] = (char)byte;
    }
    (*text)[length] = '\0';
    return 0;
}

int words_allocation_name(struct words *words, char **name)
{
    char key[NAME_MAX_BYTES + 1];
    int error = words_text(words, WORDS_MAX_NAME_BYTES, name);

    if (!error && name_decode_key(*name, key) < 0)
        error = words_fail(words, "no allocation can be called '%s'", *name);
    return error;
}

int words_end_line(struct words *words)
{
    if (!words_take(words, "\n"))
        return words_fail(words, "the line does not end where it should");
    words->line++;
    return 0;
}

/* ---- lines --------------------------------------------------------------------------------- */

int words_line_version(struct words *words, const char *word, const char *version,
                       const char *object)
{
    if (!words_take(words, word) || !words_take(words, " "))
        return words_fail(words, "not %s", object);
    if (words_take(words, version) && words_take(words, "\n")) {
        words->line++;
        return 0;
    }
    words_fail(words, "a version of the format that this gmsfs does not know");
    return -EPROTONOSUPPORT;
}

int words_line_number(struct words *words, const char *word, uint64_t most, uint64_t *number)
{
    if (!words_take(words, word) || !words_take(words, " ") || !words_number(words, number))
        return words_fail(words, "'%s' and a number are expected", word);
    if (*number > most)
        return words_fail(words, "'%s' is at most %" PRIu64, word, most);
    return words_end_line(words);
}

int words_line_digest(struct words *words, const char *word, uint8_t digest[DIGEST_BYTES])
{
    if (!words_take(words, word) || !words_take(words, " ") ||
        !words_hex(words, digest, DIGEST_BYTES))
        return words_fail(words, "'%s' and 32 hex digits are expected", word);
    return words_end_line(words);
}

int words_line_end(struct words *words)
{
    uint8_t sum[DIGEST_BYTES], read[DIGEST_BYTES];

    digest_make(words->begin, (size_t)(words->at - words->begin), sum);
    int error = words_line_digest(words, "end", read);
    if (error)
        return error;
    if (words->at != words->end)
        return words_fail(words, "something follows the end");
    if (memcmp(sum, read, sizeof(sum)) != 0)
        return words_fail(words, "damaged: its sum is another");
    return 0;
}

/* ---- names --------------------------------------------------------------------------------- */

static int compare_names(const void *left, const void *right)
{
    const char *const *l = left, *const *r = right;

    return strcmp(*l, *r);
}

int words_check_names(struct words *words, char *const *first, size_t step_bytes, size_t count)
{
    const char **sorted = calloc(count + 1, sizeof(*sorted));
    int error = 0;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = *(char *const *)((const char *)first + i * step_bytes);
    qsort(sorted, count, sizeof(*sorted), compare_names);
    for (size_t i = 1; !error && i < count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            error =
                words_fail(words, "the allocations before it have the name '%s' twice", sorted[i]);
    free(sorted);
    return error;
}

/* ---- writing ------------------------------------------------------------------------------- */

void words_put_text(FILE *to, const char *text)
{
    for (const char *at = text; *at; at++) {
        if (is_plain(*at))
            putc(*at, to);
        else
            fprintf(to, "\\x%02x", (unsigned char)*at);
    }
}

size_t words_count_text(const char *text)
{
    size_t bytes = 0;

    for (const char *at = text; *at; at++)
        bytes += is_plain(*at) ? 1 : sizeof("\\x00") - 1;
    return bytes;
}

void words_put_digest(FILE *to, const char *word, const uint8_t digest[DIGEST_BYTES])
{
    char text[DIGEST_TEXT_BYTES];

    fprintf(to, "%s %s\n", word, digest_text(digest, text));
}

int words_put_end(FILE *to, bool with_sum, char **text, size_t *text_bytes)
{
    uint8_t sum[DIGEST_BYTES];

    if (with_sum && fflush(to) == 0) {
        digest_make(*text, *text_bytes, sum);
        words_put_digest(to, "end", sum);
    }
    int failed = ferror(to);
    if (fclose(to) == 0 && !failed)
        return 0;
    free(*text);
    return -ENOMEM;
}
