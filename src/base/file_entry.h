/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_entry - the metadata entry of a file that a store keeps byte for byte
 *
 * For the tree `files/` of the daemon and for `gmsfs load --files`. Pure. The entry's key is
 * FILE_ENTRY_PREFIX and the file's path, its value a JSON object with the file's size and time; it
 * is bound to the allocation and the offset where the bytes are. An entry of an empty file may be
 * bound to none.
 */
#ifndef GMSFS_BASE_FILE_ENTRY_H
#define GMSFS_BASE_FILE_ENTRY_H

#include <stddef.h>
#include <stdint.h>

/* No tensor has such a name: names of modules have no colon, and `gmsfs load` refuses it. */
#define FILE_ENTRY_PREFIX       "gmsfs:file:"
#define FILE_ENTRY_PREFIX_BYTES (sizeof FILE_ENTRY_PREFIX - 1)
#define FILE_ENTRY_KEY_BYTES    255u /* of a key as a file name, where / and % take three */
#define FILE_ENTRY_PATH_BYTES   (FILE_ENTRY_KEY_BYTES - FILE_ENTRY_PREFIX_BYTES)
#define FILE_ENTRY_MAX_DEPTH    (FILE_ENTRY_PATH_BYTES / 4) /* a slash and a name: four bytes */
#define FILE_ENTRY_VALUE_BYTES  80u                         /* room for a value, with its NUL */
#define FILE_ENTRY_MOST_BYTES   256u                        /* of a value, blanks included */
#define FILE_ENTRY_NO_TIME      INT64_MIN

struct file_entry {
    uint64_t size_bytes; /* below 2^63 */
    int64_t mtime_ns;    /* since 1970; FILE_ENTRY_NO_TIME if the value has none */
};

/* Returns NULL for a relative path that files/ can show, else what is wrong with it, to follow
 * "its path" in an error. */
const char *file_entry_path_fault(const char *path, size_t bytes);
/* The same for one component of a path. */
const char *file_entry_name_fault(const char *name, size_t bytes);

/* Writes {"bytes":N,"mtime_ns":N}. Returns the length without the NUL. */
size_t file_entry_format(const struct file_entry *entry, char value[FILE_ENTRY_VALUE_BYTES]);
/* Parses any spelling of such an object in JSON of at most FILE_ENTRY_MOST_BYTES; "mtime_ns" may be
 * missing. -EINVAL */
int file_entry_parse(const void *value, size_t bytes, struct file_entry *entry);

#endif
