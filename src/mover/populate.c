/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/populate.h"

#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

void populate(void *to, size_t size_bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)to & ~(page - 1);
    uintptr_t end = ((uintptr_t)to + size_bytes + page - 1) & ~(page - 1);

    madvise((void *)begin, end - begin, MADV_POPULATE_WRITE);
#else
    (void)to;
    (void)size_bytes;
#endif
}
