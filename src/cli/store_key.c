/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_key.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

int store_encode_key(const char *key, char name[STORE_ENCODED_BYTES])
{
    static const char digits[] = "0123456789ABCDEF";
    const unsigned char *from = (const unsigned char *)key;
    size_t used = 0;

    for (; *from; from++) {
        bool escape = *from == '%' || *from == '/' || (*from == '.' && used == 0);
        if (used + (escape ? 3 : 1) > GMSFS_NAME_MAX)
            return -EINVAL;
        if (escape) {
            name[used++] = '%';
            name[used++] = digits[*from >> 4];
            name[used++] = digits[*from & 15];
        } else {
            name[used++] = (char)*from;
        }
    }
    name[used] = '\0';
    return used ? 0 : -EINVAL;
}
