/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_files - operations of gmsctl on open files and paths
 *
 * For gmsctl.c alone. Each returns 0 or a negative errno.
 */
#ifndef TOOLS_GMSCTL_FILES_H
#define TOOLS_GMSCTL_FILES_H

#include "gmsctl_arguments.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#define COPY_BYTES (1u << 20)

static int flags_of(const char *text)
{
    static const struct {
        char letter;
        int flag;
    } known[] = {{'n', O_NONBLOCK}, {'t', O_TRUNC},     {'a', O_APPEND}, {'c', O_CREAT},
                 {'x', O_EXCL},     {'d', O_DIRECTORY}, {'p', O_PATH}};
    bool reads = strchr(text, 'r'), writes = strchr(text, 'w');
    int flags = O_CLOEXEC | (reads && writes ? O_RDWR : writes ? O_WRONLY : O_RDONLY);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strchr(text, known[i].letter))
            flags |= known[i].flag;
    return flags;
}

static int use_file(int fd)
{
    if (fd < 0)
        return -errno;
    if (s.file_count == MAX_FILES)
        die("too many files", "open");
    s.files[s.file_count++] = fd;
    s.fd = fd;
    return 0;
}

static int op_open(char **arg)
{
    return use_file(open(arg[0], flags_of(arg[1]), 0666));
}

/* Opens like a program that signals do not stop. */
static int op_open_retry(char **arg)
{
    int fd;
    do {
        fd = open(arg[0], flags_of(arg[1]), 0666);
    } while (fd < 0 && errno == EINTR);
    return use_file(fd);
}

static int op_fd(char **arg)
{
    return use_file((int)number(arg[0]));
}

static int op_use(char **arg)
{
    uint64_t index = number(arg[0]);
    if (index >= (uint64_t)s.file_count)
        die("no such file", arg[0]);
    s.fd = s.files[index];
    return 0;
}

static int op_close(char **arg)
{
    (void)arg;
    for (int i = 0; i < s.file_count; i++)
        if (s.files[i] == s.fd) {
            memmove(&s.files[i], &s.files[i + 1],
                    (size_t)(s.file_count - i - 1) * sizeof s.files[0]);
            s.file_count--;
            break;
        }
    return result(close(s.fd));
}

/* Like the exit of a child that inherited the file: FLUSH, but no RELEASE. */
static int op_dupclose(char **arg)
{
    (void)arg;
    int copy = dup(s.fd);
    return copy < 0 ? -errno : result(close(copy));
}

static int print_read(ssize_t got, const uint8_t *data)
{
    if (got < 0)
        return -errno;
    fwrite(data, 1, (size_t)got, stdout);
    if (got == 0 || data[got - 1] != '\n')
        putchar('\n');
    return 0;
}

static int op_read(char **arg)
{
    struct bytes room = {.size = number(arg[0])};
    room.data = calloc(1, room.size + 1);
    int error = print_read(read(s.fd, room.data, room.size), room.data);
    free(room.data);
    return error;
}

static int op_pread(char **arg)
{
    struct bytes room = {.size = number(arg[1])};
    room.data = calloc(1, room.size + 1);
    int error = print_read(pread(s.fd, room.data, room.size, (off_t)number(arg[0])), room.data);
    free(room.data);
    return error;
}

static int op_write(char **arg)
{
    struct bytes from = bytes_of(arg[0]);
    ssize_t wrote = write(s.fd, from.data, from.size);
    free(from.data);
    if (wrote >= 0 && (size_t)wrote != from.size)
        printf("written=%zd\n", wrote);
    return result(wrote);
}

static int op_pwrite(char **arg)
{
    struct bytes from = bytes_of(arg[1]);
    ssize_t wrote = pwrite(s.fd, from.data, from.size, (off_t)number(arg[0]));
    free(from.data);
    if (wrote >= 0 && (size_t)wrote != from.size)
        printf("written=%zd\n", wrote);
    return result(wrote);
}

/* Writes N bytes in pieces, as programs do, and prints the number written. */
static int op_fill(char **arg)
{
    static uint8_t piece[COPY_BYTES];
    uint64_t left = number(arg[0]), written = 0;
    ssize_t wrote = 0;
    memset(piece, 'v', sizeof piece);
    while (left > 0) {
        wrote = write(s.fd, piece, left < sizeof piece ? left : sizeof piece);
        if (wrote <= 0)
            break;
        left -= (uint64_t)wrote;
        written += (uint64_t)wrote;
    }
    int error = result(wrote);
    printf("written=%llu\n", (unsigned long long)written);
    return error;
}

/* Checks that every four bytes from here on hold their own offset. */
static int op_count(char **arg)
{
    static uint32_t piece[COPY_BYTES / sizeof(uint32_t)];
    uint64_t bytes = number(arg[0]), written = 0;
    while (written < bytes) {
        uint64_t most = bytes - written < sizeof piece ? bytes - written : sizeof piece;
        for (size_t i = 0; i < sizeof piece / sizeof piece[0]; i++)
            piece[i] = (uint32_t)(written + i * sizeof piece[0]);
        ssize_t wrote = write(s.fd, piece, most);
        if (wrote <= 0)
            return result(wrote);
        written += (uint64_t)wrote;
    }
    return 0;
}

/* Prints one number for all its bytes. */
static int op_hash(char **arg)
{
    static uint8_t piece[COPY_BYTES];
    uint64_t hash = UINT64_C(14695981039346656037), offset = 0;
    ssize_t got;
    (void)arg;
    while ((got = pread(s.fd, piece, sizeof piece, (off_t)offset)) > 0) {
        for (ssize_t i = 0; i < got; i++)
            hash = (hash ^ piece[i]) * UINT64_C(1099511628211);
        offset += (uint64_t)got;
    }
    printf("bytes=%llu hash=%016llx\n", (unsigned long long)offset, (unsigned long long)hash);
    return result(got);
}

static int op_writefile(char **arg)
{
    static uint8_t piece[COPY_BYTES];
    int from = open(arg[0], O_RDONLY | O_CLOEXEC);
    if (from < 0)
        die("cannot open", arg[0]);
    for (;;) {
        ssize_t got = read(from, piece, sizeof piece);
        if (got <= 0)
            break;
        ssize_t wrote = write(s.fd, piece, (size_t)got);
        if (wrote != got)
            return wrote < 0 ? -errno : -EIO;
    }
    close(from);
    return 0;
}

static int op_seek(char **arg)
{
    return result(lseek(s.fd, (off_t)number(arg[0]), SEEK_SET));
}

static int op_fsync(char **arg)
{
    (void)arg;
    return result(fsync(s.fd));
}

static int op_ftruncate(char **arg)
{
    return result(ftruncate(s.fd, (off_t)number(arg[0])));
}

static int op_fallocate(char **arg)
{
    return result(
        fallocate(s.fd, (int)number(arg[0]), (off_t)number(arg[1]), (off_t)number(arg[2])));
}

static int op_truncate(char **arg)
{
    return result(truncate(arg[0], (off_t)number(arg[1])));
}

static int op_mkdir(char **arg)
{
    return result(mkdir(arg[0], 0777));
}

static int op_rmdir(char **arg)
{
    return result(rmdir(arg[0]));
}

/* Removes each name as soon as it is listed, like rm -r where readdir has a small buffer. */
static int op_empty(char **arg)
{
    char path[PATH_MAX], buffer[32768];
    size_t room = number(arg[1]), removed = 0;
    int directory = open(arg[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long bytes;
    if (directory < 0 || room > sizeof buffer)
        return directory < 0 ? -errno : -EINVAL;
    while ((bytes = syscall(SYS_getdents64, directory, buffer, room)) > 0)
        for (long at = 0; at < bytes;) {
            const struct dirent64 *entry = (const void *)(buffer + at);
            at += entry->d_reclen;
            snprintf(path, sizeof path, "%s/%s", arg[0], entry->d_name);
            removed += entry->d_name[0] != '.' && unlink(path) == 0;
        }
    close(directory);
    printf("removed=%zu\n", removed);
    return bytes < 0 ? -errno : 0;
}

/* Prints the names, in the order of readdir. */
static int op_readdir(char **arg)
{
    char buffer[32768];
    size_t room = number(arg[1]);
    int directory = open(arg[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long bytes;
    if (directory < 0 || room > sizeof buffer)
        return directory < 0 ? -errno : -EINVAL;
    while ((bytes = syscall(SYS_getdents64, directory, buffer, room)) > 0)
        for (long at = 0; at < bytes;) {
            const struct dirent64 *entry = (const void *)(buffer + at);
            at += entry->d_reclen;
            puts(entry->d_name);
        }
    close(directory);
    return bytes < 0 ? -errno : 0;
}

/* Prints the largest number of bytes of names that come at once. */
static int op_getdents(char **arg)
{
    size_t room = number(arg[1]);
    char *buffer = malloc(room);
    int directory = open(arg[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long bytes = directory < 0 || !buffer ? -1 : syscall(SYS_getdents64, directory, buffer, room);
    int error = bytes < 0 ? -errno : 0;
    printf("%ld\n", bytes);
    close(directory);
    free(buffer);
    return error;
}

static int op_unlink(char **arg)
{
    return result(unlink(arg[0]));
}

static int op_rename(char **arg)
{
    return result(rename(arg[0], arg[1]));
}

static int op_exchange(char **arg)
{
    return result(renameat2(AT_FDCWD, arg[0], AT_FDCWD, arg[1], RENAME_EXCHANGE));
}

static int op_noreplace(char **arg)
{
    return result(renameat2(AT_FDCWD, arg[0], AT_FDCWD, arg[1], RENAME_NOREPLACE));
}

static int op_link(char **arg)
{
    return result(link(arg[0], arg[1]));
}

static int op_symlink(char **arg)
{
    return result(symlink(arg[0], arg[1]));
}

static int op_mkfifo(char **arg)
{
    return result(mkfifo(arg[0], 0666));
}

static int op_mknod(char **arg)
{
    return result(mknod(arg[0], S_IFREG | 0666, 0));
}

static int op_bind(char **arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(arg[0]) >= sizeof address.sun_path)
        die("path too long", arg[0]);
    memcpy(address.sun_path, arg[0], strlen(arg[0]));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    return result(bind(fd, (struct sockaddr *)&address, sizeof address));
}

static int op_chmod(char **arg)
{
    return result(chmod(arg[0], (mode_t)number(arg[1])));
}

static int op_stat(char **arg)
{
    struct stat stat;
    if (lstat(arg[0], &stat) != 0)
        return -errno;
    printf("size=%lld blocks=%lld mode=%o uid=%u gid=%u ino=%llu\n", (long long)stat.st_size,
           (long long)stat.st_blocks, stat.st_mode & 07777, stat.st_uid, stat.st_gid,
           (unsigned long long)stat.st_ino);
    return 0;
}

static int op_setxattr(char **arg)
{
    struct bytes value = bytes_of(arg[2]);
    int error = result(lsetxattr(arg[0], arg[1], value.data, value.size, 0));
    free(value.data);
    return error;
}

static int op_getxattr(char **arg)
{
    uint8_t value[1024];
    return print_read(lgetxattr(arg[0], arg[1], value, sizeof value), value);
}

static int op_removexattr(char **arg)
{
    return result(lremovexattr(arg[0], arg[1]));
}

#endif
