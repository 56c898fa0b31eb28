/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name - keys and tags as text, and keys as file names
 *
 * Pure. A key is UTF-8 of 1..GMSFS_KEY_MAX bytes (NUL allowed); its file name writes `%`, `/`, NUL
 * and a leading `.` as %25 %2F %00 %2E and nothing else, upper-case hex; any other spelling is
 * -EINVAL. Allocation names follow the same codec, but for temporary ones.
 */
#ifndef GMSFS_META_NAME_H
#define GMSFS_META_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define NAME_MAX_BYTES 255u

bool name_is_utf8(const void *text, size_t bytes);
/* Key → file name (NUL-terminated). Returns its length, -EINVAL (empty, not UTF-8), -ENAMETOOLONG
 */
int name_encode_key(const void *key, size_t key_bytes, char name[NAME_MAX_BYTES + 1]);
/* 0 if name_encode_key would take it, else its error; quick where nothing is escaped. */
int name_check_key(const void *key, size_t key_bytes);
/* File name → key, NUL-terminated beyond its length. Returns the key's length, -ENAMETOOLONG,
 * -EINVAL for any spelling that encode does not write */
int name_decode_key(const char *name, char key[NAME_MAX_BYTES + 1]);

/* Whether a tool that copies calls it so before it renames it, as rsync(1) does: a dot, the name of
 * a key, another dot, and six letters or digits. No key has such a name. */
bool name_is_temporary(const char *name);

#endif
