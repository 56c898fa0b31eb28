/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs governor - decides which of several models are on a device, by the metrics of their engines
 *
 * A loop around governor_round.h. Signals are blocked except during its waits, so it ends, and
 * reads its file again, only between deeds.
 */
#include "base/failure.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/governor_round.h"
#include "cli/mounts.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_FILE "/etc/gmsfs/governor.conf"

static const char usage[] =
    "Usage: gmsfs governor [--dry-run] [--once] [-c FILE] MOUNT\n"
    "\n"
    "Decides which models are on the device: asks their engines how many requests wait, brings\n"
    "wanted models to the device, and moves others away, the less important and longest unused\n"
    "first. In the foreground, until a signal ends it; prints a line on standard output for each\n"
    "deed and its reason. After SIGHUP it reads FILE again.\n";

static const char ending[] =
    "Exit status: 0 ended by SIGTERM or SIGINT, or the mount was unmounted, or (--once) all was "
    "done;\n"
    "1 failure, or (--once) a deed failed; 2 usage; 4 done, but that could not be reported.\n";

struct governor {
    const char *file;
    bool dry_run, once;
    struct governor_round round;
};

/* ---- signals -------------------------------------------------------------------------------- */

static bool is_ending, is_reading_anew;

/* Leaves an ignored SIGINT alone (a shell ignores it for background jobs): a blocked one would
 * still be delivered. */
static void governor_get_signals(sigset_t *set)
{
    struct sigaction before;

    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGHUP);
    if (sigaction(SIGINT, NULL, &before) != 0 || before.sa_handler != SIG_IGN)
        sigaddset(set, SIGINT);
}

static void governor_block_signals(void)
{
    sigset_t set;

    governor_get_signals(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

/* True if a signal came. */
static bool governor_wait_signal(uint64_t timeout_ms)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000),
                                     .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
    sigset_t set;

    governor_get_signals(&set);
    int number = sigtimedwait(&set, NULL, &timeout);
    if (number == SIGHUP)
        is_reading_anew = true;
    else if (number > 0)
        is_ending = true;
    return number > 0;
}

static bool governor_is_asked_to_end(void)
{
    while (governor_wait_signal(0))
        ;
    return is_ending;
}

/* ---- its file ------------------------------------------------------------------------------- */

static int governor_read(const char *file, struct governor_config *config, struct failure *failure)
{
    SCOPED_FREE char *text = NULL;
    size_t text_bytes = 0;
    struct failure why;
    int error = store_read_regular(file, GOVERNOR_MAX_CONFIG, &text, &text_bytes);

    if (error == -ENOMEM)
        return failure_set(failure, error, "%s: it is longer than %u bytes, or memory is short",
                           file, GOVERNOR_MAX_CONFIG);
    if (error == -ENOTSUP)
        return failure_set(failure, error,
                           "%s: is no regular file; name a file of statements by -c, as "
                           "gmsfs-governor(8) has one",
                           file);
    if (error)
        return failure_set(failure, error, "%s: cannot be read: %s%s", file, failure_reason(error),
                           error == -ENOENT ? "; gmsfs-governor(8) has an example of one, and -c "
                                              "names another place"
                                            : "");
    error = governor_config_parse(text, text_bytes, config, &why);
    return error ? failure_set(failure, error, "%s: %.3800s", file, why.text) : 0;
}

static void governor_read_anew(struct governor *governor)
{
    struct governor_config config;
    struct failure failure;

    is_reading_anew = false;
    if (governor_read(governor->file, &config, &failure) != 0) {
        cli_error("%s; the old configuration stays in force", failure.text);
        return;
    }
    if (governor_past_follow(&governor->round.past, &config) != 0) {
        governor_config_free(&config);
        cli_error("this process is out of memory; the old configuration stays in force");
        return;
    }
    governor_config_free(&governor->round.config);
    governor->round.config = config;
    ui_line(stdout, "%s was read again", governor->file);
    fflush(stdout);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* Waits for the rest of the interval; handles signals meanwhile. */
static void governor_wait(struct governor *governor, uint64_t since_ms)
{
    uint64_t left_ms;

    do {
        if (is_reading_anew)
            governor_read_anew(governor);
        left_ms = cli_left_ms(since_ms, governor->round.config.interval_ms);
        if (is_ending || left_ms == 0)
            break;
        governor_wait_signal(left_ms);
    } while (!is_ending);
}

static int governor_loop(struct governor *governor)
{
    enum governor_round_end end;
    uint64_t since_ms;

    do {
        since_ms = clock_now_ms();
        end = governor_round(&governor->round);
        if (end == ROUND_DEAD || end == ROUND_GONE || end == ROUND_BARRED ||
            (governor->once && end != ROUND_STALE))
            return end == ROUND_DONE || end == ROUND_GONE ? CLI_OK : CLI_FAILURE;
        governor_wait(governor, since_ms); /* no wait after a stale round, which took as long */
    } while (!governor_is_asked_to_end());
    return CLI_OK;
}

/* Finds this program's file, not a name in the PATH; after an upgrade the file that replaced it. */
static char *governor_find_program(void)
{
    char path[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (bytes > 0) {
        path[bytes] = '\0';
        if (access(path, X_OK) == 0)
            return cli_need(strdup(path));
    }
    return cli_need(strdup("gmsfs"));
}

static int governor_start(struct governor *governor)
{
    struct governor_round *round = &governor->round;
    struct failure failure;
    SCOPED_FREE char *program = NULL;

    if (governor_read(governor->file, &round->config, &failure) != 0)
        return cli_failure(&failure);
    program = governor_find_program();
    round->program = program;
    round->dry_run = governor->dry_run;
    round->is_asked_to_end = governor_is_asked_to_end;
    round->deeds = cli_need(calloc(GOVERNOR_MAX_DEEDS, sizeof(*round->deeds)));
    if (governor_past_follow(&round->past, &round->config) != 0)
        cli_out_of_memory();
    int status = governor_loop(governor);
    governor_round_free(round);
    return status;
}

static const struct cli_option options[] = {
    {"--config", 'c', "FILE", cli_take_text, offsetof(struct governor, file),
     "its rules for each model (default: " DEFAULT_FILE ");\n"
     "gmsfs-governor(8) has its statements"},
    {"--dry-run", 0, NULL, cli_take_flag, offsetof(struct governor, dry_run),
     "change nothing: print the shell commands that it would run, and why"},
    {"--once", 0, NULL, cli_take_flag, offsetof(struct governor, once),
     "one look, and the deeds that follow from it; another look where these\n"
     "took longer than an interval"},
    {0},
};

static int governor_run(int argc, char **argv)
{
    struct governor governor = {.file = DEFAULT_FILE, .round.lock = -1};
    SCOPED_MOUNTS struct mounts mounts = {0};

    cli_parse(argc, argv, &governor);
    if (mounts_open_at(argv[optind], &mounts, &governor.round.mount) != CLI_OK)
        return CLI_FAILURE;
    governor_block_signals(); /* before the lock: its next claimant is told to send SIGHUP here */
    return governor_start(&governor);
}

const struct cli_command cmd_governor = {
    .name = "governor",
    .summary = "decide which models are on a device",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .most = 1,
    .needs = "a MOUNT is needed",
    .run = governor_run,
};
