/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs status - every gmsfs mount of this machine; looks, never locks, never hangs */
#include "cli/cli.h"
#include "cli/status.h"
#include "cli/ui.h"

#include <stdio.h>
#include <unistd.h>

#define WATCH_DEFAULT_MS 2000u
#define WATCH_MIN_MS     100u

static const char usage[] =
    "Usage: gmsfs status [--json] [--pool NAME] [--watch[=SECONDS]] [MOUNT...]\n"
    "\n"
    "Shows the gmsfs mounts of this machine, or those named: memory, and of each store its state,\n"
    "bytes, and the holders and waiters of its lock. Takes no lock. A mount without its daemon is\n"
    "DEAD, a mount that does not answer within 3 seconds SILENT, and a mount that answers by an\n"
    "error UNKNOWN, with the error.\n";

static const char ending[] =
    "Exit status: 0 all was read; 1 a mount or a store could not be read, or failure; 2 usage.\n"
    "--watch ends with 0 at Ctrl-C.\n";

static int status_once(struct status_look *look, bool as_json)
{
    int status = status_look(look);

    if (status == CLI_OK && look->mounts.count == 0 && !as_json)
        fputs("there is no gmsfs mount; 'gmsfs mount' makes one\n", stderr);
    if (status == CLI_OK && as_json)
        ui_json_print(status_make_json(look));
    else if (status == CLI_OK)
        status_print(look, stdout, ui_width(STDOUT_FILENO));
    if (status == CLI_OK && !status_is_whole(look))
        status = CLI_FAILURE;
    status_look_free(look);
    return status;
}

/* ---- the command --------------------------------------------------------------------------- */

struct status_command {
    struct status_look look;
    uint64_t interval_ms;
    bool as_json;
};

static void status_take_interval(const char *name, const char *text, void *at)
{
    uint64_t *interval_ms = at;

    *interval_ms = WATCH_DEFAULT_MS;
    if (text)
        cli_take_timeout(name, text, interval_ms);
    if (*interval_ms < WATCH_MIN_MS)
        *interval_ms = WATCH_MIN_MS;
}

static const struct cli_option options[] = {
    {"--json", 0, NULL, cli_take_flag, offsetof(struct status_command, as_json),
     "the same as JSON"},
    {"--pool", 0, "NAME", cli_take_text, offsetof(struct status_command, look.pool),
     "only the stores of this pool, the use of its budget, which stores\n"
     "are pinned, and when each was last used"},
    {"--watch", 0, "[=SECONDS]", status_take_interval, offsetof(struct status_command, interval_ms),
     "show it until Ctrl-C: on a terminal as a screen, elsewhere\n"
     "a line for each store that changed (with --json a line of JSON for\n"
     "each change); looks at every event, and after SECONDS (default 2)"},
    {0},
};

static int status_run(int argc, char **argv)
{
    struct status_command command = {0};

    cli_parse(argc, argv, &command);
    command.look.paths = argv + optind;
    command.look.path_count = (size_t)(argc - optind);
    return command.interval_ms ? status_watch(&command.look, command.interval_ms, command.as_json)
                               : status_once(&command.look, command.as_json);
}

const struct cli_command cmd_status = {
    .name = "status",
    .summary = "show mounts, their stores and their holders",
    .usage = usage,
    .options = options,
    .ending = ending,
    .run = status_run,
};
