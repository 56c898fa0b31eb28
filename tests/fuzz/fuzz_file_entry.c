/* SPDX-License-Identifier: Apache-2.0 */
/* The entry of a file: a parsed value is written again and parses the same; a path without fault
 * splits into names without fault, and fits into a key. */
#include "fuzz.h"

#include "base/file_entry.h"
#include "meta/name.h"

static void check_value(const uint8_t *data, size_t size)
{
    struct file_entry entry, again;
    char value[FILE_ENTRY_VALUE_BYTES];
    size_t bytes;

    if (file_entry_parse(data, size, &entry) != 0)
        return;
    must(entry.size_bytes <= INT64_MAX);
    bytes = file_entry_format(&entry, value);
    must(bytes < sizeof value && strlen(value) == bytes);
    must(file_entry_parse(value, bytes, &again) == 0);
    must(again.size_bytes == entry.size_bytes && again.mtime_ns == entry.mtime_ns);
}

static void check_path(const char *path, size_t size)
{
    char key[FILE_ENTRY_KEY_BYTES];
    const char *at = path, *end = path + size, *slash;

    if (file_entry_path_fault(path, size))
        return;
    must(size > 0 && size <= FILE_ENTRY_PATH_BYTES && path[0] != '/');
    memcpy(key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES);
    memcpy(key + FILE_ENTRY_PREFIX_BYTES, path, size);
    must(name_check_key(key, FILE_ENTRY_PREFIX_BYTES + size) == 0);
    do {
        slash = memchr(at, '/', (size_t)(end - at));
        must(!file_entry_name_fault(at, (size_t)((slash ? slash : end) - at)));
        at = slash ? slash + 1 : end;
    } while (slash);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_value(data, size);
    check_path((const char *)data, size);
    return 0;
}
