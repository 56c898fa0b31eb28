/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_make.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STORE_MODE  0777 /* less the umask */
#define TRIES       100u /* while this process's own use of it is still ending */
#define TRY_WAIT_NS 10000000

/* The made stores; a command fills at most a group at once. `ctl`: open descriptors, in rising
 * order. An entry is complete before made_count includes it, because a signal handler reads it. */
static struct {
    int ctl;
    char *path;
} made[GMSFS_GROUP_MAX];
static atomic_uint made_count;

/* Opens `ctl` with a descriptor above the last entry's. */
static int open_ctl(const char *ctl, unsigned count)
{
    int least = count > 0 ? made[count - 1].ctl + 1 : STDERR_FILENO + 1;
    int fd = open(ctl, O_RDWR | O_CLOEXEC), above = -1;

    if (fd >= 0) {
        above = fcntl(fd, F_DUPFD_CLOEXEC, least);
        close(fd);
    }
    return above;
}

static int make(const char *path)
{
    unsigned count = atomic_load(&made_count);
    int error = 0;

    if (count == GMSFS_GROUP_MAX)
        return -ENFILE;
    SCOPED_FREE char *ctl = store_file_path(path, "ctl");
    char *copy = cli_need(strdup(path)); /* no memory is needed after mkdir() */
    if (mkdir(path, STORE_MODE) < 0) {
        error = errno == EEXIST ? 0 : -errno; /* another process made it */
        free(copy);
        return error;
    }
    made[count].path = copy;
    made[count].ctl = open_ctl(ctl, count);
    if (made[count].ctl < 0) {
        error = -errno;
        rmdir(path); /* just made */
        free(copy);
        return error;
    }
    atomic_store(&made_count, count + 1);
    return 0;
}

/* Delays signals: a handler finds either no store or one in the list. */
static int make_undisturbed(const char *path)
{
    sigset_t all, before;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    int error = make(path);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int explain_make(const char *path, int error)
{
    switch (error) {
    case -EACCES:
    case -EPERM:
        return cli_error(
            "%s: no such store, and only root and the mounting user can make one: ask them for "
            "'mkdir %s' and 'chown'",
            path, path);
    case -ENOENT:
    case -ENOTDIR:
        return cli_error(
            "%s: cannot be a store; a store is a directory at the top of a gmsfs mount, which "
            "'gmsfs status' shows",
            path);
    case -ENOSPC:
        return cli_error(
            "%s: no such store, and the mount has as many as it can; 'rmdir' an unused "
            "one",
            path);
    default:
        return store_explain(path, "make the store", error);
    }
}

int store_open_or_make(const char *path, gmsfs_t **handle)
{
    int error = gmsfs_open(path, handle);

    if (error != -ENOENT || !store_could_be(path))
        return error ? store_open(path, handle) : CLI_OK;
    error = make_undisturbed(path);
    return error ? explain_make(path, error) : store_open(path, handle);
}

void store_make_keep(void)
{
    for (unsigned i = atomic_exchange(&made_count, 0); i > 0; i--) {
        close(made[i - 1].ctl);
        free(made[i - 1].path);
    }
}

bool store_make_is_ours(const char *path)
{
    unsigned count = atomic_load(&made_count);

    for (unsigned i = 0; i < count; i++)
        if (strcmp(made[i].path, path) == 0)
            return true;
    return false;
}

/* Removes the store by its open file, so no other store of the same name. 0, or a negative errno.
 */
static int undo(int ctl)
{
    const struct timespec wait = {.tv_nsec = TRY_WAIT_NS};
    int error = 0;

    for (unsigned i = 0; i < TRIES; i++) {
        error = ioctl(ctl, GMSFS_IOC_REMOVE_UNUSED) < 0 ? -errno : 0;
        if (error != -EBUSY)
            break;
        nanosleep(&wait, NULL);
    }
    close(ctl);
    return error;
}

static void explain_undo(const char *path, int error)
{
    switch (error) {
    case 0:
    case -ESTALE:
        ui_line(stderr, "%s, which was made for this, is removed again", path);
        break;
    case -EBUSY:
        ui_line(stderr, "%s, which was made for this, stays: another process uses it", path);
        break;
    case -ENOTEMPTY: /* a layout was committed there by another process, or its message was printed
                      */
        break;
    default:
        ui_line(stderr, "%s, which was made for this, stays: %s", path, failure_reason(error));
    }
}

void store_make_undo(void)
{
    for (unsigned i = atomic_exchange(&made_count, 0); i > 0; i--) {
        explain_undo(made[i - 1].path, undo(made[i - 1].ctl));
        free(made[i - 1].path);
    }
}

void store_make_undo_all(void)
{
    unsigned count = atomic_load(&made_count), from = STDERR_FILENO + 1;

    for (unsigned i = 0; i < count; i++) {
        unsigned own = (unsigned)made[i].ctl;
        if (own > from)
            close_range(from, own - 1, 0);
        from = own + 1;
    }
    close_range(from, UINT_MAX, 0);
    for (unsigned i = atomic_exchange(&made_count, 0); i > 0; i--)
        undo(made[i - 1].ctl);
}
