/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

int file_read_at(int fd, void *bytes, size_t size_bytes, uint64_t offset_bytes)
{
    char *to = bytes;
    size_t done = 0;

    while (done < size_bytes) {
        ssize_t got = pread(fd, to + done, size_bytes - done, (off_t)(offset_bytes + done));
        if (got == 0)
            return -ENODATA;
        if (got < 0 && errno != EINTR)
            return -errno;
        done += got > 0 ? (size_t)got : 0;
    }
    return 0;
}

/* offset_bytes NULL: at the descriptor's position */
static int write_all(int fd, const char *from, size_t size_bytes, const uint64_t *offset_bytes)
{
    size_t done = 0;

    while (done < size_bytes) {
        size_t left = size_bytes - done;
        ssize_t wrote = offset_bytes ? pwrite(fd, from + done, left, (off_t)(*offset_bytes + done))
                                     : write(fd, from + done, left);
        if (wrote == 0) /* would repeat for ever */
            return -EIO;
        if (wrote < 0 && errno != EINTR)
            return -errno;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return 0;
}

int file_write_at(int fd, const void *bytes, size_t size_bytes, uint64_t offset_bytes)
{
    return write_all(fd, bytes, size_bytes, &offset_bytes);
}

int file_write(int fd, const void *bytes, size_t size_bytes)
{
    return write_all(fd, bytes, size_bytes, NULL);
}

void file_end_direct(int fd)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags >= 0 && flags & O_DIRECT)
        fcntl(fd, F_SETFL, flags & ~O_DIRECT);
}

void file_close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void file_leave_stream(FILE **stream)
{
    if (*stream)
        fclose(*stream);
}

void file_leave_directory(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}
