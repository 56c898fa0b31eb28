/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs clear-suspect - declares the bytes of a store undamaged, so that it admits readers again */
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>

static const char usage[] =
    "Usage: gmsfs clear-suspect [-q] STORE|MOUNT...\n"
    "\n"
    "After an error of the GPU (its file 'device' names it) the bytes of stores may be damaged,\n"
    "and they admit no new readers until they are freed and loaded again. This lets readers in\n"
    "all the same: into one store, or all of a mount.\n";

static const char ending[] =
    "Exit status: 0 done, also where nothing was suspect; 1 failure; 2 usage; 4 done, but\n"
    "that could not be reported.\n";

static int clear_explain(const char *path, bool is_mount, int error)
{
    switch (error) {
    case -EPERM:
    case -EACCES: /* it may not even be looked at */
        if (!is_mount)
            return daemon_explain_rights(path, "clear it");
        return cli_error(
            "%s: permission denied: only root and the user that mounted it can clear all of "
            "a mount; run this as one of them, or name stores that are yours",
            path);
    case -ENODEV:
        return cli_error("%s: its device is lost, with all its bytes; unmount it, and mount again "
                         "when the device is back",
                         path);
    case -ENOENT:
        return cli_error("%s: no store of a gmsfs mount; 'gmsfs status' lists the stores", path);
    default:
        return daemon_explain(path, error);
    }
}

static int clear_path(const struct mounts *mounts, const char *path, bool quiet)
{
    const struct mount *mount = mounts_find(mounts, path, false);
    bool is_mount = mount != NULL;
    uint8_t id[16] = {0};
    int error = 0;

    if (!mount) {
        mount = mounts_find(mounts, path, true);
        error = mount ? store_read_id(path, id) : -ENOENT;
    }
    if (error == 0)
        error = daemon_ask_once(mount->path, GMSFS_FDS_CLEAR_SUSPECT, id, 0, NULL);
    if (error)
        return clear_explain(path, is_mount, error);
    if (!quiet)
        ui_line(stdout, "%s is not suspect", path);
    return CLI_OK;
}

static const struct cli_option options[] = {
    {"--quiet", 'q', NULL, cli_take_flag, 0, "print errors only"},
    {0},
};

static int clear_run(int argc, char **argv)
{
    SCOPED_MOUNTS struct mounts mounts = {0};
    bool quiet = false;
    int status = CLI_OK, error;

    cli_parse(argc, argv, &quiet);
    error = mounts_read_for(argv + optind, (size_t)(argc - optind), &mounts);
    if (error)
        return mounts_explain(error);
    for (int i = optind; i < argc; i++) {
        if (clear_path(&mounts, argv[i], quiet) != CLI_OK)
            status = CLI_FAILURE;
    }
    if (status == CLI_OK)
        output_set_done();
    return status;
}

const struct cli_command cmd_clear_suspect = {
    .name = "clear-suspect",
    .summary = "let readers into a store after an error of its GPU",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "a STORE or MOUNT is needed",
    .run = clear_run,
};
