/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lane_file.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int lane_file_read(int fd, void *to, size_t bytes, uint64_t offset)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t got = pread(fd, at, bytes, (off_t)offset);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        at += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* Files in huge pages cannot be written to; they can be mapped, in whole pages, which is the block
 * size that they tell. */
static int write_mapped(int fd, const void *from, size_t bytes, uint64_t offset)
{
    uint64_t page, start, end;
    struct stat st;
    char *map;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (offset + bytes > (uint64_t)st.st_size)
        return -ENODATA; /* a mapping would end us there */
    page = (uint64_t)st.st_blksize;
    start = offset - offset % page;
    end = (offset + bytes + page - 1) / page * page;
    map = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)start);
    if (map == MAP_FAILED)
        return -errno;
    memcpy(map + (offset - start), from, bytes);
    munmap(map, end - start);
    return 0;
}

int lane_file_write(int fd, const void *from, size_t bytes, uint64_t offset)
{
    const char *at = from;

    while (bytes > 0) {
        ssize_t put = pwrite(fd, at, bytes, (off_t)offset);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0 && errno == EINVAL)
            return write_mapped(fd, at, bytes, offset);
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        at += put;
        bytes -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}
