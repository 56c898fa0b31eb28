/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_entry.h"

#include "base/clean.h"
#include "base/json_scan.h"

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

static bool take_member(struct json_scan *scan, struct file_entry *entry, bool *has_size)
{
    struct json_token name;

    if (!json_scan_string(scan, &name) || !json_scan_take(scan, ':'))
        return false;
    if (json_token_is(&name, "bytes") && !*has_size) {
        *has_size = true;
        return json_scan_number(scan, &entry->size_bytes) && entry->size_bytes <= INT64_MAX;
    }
    return json_token_is(&name, "mtime_ns") && entry->mtime_ns == FILE_ENTRY_NO_TIME &&
           json_scan_integer(scan, &entry->mtime_ns);
}

int file_entry_parse(const void *value, size_t bytes, struct file_entry *entry)
{
    struct json_scan scan = {value, (const char *)value + bytes};
    bool has_size = false;

    *entry = (struct file_entry){.mtime_ns = FILE_ENTRY_NO_TIME};
    if (bytes == 0 || bytes > FILE_ENTRY_MOST_BYTES || !json_scan_take(&scan, '{'))
        return -EINVAL;
    do
        if (!take_member(&scan, entry, &has_size))
            return -EINVAL;
    while (json_scan_take(&scan, ','));
    return has_size && json_scan_take(&scan, '}') && json_scan_is_over(&scan) ? 0 : -EINVAL;
}
