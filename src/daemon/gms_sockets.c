/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gms_sockets.h"

#include "base/file_io.h"
#include "base/log.h"
#include "daemon/privileges.h"
#include "rpc/wire_id.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GMS_BACKLOG       4096
#define GMS_MAX_TRIES     100u /* at a place that other mounts take and leave meanwhile */
#define GMS_LOCK_PAUSE_NS 5000000

/* ---- messages ------------------------------------------------------------------------------- */

/* Logs why the mount fails. Returns `error`. */
__attribute__((format(printf, 3, 4))) static int refuse(const struct gms_sockets_options *options,
                                                        int error, const char *format, ...)
{
    char why[900];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    log_error("%s: not mounted: %s", options->mountpoint, why);
    return error;
}

static const char *other_place(const struct gms_socket *socket)
{
    return socket->protocol == MESSAGE_V1
               ? "or give this mount a number (gms_ordinal=) or a directory (gms_dir=) of its own"
               : "or give this mount a directory of its own (gms_dir=)";
}

static int refuse_call(const struct gms_sockets_options *options, const struct gms_socket *socket,
                       int error)
{
    char way_out[400] = "name another directory by gms_dir=";

    if (error == -ENOENT)
        snprintf(way_out, sizeof way_out, "make its directory: mkdir -p %s", options->dir);
    else if (error == -EACCES || error == -EPERM || error == -EROFS)
        snprintf(way_out, sizeof way_out,
                 "user %u needs a directory that it may write to; name one by gms_dir=",
                 (unsigned)geteuid());
    else if (error == -EINVAL)
        snprintf(way_out, sizeof way_out,
                 "its file system cannot rename without replacing; name a directory on tmpfs or a "
                 "disk of this machine by gms_dir=");
    return refuse(options, error, "cannot make the GMS socket %s: %s (%s)", socket->path,
                  strerror(-error), way_out);
}

/* ---- names ----------------------------------------------------------------------------------- */

static size_t measure_dir(const char *dir)
{
    size_t bytes = strlen(dir);

    while (bytes > 0 && dir[bytes - 1] == '/')
        bytes--;
    return bytes;
}

static int make_path(const struct gms_sockets_options *options, struct gms_socket *socket)
{
    char device[WIRE_ID_GPU_BYTES], path[512];

    if (socket->protocol == MESSAGE_V0)
        wire_id_format_gpu(options->uuid, device);
    else
        snprintf(device, sizeof device, "%" PRIu32, options->ordinal);
    int written = snprintf(path, sizeof path, "%.*s/gms_%s_%s.sock", (int)measure_dir(options->dir),
                           options->dir, device, rpc_domain_name(socket->domain));
    if ((size_t)written >= sizeof socket->path)
        return refuse(options, -ENAMETOOLONG,
                      "the GMS socket %s: its path has %d bytes, and a socket's has %zu at most; "
                      "name a shorter directory by gms_dir=",
                      path, written, sizeof socket->path - 1);
    memcpy(socket->path, path, (size_t)written + 1);
    return 0;
}

/* Makes a path in the same directory that no other process uses. */
static int make_own_path(const struct gms_sockets_options *options,
                         char path[GMS_SOCKETS_PATH_BYTES])
{
    uint64_t random = 0;

    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return -EAGAIN;
    int written = snprintf(path, GMS_SOCKETS_PATH_BYTES, "%.*s/.gms_%016" PRIx64,
                           (int)measure_dir(options->dir), options->dir, random);
    return (size_t)written >= GMS_SOCKETS_PATH_BYTES ? -ENAMETOOLONG : 0;
}

static struct sockaddr_un make_address(const char path[GMS_SOCKETS_PATH_BYTES])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    memcpy(address.sun_path, path, strlen(path));
    return address;
}

/* ---- the file that is there already --------------------------------------------------------- */

/* Returns -EADDRINUSE if a process listens, 0 if none does, or an error if that cannot be found
 * out. */
static int check_listener(const char path[GMS_SOCKETS_PATH_BYTES])
{
    struct sockaddr_un address = make_address(path);
    SCOPED_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int error = fd < 0 ? -errno : -EADDRINUSE;

    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        error = -errno;
    if (error == -EPROTOTYPE || (fd >= 0 && error == -EAGAIN))
        return -EADDRINUSE; /* a socket of another kind; one with a full queue */
    return error == -ECONNREFUSED || error == -ENOENT ? 0 : error;
}

static const char *name_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "a file";
    case S_IFDIR:
        return "a directory";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a named pipe";
    default:
        return "a device";
    }
}

/* Returns 0 if the place is free: there is a socket without a listener, or (*is_there false) no
 * file. */
static int judge_place(const struct gms_sockets_options *options, const struct gms_socket *socket,
                       struct stat *found, bool *is_there)
{
    *is_there = lstat(socket->path, found) == 0;
    if (!*is_there)
        return errno == ENOENT ? 0 : refuse_call(options, socket, -errno);
    if (!S_ISSOCK(found->st_mode))
        return refuse(options, -EEXIST,
                      "%s is %s and not a GMS socket, so it is left alone: remove it, %s",
                      socket->path, name_type(found->st_mode), other_place(socket));
    int error = check_listener(socket->path);
    if (error == -EADDRINUSE)
        return refuse(options, error, "GMS already running at %s: end it, %s", socket->path,
                      other_place(socket));
    if (error)
        return refuse(options, error,
                      "%s is a socket of user %u, and gmsfs cannot find out whether GMS is running "
                      "there: %s; remove it, %s",
                      socket->path, (unsigned)found->st_uid, strerror(-error), other_place(socket));
    return 0;
}

/* ---- moving into place ---------------------------------------------------------------------- */

static bool is_same(const char *path, dev_t device, ino_t inode)
{
    struct stat now;

    return lstat(path, &now) == 0 && now.st_dev == device && now.st_ino == inode;
}

static int exchange(const char *one, const char *other)
{
    return renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) == 0 ? 0 : -errno;
}

/* Takes the place of the dead socket. -EAGAIN: another one had replaced it, and is back in its
 * place. */
static int replace(const char *own_path, const struct gms_socket *socket, const struct stat *dead)
{
    int error = exchange(own_path, socket->path);

    if (!error && is_same(own_path, dead->st_dev, dead->st_ino))
        return unlink(own_path) == 0 ? 0 : -errno;
    /* Other mounts may be doing the same: each is done when it has its own socket back. */
    for (unsigned left = GMS_MAX_TRIES;
         !error && left > 0 && !is_same(own_path, socket->device, socket->inode); left--)
        error = exchange(own_path, socket->path);
    return error == 0 || error == -ENOENT ? -EAGAIN : error;
}

/* Puts a socket into its place that listens already, so that a mount that starts at the same moment
 * does not take it for a dead one. */
static int put_in_place(const struct gms_sockets_options *options, const char *own_path,
                        const struct gms_socket *socket)
{
    for (unsigned left = GMS_MAX_TRIES; left > 0; left--) {
        struct stat found;
        bool is_there;
        int error = judge_place(options, socket, &found, &is_there);
        if (error)
            return error;
        if (is_there)
            error = replace(own_path, socket, &found);
        else if (renameat2(AT_FDCWD, own_path, AT_FDCWD, socket->path, RENAME_NOREPLACE) != 0)
            error = errno == EEXIST ? -EAGAIN : -errno;
        if (error != -EAGAIN)
            return error ? refuse_call(options, socket, error) : 0;
    }
    return refuse_call(options, socket, -EBUSY);
}

/* Binds so that the file has its mode from the start, the socket's own less the umask: no user that
 * the mode excludes can connect before. */
static int bind_with_mode(int fd, const char own_path[GMS_SOCKETS_PATH_BYTES], mode_t mode)
{
    struct sockaddr_un address = make_address(own_path);
    int error = 0;

    if (fchmod(fd, mode) != 0)
        return -errno;
    mode_t before = umask(0);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        error = -errno;
    umask(before);
    return error;
}

static int bind_own(const struct gms_sockets_options *options, struct gms_socket *made,
                    char own_path[GMS_SOCKETS_PATH_BYTES])
{
    struct stat file;
    int on = 1, error = make_own_path(options, own_path);

    if (error)
        return error;
    made->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (made->fd < 0)
        return -errno;
    error = bind_with_mode(made->fd, own_path, options->mode);
    if (error)
        return error;
    /* Connections inherit it, so it covers their first byte: rights depend on the sender. */
    if (setsockopt(made->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        listen(made->fd, GMS_BACKLOG) != 0 || lstat(own_path, &file) != 0) {
        error = -errno;
        unlink(own_path);
        return error;
    }
    made->device = file.st_dev;
    made->inode = file.st_ino;
    return 0;
}

/* While the socket is open, no other file has its inode. */
static void remove_if_same(const struct gms_socket *socket, const char *path)
{
    if (is_same(path, socket->device, socket->inode))
        unlink(path);
}

static int open_one(const struct gms_sockets_options *options, struct gms_socket *socket)
{
    char own_path[GMS_SOCKETS_PATH_BYTES];
    int error = make_path(options, socket);

    if (error)
        return error;
    error = bind_own(options, socket, own_path);
    if (error) {
        refuse_call(options, socket, error);
    } else {
        error = put_in_place(options, own_path, socket);
        if (error) {
            remove_if_same(socket, own_path);
            remove_if_same(socket, socket->path);
        }
    }
    if (error && socket->fd >= 0)
        close(socket->fd);
    return error;
}

/* Locks the directory, so that one mount at a time looks at its sockets and takes their places.
 * Without the lock (not permitted, or another process holds it for good) the mount continues: the
 * steps after this stand two mounts at once. Returns a descriptor, or -1. */
static int lock_dir(const struct gms_sockets_options *options)
{
    const struct timespec pause = {.tv_nsec = GMS_LOCK_PAUSE_NS};
    int fd = open(options->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    for (unsigned left = GMS_MAX_TRIES; fd >= 0 && left > 0; left--) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            break;
        nanosleep(&pause, NULL);
    }
    return fd;
}

static int open_all(const struct gms_sockets_options *options, struct gms_sockets *sockets)
{
    static const struct gms_socket all[GMS_SOCKETS_MAX] = {
        {.domain = RPC_WEIGHTS, .protocol = MESSAGE_V0, .fd = -1},
        {.domain = RPC_KV_CACHE, .protocol = MESSAGE_V0, .fd = -1},
        {.domain = RPC_WEIGHTS, .protocol = MESSAGE_V1, .fd = -1},
        {.domain = RPC_KV_CACHE, .protocol = MESSAGE_V1, .fd = -1},
    };

    sockets->count = 0;
    for (size_t i = 0; i < GMS_SOCKETS_MAX; i++) {
        struct gms_socket *socket = &sockets->items[i];
        *socket = all[i];
        int error = open_one(options, socket);
        if (error) {
            gms_sockets_close(sockets);
            return error;
        }
        sockets->count++;
    }
    return 0;
}

int gms_sockets_open(const struct gms_sockets_options *options, struct gms_sockets *sockets)
{
    privileges_raise();
    SCOPED_CLOSE int lock_fd = lock_dir(options);
    int error = open_all(options, sockets);

    privileges_rest();
    return error;
}

void gms_sockets_close(struct gms_sockets *sockets)
{
    privileges_raise();
    while (sockets->count > 0) {
        struct gms_socket *socket = &sockets->items[--sockets->count];
        remove_if_same(socket, socket->path);
        close(socket->fd);
    }
    privileges_rest();
}

void gms_sockets_forget(struct gms_sockets *sockets)
{
    while (sockets->count > 0)
        close(sockets->items[--sockets->count].fd);
}
