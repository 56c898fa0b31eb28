/* SPDX-License-Identifier: Apache-2.0 */
/* Which library this is, and structs of programs that were built with another one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define STRUCT_BYTES_MAX 65536 /* of no version is one as large */

#define VERSION_TEXT_(number) #number
#define VERSION_TEXT(number)  VERSION_TEXT_(number)

const char *gmsfs_version(void)
{
    return VERSION_TEXT(GMSFS_VERSION_MAJOR) "." VERSION_TEXT(GMSFS_VERSION_MINOR) "." VERSION_TEXT(
        GMSFS_VERSION_PATCH);
}

unsigned gmsfs_version_number(void)
{
    return GMSFS_VERSION_NUMBER;
}

int gfs_check_struct(size_t out_bytes)
{
    return out_bytes > STRUCT_BYTES_MAX ? -EINVAL : 0;
}

void gfs_give_struct(void *out, size_t out_bytes, const void *own, size_t own_bytes)
{
    size_t common_bytes = out_bytes < own_bytes ? out_bytes : own_bytes;

    memset(out, 0, out_bytes);
    memcpy(out, own, common_bytes);
}

int gfs_give_list(void **list, size_t count, size_t item_bytes, size_t own_bytes)
{
    const char *own = *list;

    if (item_bytes == own_bytes)
        return 0;
    if (item_bytes == 0 || gfs_check_struct(item_bytes))
        return -EINVAL;
    if (count == 0)
        return 0;
    char *given = calloc(count, item_bytes);
    if (!given)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        gfs_give_struct(given + i * item_bytes, item_bytes, own + i * own_bytes, own_bytes);
    free(*list);
    *list = given;
    return 0;
}
