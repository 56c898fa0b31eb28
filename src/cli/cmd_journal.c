/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs journal - prints the journal of a mount, or the kept copy of a dead mount's journal */
#include "base/failure.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/mounts.h"
#include "daemon/daemon.h"

#include <stdbool.h>
#include <stdio.h>

static const char usage[] =
    "Usage: gmsfs journal [--replay] MOUNT|FILE\n"
    "\n"
    "Prints the journal of a mount, from which the next worker restores the state: the state\n"
    "that it begins with, then every record and answer since. FILE is a copy that the daemon\n"
    "kept when a mount ended by a failure (mount option keep_journal=DIR).\n";

static const char ending[] =
    "The journal of a mount is for root and the user that mounted it. It names the stores,\n"
    "processes and files of all users; tokens, tickets and the bytes of values are left out.\n"
    "\n"
    "Exit status: 0 done; 1 failure, or (--replay) a state that does not hold; 2 usage.\n";

static const struct cli_option options[] = {
    {"--replay", 0, NULL, cli_take_flag, 0,
     "apply the records one by one, and say the first one after which the\n"
     "state does not hold"},
    {0},
};

/* Finds the process that serves the mount at `path`; pid 0: `path` is no mount. CLI_FAILURE was
 * explained. */
static int find_process(const char *path, int *pid)
{
    char *paths[] = {(char *)(uintptr_t)path};
    SCOPED_MOUNTS struct mounts mounts = {0};

    *pid = 0;
    if (mounts_read_for(paths, 1, &mounts) != 0)
        return CLI_OK; /* without a table of mounts `path` can only be a file */
    const struct mount *mount = mounts_find(&mounts, path, false);
    int found = mount ? daemon_ask_pid(mount->path) : 0;
    if (found < 0)
        return daemon_explain(path, found);
    if (mount && found == 0)
        return cli_error(
            "%s: its daemon cannot be seen from here: run this in the daemon's pid namespace",
            path);
    *pid = found;
    return CLI_OK;
}

static int journal_run(int argc, char **argv)
{
    struct failure failure = {.text = ""};
    bool replays = false;
    int pid;

    cli_parse(argc, argv, &replays);
    if (find_process(argv[optind], &pid) != CLI_OK)
        return CLI_FAILURE;
    if (daemon_show_journal(pid ? NULL : argv[optind], pid, replays, stdout, &failure) == 0)
        return CLI_OK;
    return cli_error("%s: %s", argv[optind], failure.text);
}

const struct cli_command cmd_journal = {
    .name = "journal",
    .summary = "print the journal of a mount, or of one that is dead",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .most = 1,
    .needs = "one MOUNT or FILE is needed",
    .run = journal_run,
};
