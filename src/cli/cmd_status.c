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
    "bytes, and who holds its lock or waits for it. Takes no lock. A mount whose daemon has ended\n"
    "is DEAD, one that does not answer within 3 seconds SILENT, and one that answers by an error\n"
    "UNKNOWN, with the error.\n"
    "\n"
    "      --json              the same as JSON\n"
    "      --pool NAME         only the stores of this pool, what is used of its budget, which "
    "are\n"
    "                          pinned, and when each was last used\n"
    "      --watch[=SECONDS]   go on showing it until Ctrl-C: on a terminal painted anew, "
    "elsewhere\n"
    "                          a line for each store that changed (with --json a line of JSON for\n"
    "                          each change); looks at every event, and after SECONDS (default 2)\n"
    "      --help              this text\n"
    "\n"
    "Exit status: 0 all was seen; 1 a mount or a store of one was not, or failure; 2 usage.\n"
    "--watch ends with 0 at Ctrl-C.\n";

static int status_once(struct status_look *look, bool as_json)
{
    int status = status_look(look);

    if (status == CLI_OK && look->mounts.count == 0 && !as_json)
        fputs("no gmsfs mount is there; 'gmsfs mount' makes one\n", stderr);
    if (status == CLI_OK && as_json && ui_json_print(status_make_json(look)) != 0)
        status = cli_out_of_memory();
    if (status == CLI_OK && !as_json)
        status_print(look, stdout, ui_width(STDOUT_FILENO));
    if (status == CLI_OK && !status_is_whole(look))
        status = CLI_FAILURE;
    status_look_free(look);
    return status;
}

/* ---- the command --------------------------------------------------------------------------- */

static int status_parse_interval(const char *text, uint64_t *interval_ms)
{
    int status = CLI_OK;

    *interval_ms = WATCH_DEFAULT_MS;
    if (text)
        status = cli_parse_timeout("--watch", text, interval_ms);
    if (*interval_ms < WATCH_MIN_MS)
        *interval_ms = WATCH_MIN_MS;
    return status;
}

static int status_run(int argc, char **argv)
{
    static const struct option options[] = {{"json", no_argument, NULL, 'j'},
                                            {"pool", required_argument, NULL, 'p'},
                                            {"watch", optional_argument, NULL, 'w'},
                                            {"help", no_argument, NULL, 'h'},
                                            {NULL, 0, NULL, 0}};
    struct status_look look = {0};
    uint64_t interval_ms = 0;
    bool as_json = false;
    int option, status = CLI_OK;

    while (status == CLI_OK && (option = cli_getopt(argc, argv, ":h", options)) != -1) {
        if (option == 'j')
            as_json = true;
        else if (option == 'p')
            look.pool = optarg;
        else if (option == 'w')
            status = status_parse_interval(optarg, &interval_ms);
        else
            return option == 'h' ? cli_help() : CLI_USAGE;
    }
    if (status != CLI_OK)
        return status;
    look.paths = argv + optind;
    look.path_count = (size_t)(argc - optind);
    return interval_ms ? status_watch(&look, interval_ms, as_json) : status_once(&look, as_json);
}

const struct cli_command cmd_status = {
    .name = "status",
    .summary = "show mounts, their stores and who holds them",
    .usage = usage,
    .run = status_run,
};
