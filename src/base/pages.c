/* SPDX-License-Identifier: Apache-2.0 */
#include "base/pages.h"

#include <errno.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Linux 5.14. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define STEP_BYTES (4u << 20) /* some hundred microseconds */

/* Returns the pages that lie fully inside. */
static struct iovec whole_pages(void *at, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = (page - (uintptr_t)at % page) % page;

    return (struct iovec){.iov_base = (char *)at + before,
                          .iov_len = bytes < before ? 0 : (bytes - before) / page * page};
}

void pages_drop(void *at, size_t bytes)
{
    struct iovec pages = whole_pages(at, bytes);
    char *from = pages.iov_base;

    while (pages.iov_len > 0) {
        size_t step = pages.iov_len < STEP_BYTES ? pages.iov_len : STEP_BYTES;
        madvise(from, step, MADV_DONTNEED);
        from += step;
        pages.iov_len -= step;
    }
}

/* Drops the pages of all parts by one call, for which newer kernels interrupt the other threads
 * once, not once for each part. False: not done; kernels before 6.13 cannot. */
static bool drop_at_once(void *const *parts, const size_t *bytes, size_t count)
{
    static _Atomic bool is_refused; /* by an older kernel, or by a filter of calls */
    struct iovec pages[PAGES_PARTS_MAX];
    size_t all_bytes = 0;
    int self;

    for (size_t i = 0; i < count; i++) {
        pages[i] = whole_pages(parts[i], bytes[i]);
        all_bytes += pages[i].iov_len;
    }
    self = is_refused ? -1 : (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (self < 0)
        return false;
    ssize_t done = syscall(SYS_process_madvise, self, pages, count, MADV_DONTNEED, 0);
    is_refused = done < 0 && (errno == EINVAL || errno == ENOSYS || errno == EPERM);
    close(self);
    return done >= 0 && (size_t)done == all_bytes;
}

void pages_drop_all(void *const *parts, const size_t *bytes, size_t count)
{
    if (count > 1 && count <= PAGES_PARTS_MAX && drop_at_once(parts, bytes, count))
        return;
    for (size_t i = 0; i < count; i++)
        pages_drop(parts[i], bytes[i]);
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
