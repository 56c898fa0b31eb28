/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lane_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whole pages of the file's own size, which a memfd tells as its block size. */
static void map_file(struct lane_file *file, uint64_t offset, uint64_t bytes)
{
    int seals = fcntl(file->fd, F_GET_SEALS);
    uint64_t page, start, end;
    struct stat st;
    void *map;

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(file->fd, &st) < 0)
        return;
    if (offset + bytes > (uint64_t)st.st_size)
        return;
    page = (uint64_t)st.st_blksize;
    start = offset - offset % page;
    end = (offset + bytes + page - 1) / page * page;
    map = mmap(NULL, end - start, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, (off_t)start);
    if (map == MAP_FAILED)
        return;
    file->map = map;
    file->map_offset = start;
    file->map_bytes = end - start;
}

void lane_file_open(struct lane_file *file, int fd, bool to_write, uint64_t offset, uint64_t bytes)
{
    *file = (struct lane_file){.fd = fd};
    if (to_write)
        map_file(file, offset, bytes);
}

void lane_file_close(struct lane_file *file)
{
    if (file->map)
        munmap(file->map, file->map_bytes);
    close(file->fd);
}

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset)
{
    char *at = to;

    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);

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

/* EINVAL: a kernel that cannot make pages ahead; they were made with the file. */
static int make_pages(char *to, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)to & ~(page - 1);
    uintptr_t end = ((uintptr_t)to + bytes + page - 1) & ~(page - 1);

    if (madvise((void *)begin, end - begin, MADV_POPULATE_WRITE) < 0 && errno != EINVAL)
        return errno == EFAULT ? -ENOMEM : -errno;
#else
    (void)to;
    (void)bytes;
#endif
    return 0;
}

int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset)
{
    const char *at = from;

    if (file->map) {
        char *to = file->map + (offset - file->map_offset);
        int error = make_pages(to, bytes);

        if (error == 0)
            memcpy(to, from, bytes);
        return error;
    }
    while (bytes > 0) {
        ssize_t put = pwrite(file->fd, at, bytes, (off_t)offset);

        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        at += put;
        bytes -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}
