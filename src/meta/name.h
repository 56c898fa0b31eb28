/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name - keys and tags as text, and keys as file names
 *
 * Pure. A key is UTF-8 of 1..GMSFS_KEY_MAX bytes (NUL allowed); its file name writes `%`, `/`, NUL
 * and a leading `.` as %25 %2F %00 %2E and no other byte, in upper-case hex; any other spelling is
 * -EINVAL. Allocation names use the same codec, except temporary ones.
 */
#ifndef GMSFS_META_NAME_H
#define GMSFS_META_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define NAME_MAX_BYTES 255u

/* Key → file name (NUL-terminated). Returns its length, -EINVAL (empty, not UTF-8), -ENAMETOOLONG
 */
int name_encode_key(const void *key, size_t key_bytes, char name[NAME_MAX_BYTES + 1]);
/* Returns 0 if name_encode_key would accept the key, else its error; quick if nothing has to be
 * escaped. */
int name_check_key(const void *key, size_t key_bytes);
/* File name → key, NUL-terminated beyond its length. Returns the key's length, -ENAMETOOLONG,
 * -EINVAL for any spelling that encode does not write */
int name_decode_key(const char *name, char key[NAME_MAX_BYTES + 1]);

/* True for the name of a copying tool's temporary file, as of rsync(1): a dot, the name of a key,
 * another dot, and six letters or digits. No key has such a name. */
bool name_is_temporary(const char *name);

#endif
