/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which objects in /dev/shm the opener opens, and which it leaves alone. */
#include "tap.h"
#include "triton/shm_object.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char key[64], path[128];

static void make_object(void)
{
    snprintf(key, sizeof key, "gmsfs-test-shm-object-%d", getpid());
    snprintf(path, sizeof path, "/dev/shm/%s", key);
    unlink(path);
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    check(fd >= 0);
    close(fd);
}

TAP_TEST(an_object_of_the_user_is_opened)
{
    int fd = -1;
    make_object();
    check_int(shm_object_open(geteuid(), key, &fd), 0);
    check(fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR);
    close(fd);
    unlink(path);
    check_int(shm_object_open(geteuid(), key, &fd), -ENOENT);
}

TAP_TEST(a_link_and_a_fifo_are_not_opened)
{
    int fd = -1;
    make_object();
    unlink(path);
    check_int(symlink("/etc/passwd", path), 0);
    check_int(shm_object_open(geteuid(), key, &fd), -ELOOP);
    unlink(path);
    check_int(mkfifo(path, 0600), 0);
    check_int(shm_object_open(geteuid(), key, &fd), -EACCES);
    unlink(path);
}

/* The mount there may be a user's file system that never answers. Uses mount namespaces of its own,
 * which a user may not make everywhere. */
TAP_TEST(a_mount_on_the_name_is_not_opened)
{
    int status, fd = -1;
    make_object();
    pid_t child = fork();
    if (child == 0) {
        if (unshare(geteuid() ? CLONE_NEWUSER | CLONE_NEWNS : CLONE_NEWNS) != 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount(path, path, NULL, MS_BIND, NULL) != 0)
            _exit(77);
        _exit(shm_object_open(geteuid(), key, &fd) == -EXDEV ? 0 : 1);
    }
    check_int(waitpid(child, &status, 0), child);
    unlink(path);
    check(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}
