/* SPDX-License-Identifier: Apache-2.0 */
/* The store's pseudo-files, directories and attributes, by descriptor: names may change. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/key_name.h"
#include "internal.h"
#include "large.h"

/* First read of a file of unknown size; doubles each time. The kernel pins the whole buffer of a
 * read, so a large buffer for a few bytes takes longer than the bytes themselves. */
#define FILES_FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC, linux/magic.h since 5.19 */
#define FILES_READ_BYTES ((size_t)32 << 10)

/* ---- descriptors of a handle --------------------------------------------------------------- */

int gfs_fd_above(int fd)
{
    int above, error;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    error = errno;
    close(fd);
    errno = error;
    return above;
}

int gfs_file_error(int error)
{
    return error == ECONNABORTED ? -ENOTCONN : -error;
}

int gfs_check_mount(int root)
{
    struct statfs fs;
    struct stat socket;

    if (fstatfs(root, &fs) < 0)
        return gfs_file_error(errno);
    if ((unsigned long)fs.f_type != FILES_FUSE_MAGIC)
        return -ENOTTY;
    if (fstatat(root, ".fds", &socket, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? -ENOTTY : gfs_file_error(errno);
    return S_ISSOCK(socket.st_mode) ? 0 : -ENOTTY;
}

void gfs_fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static int files_open_ctl(int dir_fd, int flags)
{
    int fd;

    do
        fd = gfs_fd_above(openat(dir_fd, "ctl", flags | O_CLOEXEC));
    while (fd < 0 && errno == EINTR);
    return fd < 0 ? gfs_file_error(errno) : fd;
}

int gfs_ctl_open_best(int dir_fd, int *writable)
{
    int fd = files_open_ctl(dir_fd, O_RDWR);

    *writable = fd >= 0;
    if (fd == -EACCES || fd == -EROFS)
        fd = files_open_ctl(dir_fd, O_RDONLY);
    return fd;
}

int gfs_ctl_open(struct gmsfs_store *handle, int need_write)
{
    int fd, writable;

    gfs_gate_enter();
    fd = gfs_ctl_open_best(handle->dir_fd, &writable);
    if (fd >= 0 && need_write && !writable) {
        close(fd);
        fd = -EACCES;
    }
    if (fd >= 0) {
        gfs_fd_close(&handle->ctl_fd);
        handle->ctl_fd = fd;
        handle->writable = writable;
    }
    gfs_gate_leave();
    if (fd == -ENOENT)
        return -ESTALE;
    return fd < 0 ? fd : 0;
}

void gfs_fds_close(struct gmsfs_store *handle)
{
    gfs_gate_enter();
    gfs_fd_close(&handle->fds_fd);
    gfs_gate_leave();
}

/* ---- reading ------------------------------------------------------------------------------ */

/* Room for more behind `size` bytes, and for a NUL. */
static int files_make_room(uint8_t **data, size_t size, size_t *room)
{
    if (*room - size >= FILES_READ_BYTES / 2)
        return 0;
    uint8_t *grown = realloc(*data, *room * 2);
    if (!grown)
        return -ENOMEM;
    *data = grown;
    *room *= 2;
    return 0;
}

static int files_read_all(int fd, uint64_t expected_bytes, uint64_t limit_bytes, uint8_t **bytes,
                          size_t *size_bytes)
{
    size_t size = 0, room = FILES_READ_BYTES;
    ssize_t got;
    int error = 0;

    /* So much more that its end is found without a growth. */
    if (expected_bytes && expected_bytes <= limit_bytes)
        room += (size_t)expected_bytes;
    uint8_t *data = gfs_large_alloc(room);
    if (!data)
        return -ENOMEM;
    for (;;) {
        error = files_make_room(&data, size, &room);
        if (error)
            break;
        got = read(fd, data + size, room - size - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            error = gfs_file_error(errno);
        if (got <= 0)
            break;
        size += (size_t)got;
        if (size > limit_bytes) {
            error = -EFBIG;
            break;
        }
    }
    if (error) {
        free(data);
        return error;
    }
    data[size] = 0;
    *bytes = data;
    *size_bytes = size;
    return 0;
}

int gfs_file_read(struct gmsfs_store *handle, const char *name, uint64_t expected_bytes,
                  uint64_t limit_bytes, uint8_t **bytes, size_t *size_bytes)
{
    int fd, error;

    gfs_gate_enter();
    do
        fd = gfs_fd_above(openat(handle->dir_fd, name, O_RDONLY | O_CLOEXEC));
    while (fd < 0 && errno == EINTR);
    error = fd < 0 ? gfs_file_error(errno)
                   : files_read_all(fd, expected_bytes, limit_bytes, bytes, size_bytes);
    if (fd >= 0)
        close(fd);
    gfs_gate_leave();
    return error;
}

int gfs_dir_walk(struct gmsfs_store *handle, const char *directory, gfs_name_fn *each,
                 void *context)
{
    struct dirent *entry;
    DIR *stream = NULL;
    int fd, error = 0;

    gfs_gate_enter();
    fd = gfs_fd_above(openat(handle->dir_fd, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0) {
        /* every store has its directories */
        error = errno == ENOENT ? -ESTALE : gfs_file_error(errno);
        goto out;
    }
    stream = fdopendir(fd);
    if (!stream) {
        error = -errno;
        close(fd);
        goto out;
    }
    for (;;) {
        errno = 0;
        entry = readdir(stream);
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        error = each(context, dirfd(stream), entry->d_name);
        if (error)
            break;
    }
    if (!entry && errno)
        error = gfs_file_error(errno);
    closedir(stream);
out:
    gfs_gate_leave();
    return error;
}

/* ---- attributes --------------------------------------------------------------------------- */

/* By path through /proc: opening an allocation would take a lock, and O_PATH has no attributes. */
int gfs_xattr_text(int dir_fd, const char *name, const char *attribute, char *text,
                   size_t text_bytes)
{
    char path[64 + NAME_MAX];

    snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir_fd, name);
    ssize_t got = getxattr(path, attribute, text, text_bytes - 1);
    if (got < 0)
        return gfs_file_error(errno);
    text[got] = 0;
    return 0;
}

int gfs_xattr_u64(int dir_fd, const char *name, const char *attribute, uint64_t *value)
{
    char text[32], *end;
    int error = gfs_xattr_text(dir_fd, name, attribute, text, sizeof text);

    if (error)
        return error;
    if (text[0] < '0' || text[0] > '9')
        return -EPROTO;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno || *end ? -EPROTO : 0;
}

/* ---- keys as file names ------------------------------------------------------------------- */

int gfs_key_check(const char *key)
{
    char name[KEY_NAME_BYTES];
    size_t size_bytes = key ? strnlen(key, GMSFS_NAME_MAX + 1) : 0;

    if (size_bytes && size_bytes <= GMSFS_NAME_MAX && *key != '.' &&
        !memchr(key, '%', size_bytes) && !memchr(key, '/', size_bytes))
        return 0; /* it is its own name */
    return key_name_encode(key, name);
}

int gfs_key_decode(const char *name, char *key, size_t *key_bytes)
{
    size_t used = 0;

    for (const char *at = name; *at; at++) {
        if (*at != '%') {
            key[used++] = *at;
            continue;
        }
        if (strncmp(at, "%25", 3) == 0)
            key[used++] = '%';
        else if (strncmp(at, "%2F", 3) == 0)
            key[used++] = '/';
        else if (strncmp(at, "%2E", 3) == 0 && at == name)
            key[used++] = '.';
        else if (strncmp(at, "%00", 3) == 0)
            key[used++] = 0;
        else
            return -EINVAL;
        at += 2;
    }
    key[used] = 0;
    *key_bytes = used;
    return used ? 0 : -EINVAL;
}
