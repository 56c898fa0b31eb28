/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lane_file.h"

#include "base/file_io.h"
#include "base/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* Returns true if a failed read or write should be tried again. Past the page cache some file
 * systems only move whole blocks, or nothing; then the cache is used, once. */
static bool may_try_again(int fd, bool *was_refused)
{
    if (errno == EINTR)
        return true;
    if (errno != EINVAL || *was_refused)
        return false;
    *was_refused = true;
    file_end_direct(fd);
    return true;
}

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset)
{
    char *at = to;
    bool was_refused = false;

    while (bytes > 0) {
        ssize_t got = pread(file->fd, at, bytes, (off_t)offset);

        if (got < 0 && may_try_again(file->fd, &was_refused))
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        at += got;
        bytes -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* Makes the pages. EINVAL: a kernel that cannot make pages in advance; they were made with the
 * file. */
int lane_file_make_pages(char *at, size_t bytes)
{
    int error = pages_make(at, bytes);

    return error == -EFAULT || error == -ENOMEM ? -ENOSPC : error;
}

static int write_mapped(char *to, const char *from, size_t bytes)
{
    int error = lane_file_make_pages(to, bytes);

    if (error == 0)
        memcpy(to, from, bytes);
    return error;
}

static int write_plain(int fd, const char *from, size_t bytes, uint64_t offset)
{
    bool was_refused = false;

    while (bytes > 0) {
        ssize_t put = pwrite(fd, from, bytes, (off_t)offset);

        if (put < 0 && may_try_again(fd, &was_refused))
            continue;
        if (put <= 0)
            return put < 0 ? -errno : -EIO;
        from += put;
        bytes -= (size_t)put;
        offset += (uint64_t)put;
    }
    return 0;
}

int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset)
{
    int error;

    if (!file->at)
        return write_plain(file->fd, from, bytes, offset);
    if (!file->is_written || atomic_exchange(file->is_written, true))
        return write_mapped(file->at + (offset - file->at_begin), from, bytes);
    error = write_plain(file->fd, from, bytes, offset);
    atomic_store(file->is_written, false);
    return error;
}
