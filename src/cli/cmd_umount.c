/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs umount - ends a mount and its daemon
 *
 * Root unmounts as umount(8) does. Where an ordinary user mounted, the daemon itself keeps the
 * mount busy by its socket, so it is asked to let go first, through that socket.
 */
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/mount_look.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/ui.h"
#include "gmsfs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define GONE_TIMEOUT_MS  10000u
#define FUSERMOUNT_FAILS 127

static const char usage[] =
    "Usage: gmsfs umount [-l] MOUNT...\n"
    "\n"
    "Unmounts, which ends the daemon and gives all memory back that no client has mapped. Refuses\n"
    "while clients hold files of the mount, and says who.\n"
    "\n"
    "  -l, --lazy   detach the mount now, also a dead one; clients go on with the files they have\n"
    "      --help   this text\n"
    "\n"
    "Exit status: 0 all are unmounted; 1 failure; 2 usage.\n";

/* ---- ways to unmount ----------------------------------------------------------------------- */

static int umount_by_daemon(const struct mount *mount)
{
    int r = daemon_ask_once(mount->path, GMSFS_FDS_UNMOUNT);

    return r ? r : mounts_wait_gone(mount->id, GONE_TIMEOUT_MS);
}

/* fusermount3(1) prints its own error. */
static int umount_by_fusermount(const struct mount *mount, bool lazy)
{
    pid_t child = fork();
    int status;

    if (child < 0)
        return -errno;
    if (child == 0) {
        output_restore_signals();
        execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", mount->path, NULL);
        _exit(FUSERMOUNT_FAILS);
    }
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == FUSERMOUNT_FAILS)
        cli_error("cannot run fusermount3, which an ordinary user needs to unmount; install fuse3");
    return -EPERM;
}

static int umount_by_kernel(const struct mount *mount, bool lazy)
{
    return umount2(mount->path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? -errno : 0;
}

static int umount_busy(const struct mount *mount)
{
    char *holders = mount_look_holders(mount);

    if (holders && *holders)
        cli_error("%s is busy: clients hold files of it:", mount->path);
    else
        cli_error("%s is busy: somebody has a file or a working directory in it; 'fuser -m %s' "
                  "names them",
                  mount->path, mount->path);
    if (holders && *holders)
        fputs(holders, stderr);
    ui_line(stderr, "End them, or use 'gmsfs umount -l %s'.", mount->path);
    free(holders);
    return CLI_FAILURE;
}

/* The daemon is asked where the kernel may say busy only because of the daemon's own files, as it
 * does where an ordinary user mounted. */
static int umount_gently(const struct mount *mount)
{
    int r = -EPERM;

    if (geteuid() == 0)
        r = umount_by_kernel(mount, false);
    if (r == -EPERM || (r == -EBUSY && !mount->by_root))
        r = umount_by_daemon(mount);
    if (r == 0 || r == -EBUSY || r == -ETIMEDOUT)
        return r;
    if (geteuid() == 0)
        return umount_by_kernel(mount, false);
    return umount_by_fusermount(mount, false);
}

static int umount_lazily(const struct mount *mount)
{
    int r = -EPERM;

    if (geteuid() == 0)
        r = umount_by_kernel(mount, true);
    return r == -EPERM ? umount_by_fusermount(mount, true) : r;
}

static int umount_one(const struct mounts *mounts, const char *path, bool lazy)
{
    const struct mount *mount = mounts_find(mounts, path, false);
    int r;

    if (!mount) {
        mount = mounts_find(mounts, path, true);
        cli_error("%s: not a gmsfs mount%s%s; 'gmsfs status' lists those there are", path,
                  mount ? ", but in the one at " : "", mount ? mount->path : "");
        return CLI_FAILURE;
    }
    r = lazy ? umount_lazily(mount) : umount_gently(mount);
    if (r == -EBUSY)
        return umount_busy(mount);
    if (r == -ETIMEDOUT)
        cli_error("%s: the daemon tried, but the mount is still there: somebody may have a working "
                  "directory in it, which 'fuser -m %s' shows; 'gmsfs umount -l' detaches it",
                  mount->path, mount->path);
    else if (r)
        cli_error("%s: cannot unmount: %s", mount->path, strerror(-r));
    return r ? CLI_FAILURE : CLI_OK;
}

static int umount_all(char **paths, int count, bool lazy)
{
    int status = CLI_OK;

    for (int i = 0; i < count; i++) {
        struct mounts mounts;
        int r = mounts_read(&mounts);
        if (r)
            return mounts_explain(r);
        if (umount_one(&mounts, paths[i], lazy) != CLI_OK)
            status = CLI_FAILURE;
        mounts_free(&mounts);
    }
    return status;
}

static int umount_run(int argc, char **argv)
{
    static const struct option options[] = {
        {"lazy", no_argument, NULL, 'l'}, {"help", no_argument, NULL, 'h'}, {NULL, 0, NULL, 0}};
    bool lazy = false;
    int option;

    while ((option = cli_getopt(argc, argv, ":lh", options)) != -1) {
        if (option == 'l')
            lazy = true;
        else
            return option == 'h' ? cli_help() : CLI_USAGE;
    }
    if (optind == argc)
        return cli_usage_error("a MOUNT is needed");
    if (umount_all(argv + optind, argc - optind, lazy) != CLI_OK)
        return CLI_FAILURE;
    output_set_done();
    return CLI_OK;
}

const struct cli_command cmd_umount = {
    .name = "umount",
    .summary = "unmount, which ends the daemon",
    .usage = usage,
    .run = umount_run,
};
