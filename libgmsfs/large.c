/* SPDX-License-Identifier: Apache-2.0 */
#include "large.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE_BYTES  ((size_t)2 << 20)
#define LARGE_LEAST_BYTES (2 * LARGE_PAGE_BYTES) /* below it malloc has the better places */

void *gfs_large_alloc(size_t size_bytes)
{
    size_t whole_bytes = (size_bytes + LARGE_PAGE_BYTES - 1) & ~(LARGE_PAGE_BYTES - 1);

    if (size_bytes < LARGE_LEAST_BYTES || size_bytes > SIZE_MAX / 2)
        return malloc(size_bytes);
    void *place = aligned_alloc(LARGE_PAGE_BYTES, whole_bytes);
    if (place)
        madvise(place, whole_bytes, MADV_HUGEPAGE); /* a wish: without it all is only slower */
    return place;
}
