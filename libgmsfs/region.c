/* SPDX-License-Identifier: Apache-2.0 */
/* One reference to a region: its open file, its descriptor, its bytes. */
#include "regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/key_name.h"
#include "internal.h"

struct gmsfs_region {
    int file; /* the reference */
    int fd;   /* of the object; -1: it has none */
    struct gmsfs_region_info info;
    void *map; /* NULL: it is not mapped */
    size_t map_bytes;
    pid_t pid; /* process that owns the reference */
    atomic_int closed;
};

static int region_check(const struct gmsfs_region *region)
{
    if (!region)
        return -EINVAL;
    return atomic_load(&region->closed) ? -EBADF : 0;
}

/* ---- taking and giving back ---------------------------------------------------------------- */

static int region_open_at(int dir_fd, const char *path, int flags)
{
    int fd;

    do
        fd = gfs_fd_above(openat(dir_fd, path, flags | O_CLOEXEC));
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* Returns the directory of this user, and keeps it open: opening further regions then looks up one
 * name instead of three. -1 with errno. */
static int region_open_owner(struct gmsfs_regions *regions, uint32_t uid)
{
    char path[32];

    if (regions->owner_fd >= 0)
        close(regions->owner_fd);
    snprintf(path, sizeof path, "regions/%u", uid);
    regions->owner_fd = region_open_at(regions->dir_fd, path, O_PATH | O_DIRECTORY);
    regions->owner_uid = uid;
    return regions->owner_fd;
}

/* A directory that was kept may be gone with its last region, and there again. */
static int region_open_name(struct gmsfs_regions *regions, uint32_t uid, const char *name)
{
    int file;

    if (regions->owner_fd >= 0 && regions->owner_uid == uid) {
        file = region_open_at(regions->owner_fd, name, O_RDONLY);
        if (file >= 0 || (errno != ENOENT && errno != ESTALE))
            return file;
    }
    if (region_open_owner(regions, uid) < 0)
        return -1;
    return region_open_at(regions->owner_fd, name, O_RDONLY);
}

static int region_open_file(struct gmsfs_regions *regions, uint32_t uid, const char *name,
                            enum gmsfs_region_reason *reason, int *file)
{
    char encoded[KEY_NAME_BYTES];

    if (uid == GMSFS_REGION_SELF)
        uid = regions->uid;
    if (uid != regions->uid && regions->uid != 0)
        return gfs_region_fail(reason, GMSFS_REGION_NOT_OWNER, -EPERM);
    if (strlen(name) > GMSFS_REGION_NAME_MAX || key_name_encode(name, encoded) < 0)
        return gfs_region_fail(reason, GMSFS_REGION_UNKNOWN, -ENOENT);
    *file = region_open_name(regions, uid, encoded);
    if (*file >= 0)
        return 0;
    if (errno == ENOENT || errno == ESTALE)
        return gfs_region_fail(reason, GMSFS_REGION_UNKNOWN, -ENOENT);
    if (errno == EACCES)
        return gfs_region_fail(reason, GMSFS_REGION_NOT_OWNER, -EPERM);
    if (errno == EDQUOT || errno == ENFILE)
        gfs_region_fail(reason, GMSFS_REGION_BOUND, 0);
    return gfs_file_error(errno);
}

/* A reference, its facts and a ticket; again where a signal came first. */
static int region_ask(const struct gmsfs_region *region, struct gmsfs_ioc_region *hold)
{
    int error;

    do {
        *hold = (struct gmsfs_ioc_region){.flags = GMSFS_REGION_HOLD};
        error = ioctl(region->file, GMSFS_IOC_REGION, hold) < 0 ? -errno : 0;
    } while (error == -EINTR);
    return error;
}

static int region_fail_hold(int error, enum gmsfs_region_reason *reason)
{
    if (error == -ESTALE)
        return gfs_region_fail(reason, GMSFS_REGION_UNKNOWN, -ENOENT);
    if (error == -EDQUOT || error == -ENOSPC)
        return gfs_region_fail(reason, GMSFS_REGION_BOUND, error);
    return gfs_file_error(-error);
}

/* The reference, and the descriptor that it gives. */
static int region_hold(struct gmsfs_regions *regions, struct gmsfs_region *region,
                       enum gmsfs_region_reason *reason)
{
    static const uint8_t none[16];
    struct gmsfs_ioc_region hold;
    struct gfs_again again;
    int error = region_ask(region, &hold);

    if (error)
        return region_fail_hold(error, reason);
    region->info = hold.info;
    if (memcmp(hold.ticket, none, sizeof none) == 0)
        return 0;
    gfs_again_begin(&again);
    error = gfs_regions_redeem(regions, hold.ticket, &region->fd);
    while (error == -ECONNRESET ||
           error == -ESTALE) { /* a ticket is good for one try, and a time */
        int pause = gfs_regions_pause(regions, &again);

        if (pause)
            return pause == -ETIMEDOUT && error == -ESTALE ? error : pause;
        error = region_ask(region, &hold);
        if (error)
            return region_fail_hold(error, reason);
        error = gfs_regions_redeem(regions, hold.ticket, &region->fd);
    }
    return error;
}

static void region_free(struct gmsfs_region *region)
{
    if (region->fd >= 0)
        close(region->fd);
    if (region->file >= 0)
        close(region->file);
    free(region);
}

int gmsfs_region_open(gmsfs_regions_t *regions, uint32_t uid, const char *name,
                      gmsfs_region_t **out, enum gmsfs_region_reason *reason)
{
    struct gmsfs_region *region;

    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    if (!name || !out)
        return -EINVAL;
    int error = gfs_regions_enter(regions);
    if (error)
        return error;
    region = calloc(1, sizeof *region);
    if (region) {
        region->file = region->fd = -1;
        region->pid = getpid();
        error = region_open_file(regions, uid, name, reason, &region->file);
        if (!error)
            error = region_hold(regions, region, reason);
        if (error)
            region_free(region);
    } else {
        error = -ENOMEM;
    }
    gfs_regions_leave(regions);
    if (!error)
        *out = region;
    return error;
}

static struct gfs_closed region_closed;

/* Frees the region; its descriptors are closed, or have another owner. */
static void region_retire(struct gmsfs_region *region)
{
    region->file = region->fd = -1;
    free(gfs_closed_keep(&region_closed, region));
}

void gmsfs_region_close(gmsfs_region_t *region)
{
    if (region_check(region))
        return;
    gmsfs_region_unmap(region);
    if (atomic_exchange(&region->closed, 1))
        return;
    gfs_hold_thread();
    /* close(2) comes back before the mount has heard of it. In a child of fork(2) the reference
     * belongs to its parent, which still has it. */
    if (region->pid == getpid())
        ioctl(region->file, GMSFS_IOC_RELEASE);
    gfs_fd_close(&region->fd);
    gfs_fd_close(&region->file);
    region_retire(region);
    gfs_let_thread();
}

int gmsfs_region_detach(gmsfs_region_t *region, int *file, int *fd)
{
    int error = file && fd ? region_check(region) : -EINVAL;

    if (error)
        return error;
    if (region->map)
        return -EBUSY;
    if (atomic_exchange(&region->closed, 1))
        return -EBADF;
    *file = region->file;
    *fd = region->fd;
    region_retire(region);
    return 0;
}

int(gmsfs_region_attach)(int file, int fd, const struct gmsfs_region_info *info,
                         gmsfs_region_t **out, size_t info_bytes)
{
    struct gmsfs_region *region;

    if (!info || !out || gfs_check_struct(info_bytes))
        return -EINVAL;
    if (fcntl(file, F_GETFD) < 0 || (fd >= 0 && fcntl(fd, F_GETFD) < 0))
        return -EBADF;
    region = calloc(1, sizeof *region);
    if (!region)
        return -ENOMEM;
    *region = (struct gmsfs_region){.file = file, .fd = fd < 0 ? -1 : fd, .pid = getpid()};
    gfs_give_struct(&region->info, sizeof region->info, info, info_bytes);
    *out = region;
    return 0;
}

const struct gmsfs_region_info *gmsfs_region_info(const gmsfs_region_t *region)
{
    return region_check(region) ? NULL : &region->info;
}

int gmsfs_region_descriptor(const gmsfs_region_t *region)
{
    int error = region_check(region);

    if (error)
        return error;
    return region->fd >= 0 ? region->fd : -ENODATA;
}

/* ---- bytes --------------------------------------------------------------------------------- */

int gmsfs_region_check(const struct gmsfs_region_info *info, uint64_t offset, uint64_t size_bytes,
                       enum gmsfs_region_reason *reason)
{
    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    if (!info)
        return -EINVAL;
    if (offset >= info->byte_size)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_OFFSET, -ERANGE);
    if (size_bytes > UINT64_MAX - offset)
        return gfs_region_fail(reason, GMSFS_REGION_OVERFLOW, -ERANGE);
    if (offset + size_bytes > info->byte_size)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_END, -ERANGE);
    return 0;
}

static int region_is_host(const struct gmsfs_region *region)
{
    return region->fd >= 0 && region->info.memory == GMSFS_MEMORY_HOST;
}

/* Where its bytes are read: in the object, or, where they are a GPU's, by the reference itself. */
static int region_find_source(const struct gmsfs_region *region, int *fd, uint64_t *start)
{
    if (region->info.kind == GMSFS_REGION_CUDA)
        return -EOPNOTSUPP;
    *fd = region_is_host(region) ? region->fd : region->file;
    *start = region_is_host(region) ? region->info.offset : 0;
    return 0;
}

/* Does the object still reach so far? Where the kernel cannot say it, it does. */
static int region_check_object(const struct gmsfs_region *region, uint64_t end,
                               enum gmsfs_region_reason *reason)
{
    struct stat stat;

    if (fstat(region->fd, &stat) < 0)
        return -errno;
    if ((uint64_t)stat.st_size < end)
        return gfs_region_fail(reason, GMSFS_REGION_SHRUNK, -ENODATA);
    return 0;
}

static int region_read(struct gmsfs_region *region, uint64_t offset, void *bytes, size_t size_bytes,
                       enum gmsfs_region_reason *reason)
{
    uint8_t *to = bytes;
    uint64_t start = 0;
    int fd = -1, error;

    error = bytes || !size_bytes ? region_check(region) : -EINVAL;
    if (!error)
        error = region_find_source(region, &fd, &start);
    if (!error)
        error = gmsfs_region_check(&region->info, offset, size_bytes, reason);
    for (size_t done = 0; !error && done < size_bytes;) {
        ssize_t got = pread(fd, to + done, size_bytes - done, (off_t)(start + offset + done));

        if (got == 0)
            return gfs_region_fail(reason, GMSFS_REGION_SHRUNK, -ENODATA);
        if (got < 0 && errno != EINTR)
            error = gfs_file_error(errno);
        if (got > 0)
            done += (size_t)got;
    }
    return error;
}

int gmsfs_region_read(gmsfs_region_t *region, uint64_t offset, void *bytes, size_t size_bytes,
                      enum gmsfs_region_reason *reason)
{
    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    gfs_hold_thread();
    int error = region_read(region, offset, bytes, size_bytes, reason);
    gfs_let_thread();
    return error;
}

/* The end of the object is looked at first, for pwrite(2) would make it larger. */
static int region_write(struct gmsfs_region *region, uint64_t offset, const void *bytes,
                        size_t size_bytes, enum gmsfs_region_reason *reason)
{
    const uint8_t *from = bytes;
    int error = bytes || !size_bytes ? region_check(region) : -EINVAL;

    if (error)
        return error;
    if (region->info.kind == GMSFS_REGION_CUDA)
        return -EOPNOTSUPP;
    if (!(region->info.flags & GMSFS_REGION_WRITABLE))
        return -EACCES;
    error = gmsfs_region_check(&region->info, offset, size_bytes, reason);
    uint64_t start = region->info.offset + offset;
    if (!error)
        error = region_check_object(region, start + size_bytes, reason);
    for (size_t done = 0; !error && done < size_bytes;) {
        ssize_t put = pwrite(region->fd, from + done, size_bytes - done, (off_t)(start + done));

        if (put < 0 && errno != EINTR)
            error = -errno;
        if (put > 0)
            done += (size_t)put;
    }
    return error;
}

int gmsfs_region_write(gmsfs_region_t *region, uint64_t offset, const void *bytes,
                       size_t size_bytes, enum gmsfs_region_reason *reason)
{
    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    gfs_hold_thread();
    int error = region_write(region, offset, bytes, size_bytes, reason);
    gfs_let_thread();
    return error;
}

/* ---- mapping ------------------------------------------------------------------------------- */

int gmsfs_region_map(gmsfs_region_t *region, enum gmsfs_access access, void **ptr)
{
    int protection = access == GMSFS_ACCESS_WRITE ? PROT_READ | PROT_WRITE : PROT_READ;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), before;
    int valid = ptr && (access == GMSFS_ACCESS_READ || access == GMSFS_ACCESS_WRITE);
    int error = valid ? region_check(region) : -EINVAL;

    if (error)
        return error;
    if (region->map)
        return -EBUSY;
    if (!region_is_host(region))
        return -EOPNOTSUPP;
    if (access == GMSFS_ACCESS_WRITE && !(region->info.flags & GMSFS_REGION_WRITABLE))
        return -EACCES;
    error = region_check_object(region, region->info.offset + region->info.byte_size, NULL);
    if (error)
        return error;
    before = region->info.offset % page;
    region->map_bytes = (size_t)(before + region->info.byte_size);
    region->map = mmap(NULL, region->map_bytes, protection, MAP_SHARED, region->fd,
                       (off_t)(region->info.offset - before));
    if (region->map == MAP_FAILED) {
        region->map = NULL;
        return -errno;
    }
    *ptr = (uint8_t *)region->map + before;
    return 0;
}

int gmsfs_region_unmap(gmsfs_region_t *region)
{
    int error = region_check(region);

    if (error)
        return error;
    if (region->map && munmap(region->map, region->map_bytes) < 0)
        return -errno;
    region->map = NULL;
    return 0;
}
