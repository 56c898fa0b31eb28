/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/attach.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/mount.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif

#define ATTACH_UNMOUNT_TRIES 5
#define ATTACH_UNMOUNT_MS    100
#define ATTACH_DETACH_MS     10000
#define ATTACH_BACKLOG       128

static int check_device(void)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fd >= 0) {
        close(fd);
        return 0;
    }
    int error = -errno;
    if (error == -ENOENT || error == -ENODEV || error == -ENXIO)
        log_error("there is no /dev/fuse: load the kernel's module (modprobe fuse), or give the "
                  "container the device (--device /dev/fuse)");
    else if (error == -EACCES)
        log_error("/dev/fuse is closed to user %u: root can open it (chmod 666 /dev/fuse, as "
                  "distributions have it)",
                  (unsigned)geteuid());
    else
        log_error("cannot open /dev/fuse: %s", strerror(-error));
    return error;
}

int attach_mount(const char *mountpoint, const char *backend, bool allow_other, int *fuse_fd,
                 struct mountinfo *mount)
{
    static const struct fuse_lowlevel_ops no_operations;
    char options[256];
    char *arguments[] = {(char[]){"gmsfs"}, (char[]){"-o"}, options, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, arguments);
    int error = check_device();

    if (error)
        return error;
    snprintf(options, sizeof options,
             "fsname=gmsfs(%s),subtype=gmsfs,default_permissions,nosuid,nodev,noatime%s", backend,
             allow_other ? ",allow_other" : "");
    /* Used only to mount: the session that serves is the worker's. */
    struct fuse_session *session =
        fuse_session_new(&args, &no_operations, sizeof no_operations, NULL);
    fuse_opt_free_args(&args);
    if (!session) {
        log_error("cannot mount at %s: libfuse makes no session (out of memory?)", mountpoint);
        return -ENOMEM;
    }
    privileges_raise();
    error = fuse_session_mount(session, mountpoint);
    privileges_rest();
    if (error != 0) {
        log_error("cannot mount at %s: the cause is in the line above; an ordinary user has to own "
                  "the directory and needs fusermount3 with its setuid bit",
                  mountpoint);
        fuse_session_destroy(session);
        return -EPERM;
    }
    *fuse_fd = fcntl(fuse_session_fd(session), F_DUPFD_CLOEXEC, 3);
    /* The keeper reads it too, after a worker died, and must not wait there. */
    if (*fuse_fd < 0 || fcntl(*fuse_fd, F_SETFL, O_NONBLOCK) != 0)
        error = -errno;
    else
        error = mountinfo_find_path(mountpoint, mount);
    if (!error && strcmp(mount->type, MOUNTINFO_TYPE) != 0)
        error = -EBUSY;
    fuse_session_destroy(session); /* closes its own descriptor; the mount stays */
    if (error) {
        log_error("%s was mounted, but it cannot be found again: %s", mountpoint, strerror(-error));
        if (*fuse_fd >= 0)
            close(*fuse_fd);
        *fuse_fd = -1;
        attach_detach(mountpoint);
    }
    return error;
}

/* Opens the kernel's directory of FUSE connections outside every tree, because it need not be
 * mounted in ours. */
static int open_connections(void)
{
    int fs = (int)syscall(SYS_fsopen, "fusectl", 1u /* FSOPEN_CLOEXEC */), fd = -1;

    if (fs < 0)
        return -1;
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = (int)syscall(SYS_fsmount, fs, 1u /* FSMOUNT_CLOEXEC */, 0u);
    close(fs);
    return fd;
}

static int write_limit(int connections, unsigned minor, const char *name, unsigned value)
{
    char path[64], text[16];

    snprintf(path, sizeof path, "%u/%s", minor, name);
    int bytes = snprintf(text, sizeof text, "%u", value);
    SCOPED_CLOSE int fd = openat(connections, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return write(fd, text, (size_t)bytes) == bytes ? 0 : -errno;
}

void attach_widen(const struct mountinfo *mount, unsigned max_background)
{
    if (geteuid() != 0)
        return;
    privileges_raise();
    SCOPED_CLOSE int connections = open_connections();
    int error = connections < 0 ? -errno : 0;
    if (!error)
        error = write_limit(connections, mount->minor, "max_background", max_background);
    if (!error) /* the share that libfuse uses */
        error =
            write_limit(connections, mount->minor, "congestion_threshold", max_background * 3 / 4);
    privileges_rest();
    if (error) /* usually root of a container */
        log_debug("requests in the background stay bounded as an ordinary user's: %s",
                  strerror(-error));
}

/* Prepares a child, which ends with its parent. */
/* Opens the mount's root. As root this is a clone of the mount in no tree: a socket keeps its mount
 * busy for good, and umount(8) would say EBUSY. */
static int open_root(const char *mountpoint)
{
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, mountpoint,
                          (unsigned)OPEN_TREE_CLONE | (unsigned)O_CLOEXEC);
    if (fd < 0)
        fd = open(mountpoint, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int bind_socket(const void *mountpoint, int *listen_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int root = open_root(mountpoint);
    int on = 1, error = 0;

    if (root < 0)
        return root;
    /* Also reaches paths that are longer than an address may be. */
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/.fds", root);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Connections inherit SO_PASSCRED, so it covers their first message: rights depend on the
     * sender. */
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
        listen(fd, ATTACH_BACKLOG) != 0)
        error = -errno;
    close(root);
    if (error && fd >= 0)
        close(fd);
    else
        *listen_fd = fd;
    return error;
}

int attach_start_bind(const char *mountpoint, struct errand *binder)
{
    return errand_start(binder, bind_socket, mountpoint);
}

int attach_finish_bind(struct errand *binder, int *listen_fd)
{
    int error = errand_finish(binder, listen_fd);

    if (error)
        log_error("cannot bind the socket .fds in the mount: %s", strerror(-error));
    return error;
}

/* Runs in a child. Unmounts directly as root, else by fusermount3, which has the right to. */
static int unmount_once(const char *mountpoint, bool lazy, bool quiet)
{
    if (geteuid() == 0)
        return umount2(mountpoint, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0 ? 0 : -errno;
    pid_t tool = fork();
    if (tool == 0) {
        if (quiet) {
            int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
            dup2(null, STDERR_FILENO);
        }
        execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mountpoint, (char *)NULL);
        _exit(127);
    }
    int status = 1;
    while (tool > 0 && waitpid(tool, &status, 0) < 0 && errno == EINTR)
        ;
    if (tool > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        log_error("fusermount3 is not installed (package fuse3): %s stays mounted", mountpoint);
        return -ENOENT;
    }
    return tool > 0 && status == 0 ? 0 : -EBUSY;
}

pid_t attach_start_unmount(const char *mountpoint, bool lazy)
{
    pid_t parent = getpid();
    pid_t child = fork();

    if (child != 0)
        return child;
    errand_begin_child(parent);
    close_range(3, ~0u, 0);
    for (int left = ATTACH_UNMOUNT_TRIES; left > 0; left--) {
        int error = unmount_once(mountpoint, lazy, left > 1);
        if (error == 0 || error == -EINVAL) /* EINVAL: nothing is mounted there any more */
            _exit(0);
        clock_pause_ms(ATTACH_UNMOUNT_MS);
    }
    _exit(1);
}

bool attach_detach(const char *mountpoint)
{
    int status = 1;
    pid_t child = attach_start_unmount(mountpoint, true);
    SCOPED_CLOSE int fd = child > 0 ? (int)syscall(SYS_pidfd_open, child, 0) : -1;
    struct pollfd exits = {.fd = fd, .events = POLLIN};

    if (fd >= 0 && poll(&exits, 1, ATTACH_DETACH_MS) == 0)
        kill(child, SIGKILL);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (child <= 0 || status != 0) {
        log_error("%s cannot be detached; do it by hand: umount -l %s", mountpoint, mountpoint);
        return false;
    }
    return true;
}

void attach_abort(const struct mountinfo *mount)
{
    char path[64];

    snprintf(path, sizeof path, "/sys/fs/fuse/connections/%u/abort", mount->minor);
    SCOPED_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* no fusectl here, or not root */
    ssize_t put = write(fd, "1", 1);
    (void)put;
}
