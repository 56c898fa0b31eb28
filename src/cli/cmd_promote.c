/* SPDX-License-Identifier: Apache-2.0 */
/* gmsfs promote, gmsfs demote - bytes of stores to the device, and away from it */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/store_open.h"
#include "cli/store_place.h"
#include "cli/ui.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static const char promote_usage[] =
    "Usage: gmsfs promote [-aq] [--timeout S] STORE...\n"
    "\n"
    "Brings the bytes of stores to the device, all at once, and waits until they are there.\n"
    "Opening a store's lock does the same; this command does it ahead.\n";

static const char demote_usage[] =
    "Usage: gmsfs demote [-aq] [--to host|disk|none] [--timeout S] STORE...\n"
    "\n"
    "Moves the bytes of stores away from the device, all at once, and waits until they have none\n"
    "of its memory. Layout, hash and generation stay, so a client that sleeps over a store wakes\n"
    "as before. A store that is held is not moved.\n";

static const char ending[] =
    "Exit status: 0 all are there; 1 failure; 2 usage; 3 not in the time given; 4 done, but that\n"
    "could not be reported; 128 + N stopped by signal N, and moves that had begun go on.\n";

struct promote {
    const char *place;
    uint64_t timeout_ms;
    bool async, quiet;
};

static int promote_worse(int a, int b)
{
    return a == CLI_FAILURE || b == CLI_OK ? a : b;
}

static void promote_say(const struct promote *promote, const char *path)
{
    if (promote->quiet)
        return;
    if (strcmp(promote->place, "none") == 0)
        ui_line(stdout, "%s: its bytes are given up", path);
    else if (promote->async)
        ui_line(stdout, "%s moves to %s", path, promote->place);
    else
        ui_line(stdout, "%s is at %s", path, promote->place);
}

/* Begins all before it waits for any, so that they move side by side. */
static int promote_stores(const struct promote *promote, char **paths, size_t count)
{
    uint64_t start_ms = clock_now_ms(), left_ms;
    int *statuses = cli_need(calloc(count, sizeof(*statuses))), worst = CLI_OK;

    for (size_t i = 0; i < count; i++) {
        left_ms = cli_left_ms(start_ms, promote->timeout_ms);
        statuses[i] = store_place_order(AT_FDCWD, paths[i], promote->place, NULL, &left_ms);
    }
    for (size_t i = 0; i < count; i++) {
        left_ms = cli_left_ms(start_ms, promote->timeout_ms);
        if (statuses[i] == CLI_OK && !promote->async)
            statuses[i] = store_place_wait(AT_FDCWD, paths[i], promote->place, true, left_ms);
        if (statuses[i] == CLI_OK)
            promote_say(promote, paths[i]);
        worst = promote_worse(statuses[i], worst);
    }
    free(statuses);
    if (worst == CLI_OK)
        output_set_done();
    return worst;
}

static int promote_check_stores(char **paths, size_t count)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = store_check(paths[i]);
    return status;
}

static void demote_take_place(const char *name, const char *text, void *at)
{
    static const char *const places[] = {"host", "disk", "none"};

    *(const char **)at = text;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (strcmp(text, places[i]) == 0)
            return;
    cli_usage_error("%s is host, disk or none, not '%s'", name, text);
}

/* clang-format off */
#define MOVE_TIMEOUT \
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct promote, timeout_ms), \
     "wait S seconds at most; the moves go on all the same (default: wait)"}
/* clang-format on */

static const struct cli_option promote_options[] = {
    {"--async", 'a', NULL, cli_take_flag, offsetof(struct promote, async),
     "only begin it ('gmsfs wait STORE resident' waits for the end)"},
    MOVE_TIMEOUT,
    CLI_QUIET(struct promote, quiet),
    {0},
};

static const struct cli_option demote_options[] = {
    {"--async", 'a', NULL, cli_take_flag, offsetof(struct promote, async), "only begin it"},
    {"--to", 0, "PLACE", demote_take_place, offsetof(struct promote, place),
     "host (default) or disk: as the mount has them; none: the bytes are given\n"
     "up, until the store is loaded anew"},
    MOVE_TIMEOUT,
    CLI_QUIET(struct promote, quiet),
    {0},
};

static int promote_go(int argc, char **argv, const char *place, const char *before_signal)
{
    struct promote promote = {.place = place, .timeout_ms = CLI_FOREVER};

    cli_parse(argc, argv, &promote);
    signals_install(before_signal, "; moves that had begun go on\n");
    int status = promote_check_stores(argv + optind, (size_t)(argc - optind));
    return status == CLI_OK ? promote_stores(&promote, argv + optind, (size_t)(argc - optind))
                            : status;
}

static int promote_run(int argc, char **argv)
{
    return promote_go(argc, argv, "device", "gmsfs promote: ");
}

static int demote_run(int argc, char **argv)
{
    return promote_go(argc, argv, "host", "gmsfs demote: ");
}

const struct cli_command cmd_promote = {
    .name = "promote",
    .summary = "bring stores to their device",
    .usage = promote_usage,
    .options = promote_options,
    .ending = ending,
    .least = 1,
    .needs = "a STORE is needed",
    .run = promote_run,
};

const struct cli_command cmd_demote = {
    .name = "demote",
    .summary = "move stores away from their device",
    .usage = demote_usage,
    .options = demote_options,
    .ending = ending,
    .least = 1,
    .needs = "a STORE is needed",
    .run = demote_run,
};
