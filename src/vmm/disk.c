/* SPDX-License-Identifier: Apache-2.0 */
/*
 * disk - files without names, for memory that is moved off the device and the host
 *
 * One file for each piece, in the directory of spill=. No process can find it, and it is gone with
 * its last descriptor, however that is closed: nothing is left on the disk to be cleaned up. All of
 * a file's blocks are allocated when it is made, so a full disk is an error then. Moves bypass the
 * page cache if the file system lets them: data that leaves memory must not come back to it.
 */
#include "vmm/tier.h"

#include "base/file_io.h"
#include "base/log.h"
#include "base/scope.h"
#include "vmm/memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROBE_BYTES (UINT64_C(1) << 20)

struct disk {
    int dir_fd;
};

static int make_file(int dir_fd)
{
    int fd = openat(dir_fd, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);

    return fd < 0 ? -errno : fd;
}

/* Tries to make a file: a file system that cannot is an error at the mount, not at a move. */
static int try_directory(int dir_fd, const char *path, char *why, size_t why_bytes)
{
    int fd = make_file(dir_fd);

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    if (fd == -EOPNOTSUPP || fd == -EISDIR)
        snprintf(why, why_bytes,
                 "disk tier (spill=%s): its file system makes no files without names (O_TMPFILE); "
                 "name a directory on another, such as ext4 or xfs",
                 path);
    else
        snprintf(why, why_bytes, "disk tier (spill=%s): no file can be made in it: %s", path,
                 strerror(-fd));
    return fd;
}

static int open_directory(const struct vmm_options *options, char *why, size_t why_bytes)
{
    int fd = open(options->spill, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error;

    if (fd < 0) {
        error = -errno;
        snprintf(why, why_bytes, "disk tier (spill=%s): cannot be opened: %s%s", options->spill,
                 strerror(-error), error == -ENOENT ? " (create it: mkdir -p)" : "");
        return error;
    }
    error = try_directory(fd, options->spill, why, why_bytes);
    if (error == 0)
        return fd;
    close(fd);
    return error;
}

static int disk_open(const char *root, const struct vmm_options *options, struct vmm_device *device,
                     char *why, size_t why_bytes)
{
    uint64_t unit_bytes = options->granularity_bytes;
    struct disk *disk;

    (void)root;
    if (options->size_bytes < unit_bytes) {
        snprintf(why, why_bytes, "disk tier (spill_size=): less than the granularity, %llu bytes",
                 (unsigned long long)unit_bytes);
        return -EINVAL;
    }
    int fd = open_directory(options, why, why_bytes);
    if (fd < 0)
        return fd;
    disk = calloc(1, sizeof(*disk));
    if (!disk) {
        snprintf(why, why_bytes, "disk tier (spill=): out of memory");
        close(fd);
        return -ENOMEM;
    }
    disk->dir_fd = fd;
    device->total_bytes = options->size_bytes / unit_bytes * unit_bytes;
    device->granularity_bytes = unit_bytes;
    device->state = disk;
    return 0;
}

static void disk_close(struct vmm_device *device)
{
    struct disk *disk = device->state;

    close(disk->dir_fd);
    free(disk);
    device->state = NULL;
}

/* Allocates blocks; fallocate(2) may return EINTR, and then has to begin again. */
static int take_blocks(int fd, uint64_t bytes)
{
    struct rlimit limit;
    sigset_t all, before;
    int error;

    /* beyond the limit the kernel would send SIGXFSZ */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur)
        return -EFBIG;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    do
        error = fallocate(fd, 0, 0, (off_t)bytes) < 0 ? -errno : 0;
    while (error == -EINTR);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int disk_create(struct vmm_device *device, uint64_t aligned_bytes, bool seal,
                       struct vmm_piece *piece)
{
    const struct disk *disk = device->state;
    struct vmm_piece made = {.fd = make_file(disk->dir_fd), .fd_readonly = -1};
    int error = made.fd < 0 ? made.fd : 0;

    (void)seal;
    if (error == 0) {
        made.fd_readonly = memfd_open_readonly(made.fd);
        error = made.fd_readonly < 0 ? made.fd_readonly : memfd_close_to_others(made.fd);
    }
    if (error == 0)
        error = take_blocks(made.fd, aligned_bytes);
    if (error == 0) {
        *piece = made;
        return 0;
    }
    if (made.fd_readonly >= 0)
        close(made.fd_readonly);
    if (made.fd >= 0)
        close(made.fd);
    return error;
}

static int transfer_once(int fd, uint8_t *to, const uint8_t *from, size_t bytes, uint64_t offset)
{
    int error = to ? file_read_at(fd, to, bytes, offset) : file_write_at(fd, from, bytes, offset);

    return error == -ENODATA ? -EIO : error;
}

/* One of `to` and `from` is given. Bytes that are refused past the page cache go through it. */
static int transfer(int fd, uint8_t *to, const uint8_t *from, size_t bytes, uint64_t offset)
{
    int error = transfer_once(fd, to, from, bytes, offset);

    if (error != -EINVAL)
        return error;
    file_end_direct(fd);
    return transfer_once(fd, to, from, bytes, offset);
}

/* Opens a description of its own: other readers use the cache meanwhile. */
static int disk_open_direct(struct vmm_device *device, const struct vmm_piece *piece)
{
    int fd = memfd_reopen(piece->fd, true);

    (void)device;
    if (fd < 0 || fcntl(fd, F_SETFL, O_DIRECT) == 0)
        return fd;
    close(fd);
    return -EOPNOTSUPP;
}

static int disk_read(struct vmm_device *device, const struct vmm_piece *piece, void *to,
                     size_t bytes, uint64_t offset)
{
    (void)device;
    return transfer(piece->fd, to, NULL, bytes, offset);
}

static int disk_write(struct vmm_device *device, struct vmm_piece *piece, const void *from,
                      size_t bytes, uint64_t offset)
{
    (void)device;
    return transfer(piece->fd, NULL, from, bytes, offset);
}

/* A file system without fdatasync(2) has no errors to report. */
static int disk_sync(struct vmm_device *device, const struct vmm_piece *piece)
{
    int error;

    (void)device;
    do
        error = fdatasync(piece->fd) < 0 ? -errno : 0;
    while (error == -EINTR);
    return error == -EINVAL || error == -EOPNOTSUPP ? 0 : error;
}

static int read_back(int fd, uint64_t offset, uint64_t bytes)
{
    uint64_t most = bytes < PROBE_BYTES ? bytes : PROBE_BYTES;
    SCOPED_FREE void *buffer = aligned_alloc(DISK_BLOCK_BYTES, most);
    int error = buffer ? 0 : -ENOMEM;

    for (uint64_t done = 0; error == 0 && done < bytes;) {
        uint64_t part = bytes - done < most ? bytes - done : most;

        error = transfer(fd, buffer, NULL, part, offset + done);
        done += part;
    }
    return error;
}

/* Reads past the page cache, which may have bytes that the disk has lost. Drivers report a failed
 * medium by several errors (ENODATA, EILSEQ, EREMOTEIO and others): all become one here. */
static int disk_probe(struct vmm_device *device, const struct vmm_piece *piece, uint64_t offset,
                      uint64_t bytes)
{
    int direct = disk_open_direct(device, piece), fd = direct >= 0 ? direct : piece->fd;
    struct stat status;
    int error = fstat(piece->fd, &status) < 0 ? -errno : 0;

    if (error == 0 && (uint64_t)status.st_size < piece->aligned_bytes)
        error = -EIO;
    if (error == 0)
        error = read_back(fd, offset, bytes);
    if (direct >= 0)
        close(direct);
    return error == 0 || error == -ENOMEM || error == -EINTR ? error : -EIO;
}

static int disk_duplicate(struct vmm_device *device, const struct vmm_piece *piece, bool writable)
{
    (void)device;
    return memfd_reopen(piece->fd, writable);
}

/* Empties the file: a client with a descriptor would otherwise keep its blocks, beyond the tier's
 * bound. */
static void disk_release(struct vmm_device *device, const struct vmm_piece *piece)
{
    (void)device;
    if (ftruncate(piece->fd, 0) < 0)
        log_warning("disk tier: an unused file cannot be emptied: %s; its blocks are freed "
                    "when all its descriptors are closed",
                    strerror(errno));
}

const struct vmm_backend vmm_backend_disk = {
    .open = disk_open,
    .close = disk_close,
    .create = disk_create,
    .read = disk_read,
    .write = disk_write,
    .duplicate = disk_duplicate,
    .open_direct = disk_open_direct,
    .sync = disk_sync,
    .probe = disk_probe,
    .release = disk_release,
};
