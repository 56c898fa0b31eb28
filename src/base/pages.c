/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Linux 5.14. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define STEP_BYTES (4u << 20) /* some hundred microseconds */

void pages_drop(void *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = (page - (uintptr_t)at % page) % page;
    char *from = (char *)at + before;

    if (bytes < before + page)
        return;
    bytes = (bytes - before) / page * page;
    while (bytes > 0) {
        size_t step = bytes < STEP_BYTES ? bytes : STEP_BYTES;
        madvise(from, step, MADV_DONTNEED);
        from += step;
        bytes -= step;
    }
}

int pages_make(void *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)at & ~(page - 1);

    if (madvise((void *)begin, (uintptr_t)at + bytes - begin, MADV_POPULATE_WRITE) < 0)
        return errno == EINVAL ? 0 : -errno;
    return 0;
}

bool pages_take_writes(int fd, uint64_t size_bytes)
{
    struct rlimit limit;
    struct statfs system;

    return fstatfs(fd, &system) == 0 && system.f_type != HUGETLBFS_MAGIC &&
           getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_bytes <= limit.rlim_cur;
}
