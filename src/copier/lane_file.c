/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/lane_file.h"

#include "base/file_io.h"
#include "base/pages.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* If the file system refuses these bytes past the page cache, they go through it. */
int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset)
{
    int error = file_read_at(file->fd, to, bytes, offset);

    if (error != -EINVAL)
        return error;
    file_end_direct(file->fd);
    return file_read_at(file->fd, to, bytes, offset);
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
    int error = file_write_at(fd, from, bytes, offset);

    if (error != -EINVAL)
        return error;
    file_end_direct(fd);
    return file_write_at(fd, from, bytes, offset);
}

int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset)
{
    if (!file->at)
        return write_plain(file->fd, from, bytes, offset);
    if (!file->is_written || atomic_exchange(file->is_written, true))
        return write_mapped(file->at + (offset - file->at_begin), from, bytes);
    int error = write_plain(file->fd, from, bytes, offset);
    atomic_store(file->is_written, false);
    return error;
}
