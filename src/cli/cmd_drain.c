/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs drain - empties a mount, so that its device can be serviced; or a store of its holders
 *
 * The daemon drains as long as this command's connection lives: if the command ends early for any
 * reason, also SIGKILL, the mount serves again.
 */
#include "base/scope.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/drain_store.h"
#include "cli/mount_look.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/own_files.h"
#include "cli/signals.h"
#include "cli/store_file.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_EVERY_MS 50
#define WAIT_BYTES   80 /* of the words that tell the reason for a wait */

static const char usage[] =
    "Usage: gmsfs drain [--revoke] [--timeout S] [-q] MOUNT\n"
    "       gmsfs drain [--kill] [--revoke] [--timeout S] [-q] STORE [-- COMMAND [ARGUMENT...]]\n"
    "       gmsfs drain --then demote|none [--to host|disk] [--kill] [--revoke] [--timeout S] "
    "[-q]\n"
    "                   STORE\n"
    "       gmsfs drain --undo MOUNT|STORE\n"
    "\n"
    "Empties a mount: grants no new sessions, refuses waiting requests, waits for the sessions\n"
    "to end, and then DISCARDS the committed bytes of every store, until the device holds\n"
    "nothing. Save them to files before with 'gmsfs save'. The mount stays drained until --undo\n"
    "or the unmount. After a signal or the timeout the mount serves again, with the bytes that\n"
    "it still has.\n"
    "\n"
    "Discards nothing of a STORE: new requests wait, holders are told to leave ('info' and\n"
    "'events' give the deadline), and the command waits until no session holds it. Then COMMAND\n"
    "runs, which must not take its lock, or the store moves as --then says. When gmsfs drain\n"
    "ends, for any reason, the store is open again, and its waiters go on.\n";

static const char ending[] =
    "Exit status: 0 the device holds nothing, or no session holds the store, or it is where\n"
    "--then says, or that of COMMAND; 1 failure; 2 usage; 3 sessions were left when the time was\n"
    "over; 4 done, but that could not be reported; 128 + N stopped by signal N.\n";

static int drain_explain_busy(const struct mount *mount)
{
    json_auto_t *device = NULL;

    if (store_read_json(mount->path, "device", &device) == 0 && json_get_flag(device, "fenced"))
        return cli_error(
            "%s: it is fenced for a checkpoint, which needs the bytes that a drain would "
            "discard; 'gmsfs fence --status %s' prints the token that ends the fence",
            mount->path, mount->path);
    return cli_error("%s: another 'gmsfs drain' is under way", mount->path);
}

static int drain_explain(const struct mount *mount, int error)
{
    switch (error) {
    case -EPERM:
        return cli_error("%s: only root and the user that mounted it can drain it", mount->path);
    case -EBUSY:
        return drain_explain_busy(mount);
    case -EINTR:
        cli_error("stopped by a signal (%s) before the daemon answered; 'gmsfs status' shows "
                  "whether %s serves",
                  strsignal(signals_get()), mount->path);
        return CLI_SIGNALED + signals_get();
    case -ECANCELED:
        return daemon_explain_cancelled(mount->path, "the mount serves again");
    default:
        return daemon_explain(mount->path, error);
    }
}

/* Names the processes that hold sessions of the mount, or map its memory. */
static void drain_say_holders(const struct drain_store *drain, const struct mount *mount,
                              const char *wait)
{
    SCOPED_FREE char *holders = NULL;

    own_files_warn(mount->path);
    if (drain->quiet)
        return;
    holders = mount_look_holders(mount);
    fprintf(stderr, "waiting for %s%s\n%s", wait, *holders ? ":" : "", holders);
}

static void drain_say_sessions(const struct drain_store *drain, const struct mount *mount,
                               uint64_t left)
{
    char wait[WAIT_BYTES];

    snprintf(wait, sizeof(wait), "%" PRIu64 " session%s", left, left == 1 ? "" : "s");
    drain_say_holders(drain, mount, wait);
}

static void drain_say_mapped(const struct drain_store *drain, const struct mount *mount,
                             uint64_t left)
{
    char wait[WAIT_BYTES], size[SIZE_TEXT_BYTES];

    snprintf(wait, sizeof(wait), "%s that processes have mapped or open", size_format(left, size));
    drain_say_holders(drain, mount, wait);
}

/* Explains a stop by a signal. is_dropped: all sessions had ended, and the bytes are not free yet.
 */
static int drain_interrupted(const struct mount *mount, bool is_dropped, uint64_t left)
{
    char size[SIZE_TEXT_BYTES];
    int number = signals_get();

    if (is_dropped)
        cli_error(
            "stopped by a signal (%s); %s serves again; its committed bytes are discarded, and "
            "%s of them are still being given back",
            strsignal(number), mount->path, size_format(left, size));
    else
        cli_error("stopped by a signal (%s); %s serves again", strsignal(number), mount->path);
    return CLI_SIGNALED + number;
}

static int drain_late(const struct mount *mount, uint64_t left)
{
    cli_error("%s: %" PRIu64 " %s left in the time given; it serves again; --revoke ends "
              "sessions",
              mount->path, left, left == 1 ? "session is" : "sessions are");
    return CLI_TIMEOUT;
}

static int drain_late_mapped(const struct mount *mount, uint64_t left)
{
    char size[SIZE_TEXT_BYTES];

    cli_error("%s: processes still have %s mapped or open after the time given; it serves again, "
              "its committed bytes are discarded; end these processes, and drain it again",
              mount->path, size_format(left, size));
    return CLI_TIMEOUT;
}

/* Returns true if processes keep all the memory that is left. */
static bool drain_is_mapped(const struct mount *mount, uint64_t left)
{
    json_auto_t *device = NULL;

    return store_read_json(mount->path, "device", &device) == 0 &&
           json_get_number(device, "mapped_bytes") == left;
}

/* Asks until the device holds nothing. The timeout does not apply to memory that the daemon is
 * giving back. */
static int drain_wait(const struct drain_store *drain, const struct mount *mount,
                      struct daemon_drain *asked)
{
    uint64_t start_ms = clock_now_ms(), left = 0, said = 0, said_mapped = 0;
    bool is_mapped;
    int error;

    for (;;) {
        error = daemon_drain_ask(asked, GMSFS_FDS_DRAIN_END, 0, &left);
        if (error != -EBUSY && error != -EAGAIN)
            return error ? drain_explain(mount, error) : CLI_OK;
        if (error == -EBUSY && cli_left_ms(start_ms, drain->timeout_ms) == 0)
            return drain_late(mount, left);
        if (error == -EBUSY && left != said)
            drain_say_sessions(drain, mount, left);
        said = error == -EBUSY ? left : said;
        is_mapped = error == -EAGAIN && drain_is_mapped(mount, left);
        if (is_mapped && cli_left_ms(start_ms, drain->timeout_ms) == 0)
            return drain_late_mapped(mount, left);
        if (is_mapped && left != said_mapped)
            drain_say_mapped(drain, mount, left);
        said_mapped = is_mapped ? left : said_mapped;
        clock_pause_ms(ASK_EVERY_MS);
        if (signals_get())
            return drain_interrupted(mount, error == -EAGAIN, left);
    }
}

static int drain_mount(const struct drain_store *drain, const struct mount *mount)
{
    static const uint8_t no_store[16];
    struct daemon_drain asked = {.path = mount->path, .fd = daemon_connect(mount->path)};
    int status, error;

    if (asked.fd < 0)
        return drain_explain(mount, asked.fd);
    signals_install("gmsfs drain: ", "; nothing was asked for\n");
    signals_defer(true);
    error = drain->undo ? daemon_ask_serve(mount->path, asked.fd)
                        : daemon_drain_begin(&asked, GMSFS_FDS_DRAIN, no_store, drain->revoke);
    if (error)
        status = drain_explain(mount, error);
    else if (drain->undo)
        status = CLI_OK;
    else
        status = drain_wait(drain, mount, &asked);
    close(asked.fd);
    if (status == CLI_OK)
        output_set_done();
    if (status == CLI_OK && !drain->quiet)
        ui_line(stdout, drain->undo ? "%s serves" : "%s is drained: the device holds nothing",
                mount->path);
    return status;
}

static int drain_path(struct drain_store *drain)
{
    SCOPED_MOUNTS struct mounts mounts = {0};
    int error = mounts_read_for((char *const *)&drain->path, 1, &mounts);

    if (error)
        return mounts_explain(error);
    const struct mount *mount = mounts_find(&mounts, drain->path, false);
    if (!mount)
        drain->mount = mounts_find(&mounts, drain->path, true);
    if (mount && (drain->kill || drain->command || drain->then))
        cli_usage_error("%s is a mount; --kill, --then and COMMAND are for a store", drain->path);
    if (mount)
        return drain_mount(drain, mount);
    if (drain->mount)
        return drain_store_run(drain);
    return cli_error("%s: not a gmsfs mount, nor a store of one; 'gmsfs status' lists them",
                     drain->path);
}

/* Returns the number of words after the "--" that ends the options. */
static int drain_count_behind(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--") == 0)
            return argc - i - 1;
    return 0;
}

/* Refuses options that exclude each other. */
static void drain_check(const struct drain_store *drain)
{
    if (drain->undo && (drain->revoke || drain->kill || drain->command || drain->then ||
                        drain->to || drain->timeout_ms != CLI_FOREVER))
        cli_usage_error("--undo goes alone");
    if (drain->then && strcmp(drain->then, "demote") != 0 && strcmp(drain->then, "none") != 0)
        cli_usage_error("--then is demote or none, not '%s'", drain->then);
    if (drain->to && (!drain->then || strcmp(drain->then, "demote") != 0))
        cli_usage_error("--to goes with --then demote");
    if (drain->to && strcmp(drain->to, "host") != 0 && strcmp(drain->to, "disk") != 0)
        cli_usage_error("--to is host or disk, not '%s'", drain->to);
    if (drain->then && drain->command)
        cli_usage_error("--then and COMMAND do not go together: COMMAND can move the store");
}

static const struct cli_option options[] = {
    {"--kill", 0, NULL, cli_take_flag, offsetof(struct drain_store, kill),
     "STORE: SIGKILL to its holders, at once or after the timeout"},
    {"--revoke", 0, NULL, cli_take_flag, offsetof(struct drain_store, revoke),
     "end the sessions instead of waiting for them; writers lose their work. Of a\n"
     "STORE: after the timeout, and after --kill"},
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct drain_store, timeout_ms),
     "give up when sessions are left after S seconds, or, of a mount, memory that\n"
     "processes map (default: wait for them)"},
    {"--then", 0, "WORD", cli_take_text, offsetof(struct drain_store, then),
     "STORE: demote, its bytes leave the device as by 'gmsfs demote'; none, they are\n"
     "given up. The timeout does not bound the move"},
    {"--to", 0, "PLACE", cli_take_text, offsetof(struct drain_store, to),
     "with --then demote: host (default) or disk"},
    {"--undo", 0, NULL, cli_take_flag, offsetof(struct drain_store, undo),
     "let the mount, or the store, serve again"},
    CLI_QUIET(struct drain_store, quiet),
    {0},
};

static int drain_run(int argc, char **argv)
{
    struct drain_store drain = {.timeout_ms = CLI_FOREVER};
    int behind = drain_count_behind(argc, argv);

    cli_parse(argc, argv, &drain);
    if (argc - optind - behind > 1)
        cli_usage_error("one MOUNT or STORE at a time; a COMMAND stands behind '--'");
    drain.path = argv[optind];
    drain.command = argc - optind > 1 ? argv + optind + 1 : NULL;
    drain_check(&drain);
    if (drain.then && strcmp(drain.then, "demote") == 0)
        drain.then = drain.to ? drain.to : "host";
    return drain_path(&drain);
}

const struct cli_command cmd_drain = {
    .name = "drain",
    .summary = "empty a mount, or a store of its holders",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "one MOUNT or STORE is needed",
    .run = drain_run,
};
