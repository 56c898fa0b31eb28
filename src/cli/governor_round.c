/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/governor_round.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/mount_look.h"
#include "cli/output.h"
#include "cli/ui.h"
#include "governor/act.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the lock ------------------------------------------------------------------------------- */

/*
 * One governor for a mount. The lock is a connection to the daemon, which lets one at a time govern
 * the mount (GMSFS_FDS_GOVERN): all namespaces have the same lock, it ends with its process, and
 * only root and the user that mounted can take it. A lock on a file of the mount would not do: any
 * reader could take that, and an open file keeps the mount from being unmounted. Never prints, and
 * never hangs in the mount.
 */

/* The daemon sends nothing unasked, so anything to read is the end of the connection. */
static bool is_held(int lock)
{
    struct pollfd peer = {.fd = lock, .events = POLLIN};

    return lock >= 0 && poll(&peer, 1, 0) == 0;
}

static int explain(const char *path, int error, uint64_t holder, struct failure *failure)
{
    switch (error) {
    case -EBUSY:
        if (holder)
            return failure_set(failure, -EPERM,
                               "%s: process %" PRIu64
                               " governs it already; end that process first, "
                               "or send it SIGHUP to read its file anew",
                               path, holder);
        return failure_set(failure, -EPERM,
                           "%s: a process of another PID namespace governs it already; end that "
                           "process first, or send it SIGHUP to read its file anew",
                           path);
    case -EPERM:
        return failure_set(failure, -EPERM,
                           "%s: permission denied: only root and the user that mounted it can "
                           "govern it; run this as one of them, or with --dry-run",
                           path);
    case -EINVAL:
        return failure_set(failure, -EPERM,
                           "%s: its daemon is of an older build, which cannot keep a second "
                           "governor out; 'gmsfs upgrade %s' replaces it by the installed one",
                           path, path);
    default:
        return failure_set(failure, error,
                           "%s: the daemon cannot be asked whether another process governs it: %s",
                           path, failure_reason(error));
    }
}

/* Takes the lock of the mount at `path`, or makes sure that this process still has it: when the
 * daemon's worker is replaced, the lock is free. lock: the connection, -1 before the first call;
 * the caller closes it. -EPERM: another process has the lock, this user has no right to it, or the
 * daemon is too old to have one; another error: the daemon did not answer, and may do so later. */
static int governor_lock(const char *path, int *lock, struct failure *failure)
{
    uint64_t holder = 0;

    if (is_held(*lock))
        return 0;
    if (*lock >= 0)
        close(*lock);
    int error = daemon_govern(path, lock, &holder);
    return error ? explain(path, error, holder, failure) : 0;
}

/* True if a text differs from the last of its kind, which it replaces. */
static bool round_is_news(char **last, const char *text)
{
    if (*last && strcmp(*last, text) == 0)
        return false;
    free(*last);
    *last = strdup(text);
    return true;
}

/* Prints an error once while it repeats. */
static void round_complain(struct governor_round *round, const char *text)
{
    if (round_is_news(&round->complaint, text))
        cli_error("%s", text);
}

/* Fails this round alone; returns -ENOMEM. */
static int round_complain_no_memory(struct governor_round *round)
{
    round_complain(round, "this process is out of memory");
    return -ENOMEM;
}

static void round_tell(const char *text)
{
    cli_error("%s", text);
}

/* ---- printing ------------------------------------------------------------------------------- */

/* Prints lines for a shell, to be pasted: a deed that another one follows ends in &&. */
static int round_print_dry(struct governor_round *round, size_t count, FILE *to)
{
    const struct governor_place place = {.mount = round->mount->path, .program = "gmsfs"};

    for (size_t i = 0; i < count; i++) {
        const struct governor_deed *deed = &round->deeds[i];
        bool is_followed = i + 1 < count && round->deeds[i + 1].follows;
        SCOPED_FREE char *command = governor_deed_command(deed, &round->config, &place);

        if (!command)
            return -ENOMEM;
        ui_line(to, "%s%s%s# %s", command, is_followed ? " &&" : "", *command ? " " : "",
                deed->reason);
    }
    if (count == 0)
        ui_line(to, "# nothing to do");
    return 0;
}

static int round_print_reports(struct governor_round *round, size_t count, FILE *to)
{
    for (size_t i = 0; i < count; i++)
        if (round->deeds[i].kind == GOVERNOR_REPORT)
            ui_line(to, "%s", round->deeds[i].reason);
    return 0;
}

/* Prints a dry run or the reports, unless the last round's were equal. Returns 0, or -ENOMEM
 * after the error. */
static int round_show(struct governor_round *round, size_t count)
{
    SCOPED_FREE char *text = NULL;
    size_t bytes;
    FILE *to = open_memstream(&text, &bytes);

    if (!to)
        return round_complain_no_memory(round);
    int error =
        round->dry_run ? round_print_dry(round, count, to) : round_print_reports(round, count, to);
    if (fclose(to) == EOF || error)
        return round_complain_no_memory(round);
    if (round_is_news(&round->shown, text))
        fputs(text, stdout);
    fflush(stdout);
    return 0;
}

static void round_say_done(const struct governor_round *round, const struct governor_deed *deed,
                           uint64_t took_ms)
{
    char name[512];

    governor_deed_name(deed, &round->config, name, sizeof(name));
    ui_line(stdout, "%s (%" PRIu64 " ms): %s", name, took_ms, deed->reason);
    fflush(stdout);
    output_set_done();
}

/* ---- doing ---------------------------------------------------------------------------------- */

/* Makes sure that this process alone governs the mount: then ROUND_DONE. */
static enum governor_round_end round_claim(struct governor_round *round, struct failure *failure)
{
    int error = round->dry_run ? 0 : governor_lock(round->mount->path, &round->lock, failure);

    if (!error)
        return ROUND_DONE;
    return error == -EPERM ? ROUND_BARRED : ROUND_FAILED;
}

static int round_do(struct governor_round *round, const struct governor_deed *deed)
{
    const struct governor_place place = {.mount = round->mount->path, .program = round->program};
    uint64_t begin_ms = clock_now_ms();
    struct failure failure;
    int error = governor_do(deed, &round->config, &place, &failure);

    governor_note(&round->past, deed, error, clock_wall_ms());
    if (error)
        round_complain(round, failure.text);
    else
        round_say_done(round, deed, clock_now_ms() - begin_ms);
    return error;
}

/* Skips a deed that follows a failed one. The look is valid for one interval; after that finishes
 * only sequences that have begun, and leaves the rest to a new decision. */
static enum governor_round_end round_do_all(struct governor_round *round, size_t count)
{
    enum governor_round_end end = ROUND_DONE, claim;
    uint64_t seen_ms = clock_now_ms();
    struct failure failure;
    bool is_done = true;

    for (size_t i = 0; i < count && !round->is_asked_to_end(); i++) {
        const struct governor_deed *deed = &round->deeds[i];

        if (deed->kind == GOVERNOR_REPORT || (deed->follows && !is_done))
            continue;
        if (!deed->follows && clock_now_ms() - seen_ms > round->config.interval_ms)
            return end == ROUND_DONE ? ROUND_STALE : end;
        claim = round_claim(round, &failure); /* the last deed may have taken minutes */
        if (claim != ROUND_DONE) {
            round_complain(round, failure.text);
            return claim;
        }
        is_done = round_do(round, deed) == 0;
        if (!is_done)
            end = ROUND_FAILED;
    }
    return end;
}

/* ---- a round -------------------------------------------------------------------------------- */

/* False if the mount is gone. */
static bool round_is_mounted(const struct governor_round *round)
{
    return round->mount->id == 0 || mounts_has(round->mount->id) != 0;
}

static int round_look(struct governor_round *round, struct governor_seen *seen)
{
    json_auto_t *look = NULL;
    struct failure failure;

    int error =
        governor_ask(&round->past, &round->config, round->mount->path, clock_wall_ms(), round_tell);
    if (error)
        return round_complain_no_memory(round);
    look = mount_look_one(round->mount);
    error = governor_see(&round->past, &round->config, look, clock_wall_ms(), seen, &failure);
    if (error && round_is_mounted(round)) /* else that is told */
        round_complain(round, failure.text);
    if (!error)
        governor_tell_pools(&round->past, &round->config, &seen->snapshot, round_tell);
    return error;
}

enum governor_round_end governor_round(struct governor_round *round)
{
    enum governor_round_end end, claim = ROUND_DONE;
    struct governor_seen seen;
    struct failure failure;
    int error = -ENODEV;

    if (round_is_mounted(round)) {
        claim = round_claim(round, &failure);
        if (claim == ROUND_BARRED) {
            round_complain(round, failure.text);
            return claim;
        }
        error = round_look(round, &seen);
    }
    if (error && !round_is_mounted(round)) {
        cli_error("%s: it was unmounted, so there is nothing more to govern", round->mount->path);
        return ROUND_GONE;
    }
    if (error)
        return error == -ENOTCONN ? ROUND_DEAD : ROUND_FAILED;
    if (claim != ROUND_DONE) {
        round_complain(round, failure.text);
        governor_seen_free(&seen);
        return claim;
    }
    size_t count = governor_decide(&seen.snapshot, &round->config, round->deeds);
    end = round_show(round, count) == 0 ? ROUND_DONE : ROUND_FAILED;
    if (end == ROUND_DONE && !round->dry_run)
        end = round_do_all(round, count);
    if (end != ROUND_FAILED) {
        free(round->complaint);
        round->complaint = NULL;
    }
    governor_seen_free(&seen);
    return end;
}

void governor_round_free(struct governor_round *round)
{
    if (round->lock >= 0)
        close(round->lock);
    governor_past_free(&round->past);
    governor_config_free(&round->config);
    free(round->deeds);
    free(round->shown);
    free(round->complaint);
}
