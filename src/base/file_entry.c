/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_entry.h"

#include "base/clean.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- paths --------------------------------------------------------------------------------- */

static bool is_control(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0);
}

static const char *find_bad_character(const char *name, size_t bytes)
{
    const unsigned char *at = (const unsigned char *)name;
    uint32_t character = 0;
    size_t length;

    for (size_t left = bytes; left > 0; left -= length, at += length) {
        length = clean_decode(at, left, &character);
        if (length == 0)
            return "is not UTF-8";
        if (is_control(character))
            return "has a control character";
    }
    return NULL;
}

const char *file_entry_name_fault(const char *name, size_t bytes)
{
    if (bytes == 0)
        return "has an empty component";
    if (bytes == 1 && name[0] == '.')
        return "has the component '.'";
    if (bytes == 2 && name[0] == '.' && name[1] == '.')
        return "has the component '..'";
    return find_bad_character(name, bytes);
}

static bool is_too_long(const char *path, size_t bytes)
{
    size_t encoded = 0;

    for (size_t i = 0; i < bytes && encoded <= FILE_ENTRY_PATH_BYTES; i++)
        encoded += path[i] == '/' || path[i] == '%' ? 3 : 1;
    return encoded > FILE_ENTRY_PATH_BYTES;
}

const char *file_entry_path_fault(const char *path, size_t bytes)
{
    const char *fault = NULL, *end = path + bytes, *slash;

    if (bytes == 0)
        return "is empty";
    if (path[0] == '/')
        return "is absolute";
    if (is_too_long(path, bytes))
        return "takes more than 244 bytes (/ and % count as three)";
    do {
        slash = memchr(path, '/', (size_t)(end - path));
        fault = file_entry_name_fault(path, (size_t)((slash ? slash : end) - path));
        path = slash ? slash + 1 : end;
    } while (!fault && slash);
    return fault;
}

/* ---- values -------------------------------------------------------------------------------- */

size_t file_entry_format(const struct file_entry *entry, char value[FILE_ENTRY_VALUE_BYTES])
{
    int length =
        entry->mtime_ns == FILE_ENTRY_NO_TIME
            ? snprintf(value, FILE_ENTRY_VALUE_BYTES, "{\"bytes\":%" PRIu64 "}", entry->size_bytes)
            : snprintf(value, FILE_ENTRY_VALUE_BYTES,
                       "{\"bytes\":%" PRIu64 ",\"mtime_ns\":%" PRId64 "}", entry->size_bytes,
                       entry->mtime_ns);

    return (size_t)length;
}

struct text {
    const char *at, *end;
};

static void skip_blanks(struct text *text)
{
    while (text->at < text->end && strchr(" \t\r\n", *text->at) && *text->at)
        text->at++;
}

/* Takes the word, and the blanks before it. */
static bool take(struct text *text, const char *word)
{
    size_t bytes = strlen(word);

    skip_blanks(text);
    if ((size_t)(text->end - text->at) < bytes || memcmp(text->at, word, bytes) != 0)
        return false;
    text->at += bytes;
    return true;
}

/* Takes an integer of JSON: no leading zeros, no fraction. */
static bool take_number(struct text *text, bool *is_negative, uint64_t *number)
{
    const char *first;

    *is_negative = take(text, "-");
    if (!*is_negative)
        skip_blanks(text);
    first = text->at;
    for (*number = 0; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++)
        if (__builtin_mul_overflow(*number, 10u, number) ||
            __builtin_add_overflow(*number, (uint64_t)(*text->at - '0'), number))
            return false;
    return text->at > first && (*first != '0' || text->at == first + 1) && *number <= INT64_MAX;
}

static bool take_member(struct text *text, struct file_entry *entry, bool *has_size)
{
    bool is_size = take(text, "\"bytes\""), is_negative;
    uint64_t number;

    if (!is_size && !take(text, "\"mtime_ns\""))
        return false;
    if (is_size ? *has_size : entry->mtime_ns != FILE_ENTRY_NO_TIME)
        return false;
    if (!take(text, ":") || !take_number(text, &is_negative, &number) || (is_size && is_negative))
        return false;
    if (is_size)
        entry->size_bytes = number;
    else
        entry->mtime_ns = is_negative ? -(int64_t)number : (int64_t)number;
    *has_size = *has_size || is_size;
    return true;
}

int file_entry_parse(const void *value, size_t bytes, struct file_entry *entry)
{
    struct text text = {value, (const char *)value + bytes};
    bool has_size = false;

    *entry = (struct file_entry){.mtime_ns = FILE_ENTRY_NO_TIME};
    if (bytes == 0 || bytes > FILE_ENTRY_MOST_BYTES || !take(&text, "{"))
        return -EINVAL;
    do
        if (!take_member(&text, entry, &has_size))
            return -EINVAL;
    while (take(&text, ","));
    if (!has_size || !take(&text, "}"))
        return -EINVAL;
    skip_blanks(&text);
    return text.at == text.end ? 0 : -EINVAL;
}
