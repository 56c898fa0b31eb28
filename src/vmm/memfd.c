/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/memfd.h"

#include "base/fd_path.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Since Linux 6.3; older C libraries lack it, older kernels refuse it with EINVAL. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Since Linux 5.1. */
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define SIZE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

/* Held while a file's mode is not 0. */
static pthread_mutex_t mode_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_kept_out; /* this process was seen to have no right to override modes */

static pthread_once_t asked_for_lease = PTHREAD_ONCE_INIT;
static bool tells_holders;

static int prepared = -1; /* by memfd_prepare_huge */

int memfd_make(const char *name, unsigned flags)
{
    flags |= MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, flags);
    return fd < 0 ? -errno : fd;
}

static int configure(int context, const char *key, const char *value)
{
    return fsconfig(context, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

/* The tier's account bounds it, so it has no bound of its own. */
static int mount_huge(void)
{
    int context = fsopen("tmpfs", FSOPEN_CLOEXEC), directory = -1, error;

    if (context < 0)
        return -errno;
    error = configure(context, "huge", "within_size");
    if (!error)
        error = configure(context, "size", "0");
    if (!error)
        error = configure(context, "mode", "0700");
    if (!error && fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        error = -errno;
    if (!error)
        directory = fsmount(context, FSMOUNT_CLOEXEC,
                            MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID);
    if (!error && directory < 0)
        error = -errno;
    close(context);
    return error ? error : directory;
}

void memfd_prepare_huge(void)
{
    prepared = mount_huge();
}

int memfd_open_huge(void)
{
    int directory = prepared;

    prepared = -1;
    return directory >= 0 ? directory : mount_huge();
}

int memfd_make_in(int directory)
{
    int fd = openat(directory, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);

    return fd < 0 ? -errno : fd;
}

int memfd_close_to_others(int fd)
{
    return fchmod(fd, 0) < 0 ? -errno : 0;
}

static int add_seals(int fd, int seals)
{
    return fcntl(fd, F_ADD_SEALS, seals) < 0 ? -errno : 0;
}

static bool has_seals(int fd, int seals)
{
    int present = fcntl(fd, F_GET_SEALS);

    return present >= 0 && (present & seals) == seals;
}

int memfd_fix_size(int fd)
{
    return add_seals(fd, SIZE_SEALS);
}

int memfd_seal(int fd)
{
    return add_seals(fd, SIZE_SEALS | F_SEAL_SEAL);
}

bool memfd_has_fixed_size(int fd)
{
    return has_seals(fd, SIZE_SEALS);
}

/* A process may add seals until F_SEAL_SEAL is there, so they are looked at after that. */
int memfd_finish(int fd)
{
    int error = add_seals(fd, F_SEAL_SEAL), present = fcntl(fd, F_GET_SEALS);

    if (present < 0)
        return -errno;
    if (present & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE))
        return -EPERM;
    return present & F_SEAL_SEAL ? 0 : error;
}

/* Clears the rest of the last page, which a mapping shows behind the end of the file. Truncation to
 * the present size does so, under any seals. */
static int clear_rest(int fd)
{
    struct stat stat;

    return fstat(fd, &stat) < 0 || ftruncate(fd, stat.st_size) < 0 ? -errno : 0;
}

int memfd_make_immutable(int fd)
{
    int error = add_seals(fd, SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);

    if (memfd_is_immutable(fd))
        return clear_rest(fd); /* no process can write there any more */
    return error == -EPERM || error == -EINVAL ? -EOPNOTSUPP : error;
}

bool memfd_is_final(int fd)
{
    return has_seals(fd, F_SEAL_SEAL);
}

bool memfd_is_immutable(int fd)
{
    return has_seals(fd, SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL);
}

static void ask_for_lease(void)
{
    int fd = memfd_make("gmsfs", 0), fd_readonly = fd < 0 ? fd : memfd_open_readonly(fd);

    tells_holders = fd_readonly >= 0 && fcntl(fd_readonly, F_SETLEASE, F_WRLCK) == 0;
    if (fd_readonly >= 0)
        close(fd_readonly);
    if (fd >= 0)
        close(fd);
}

bool memfd_tells_holders(void)
{
    pthread_once(&asked_for_lease, ask_for_lease);
    return tells_holders;
}

bool memfd_is_held(int fd_readonly)
{
    if (!memfd_tells_holders())
        return false;
    if (fcntl(fd_readonly, F_SETLEASE, F_WRLCK) < 0)
        return true;
    fcntl(fd_readonly, F_SETLEASE, F_UNLCK);
    return false;
}

bool memfd_is_file(int fd)
{
    return fcntl(fd, F_GET_SEALS) >= 0;
}

/* O_NONBLOCK: otherwise a lease would delay the open, mostly for 45 s. The flag is cleared
 * afterwards, because the caller did not ask for it. O_NOATIME: the access time has no reader, and
 * the kernel would write one at each mmap(2), a sixth of its cost. The kernel refuses the flag to
 * users other than the file's owner and root. */
static int open_by_number(int fd, bool writable)
{
    int made = open(fd_path(fd).text, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (made < 0)
        return errno == EAGAIN ? -EBUSY : -errno;
    if (fcntl(made, F_SETFL, O_NOATIME) < 0)
        fcntl(made, F_SETFL, 0);
    return made;
}

static int open_as_its_user(int fd, bool writable)
{
    int made, error = 0;

    pthread_mutex_lock(&mode_mutex);
    made = fchmod(fd, writable ? S_IRUSR | S_IWUSR : S_IRUSR) < 0 ? -errno
                                                                  : open_by_number(fd, writable);
    if (fchmod(fd, 0) < 0)
        error = -errno;
    pthread_mutex_unlock(&mode_mutex);
    if (!error)
        return made;
    if (made >= 0)
        close(made);
    return error;
}

int memfd_open_readonly(int fd)
{
    return open_by_number(fd, false);
}

int memfd_reopen(int fd, bool writable)
{
    int made = -EACCES;

    if (!is_kept_out)
        made = open_by_number(fd, writable);
    if (made != -EACCES)
        return made;
    is_kept_out = true;
    return open_as_its_user(fd, writable);
}
