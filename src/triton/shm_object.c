/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/shm_object.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SHM_DIRECTORY "/dev/shm"

/* Never blocks: on a FIFO, on a file lease, or on a user's file system mounted on the object's
 * name. */
static int open_object(const char *key, int *fd)
{
    const struct open_how how = {.flags = O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                                 .resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};

    if (key[0] == '\0' || strchr(key, '/') || strcmp(key, ".") == 0 || strcmp(key, "..") == 0)
        return -EINVAL;
    SCOPED_CLOSE int directory = open(SHM_DIRECTORY, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    *fd = (int)syscall(SYS_openat2, directory, key, &how, sizeof how);
    return *fd < 0 ? -errno : 0;
}

static int check_owner(int fd, uint32_t uid)
{
    struct stat facts;

    if (fstat(fd, &facts) != 0)
        return -errno;
    return S_ISREG(facts.st_mode) && facts.st_uid == uid ? 0 : -EACCES;
}

/* Changes the rights for files alone, which open(2) checks: other processes of this user can
 * neither signal nor trace us meanwhile. */
static bool become(uint32_t uid)
{
    setfsuid(uid);
    return (uint32_t)setfsuid((uid_t)-1) == uid;
}

int shm_object_open(uint32_t uid, const char *key, int *fd)
{
    uint32_t own = geteuid();

    if (uid != own && !become(uid))
        return -EPERM;
    int error = open_object(key, fd);
    if (uid != own && !become(own))
        abort(); /* never serve with another user's rights */
    if (error)
        return error;
    error = check_owner(*fd, uid);
    if (error)
        close(*fd);
    return error;
}
