/* SPDX-License-Identifier: Apache-2.0 */
/*
 * key_name - the file names of metadata keys and of regions
 *
 * Pure and header-only, so that the library can use it. src/meta/name.h has the daemon's codec,
 * which also refuses keys that are not UTF-8.
 */
#ifndef GMSFS_BASE_KEY_NAME_H
#define GMSFS_BASE_KEY_NAME_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define KEY_NAME_BYTES 256u /* GMSFS_NAME_MAX and a NUL */

/* Writes the key with %25 %2F %2E for % / and a leading dot. -EINVAL: the key is NULL, empty, or
 * too long when it is encoded */
static inline int key_name_encode(const char *key, char name[KEY_NAME_BYTES])
{
    static const char digits[] = "0123456789ABCDEF";
    size_t used = 0;

    for (const char *at = key; at && *at; at++) {
        bool escape = *at == '%' || *at == '/' || (*at == '.' && at == key);
        if (used + (escape ? 3 : 1) >= KEY_NAME_BYTES)
            return -EINVAL;
        if (escape) {
            name[used++] = '%';
            name[used++] = digits[(unsigned char)*at >> 4];
            name[used++] = digits[(unsigned char)*at & 15];
        } else {
            name[used++] = *at;
        }
    }
    name[used] = '\0';
    return used ? 0 : -EINVAL;
}

#endif
