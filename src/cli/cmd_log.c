/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs log - how much the daemon of a mount logs, told or changed while it runs */
#include "base/log.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/ui.h"

#include <errno.h>
#include <stdio.h>

static const char usage[] =
    "Usage: gmsfs log MOUNT [LEVEL]\n"
    "\n"
    "Prints how much the daemon of the mount logs: error, warning, info or debug. With LEVEL it\n"
    "logs that much from now on, until the mount ends; a worker that replaces another keeps the\n"
    "level. At level debug there is a line for every request, answer, record, job and decision.\n"
    "gmsfs-mount(8), LOG, tells where the lines go and how to read them.\n";

static const char ending[] = "For root and the user that mounted it.\n"
                             "\n"
                             "Exit status: 0 done; 1 failure; 2 usage; 4 done, but that could "
                             "not be reported.\n";

static int log_explain(const char *path, int error)
{
    if (error == -EPERM || error == -EACCES)
        return cli_error(
            "%s: permission denied: only root and the user that mounted it may ask for its "
            "log level; run this as one of them",
            path);
    if (error == -EINVAL)
        return cli_error(
            "%s: its daemon is older than this command, and its log level cannot be changed; "
            "'gmsfs upgrade %s' replaces the daemon",
            path, path);
    return daemon_explain(path, error);
}

/* Sets a level of the ABI, which counts from 1, if it is not 0; prints the level in force. */
static int log_ask(const char *path, uint32_t batch)
{
    uint64_t level = 0;
    int error = daemon_ask_once(path, GMSFS_FDS_LOG, NULL, batch, &level);

    if (error)
        return log_explain(path, error);
    if (level < 1 || level > LOG_LEVEL_DEBUG + 1)
        return daemon_explain(path, -EPROTO);
    if (batch > 0)
        output_set_done();
    ui_line(stdout, "%s", log_level_name((enum log_level)(level - 1)));
    return CLI_OK;
}

static int log_run(int argc, char **argv)
{
    const struct mount *mount;
    SCOPED_MOUNTS struct mounts mounts = {0};
    uint32_t batch = 0;

    cli_parse(argc, argv, NULL);
    if (optind + 1 < argc) {
        const char *wanted = argv[optind + 1];
        enum log_level parsed;
        if (log_parse_level(wanted, &parsed) != 0)
            cli_usage_error("unknown level '%s'; use error, warning, info or debug", wanted);
        batch = (uint32_t)parsed + 1;
    }
    int status = mounts_open_at(argv[optind], &mounts, &mount);
    return status == CLI_OK ? log_ask(mount->path, batch) : status;
}

const struct cli_command cmd_log = {
    .name = "log",
    .summary = "tell or change how much a mount's daemon logs",
    .usage = usage,
    .ending = ending,
    .least = 1,
    .most = 2,
    .needs = "a MOUNT is needed, and perhaps a LEVEL",
    .run = log_run,
};
