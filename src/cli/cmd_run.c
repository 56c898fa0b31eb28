/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs run - holds a store's lock while a command runs
 *
 * The lock is an open file of this process, which stays the parent, so the command and its
 * descendants are members of the session. They also get the session's token, for processes that the
 * daemon cannot trace to this one.
 */
#include "base/digest.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/run.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"
#include "cli/store_open.h"
#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <unistd.h>

#define MPS_PERCENTAGE  "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
#define RUN_POOL_BYTES  128
#define ALARM_REPEAT_US 50000
#define MS_PER_S        1000
#define US_PER_MS       1000

static const char usage[] =
    "Usage: gmsfs run [-r | -w | -a | -d] [OPTION...] STORE [--] COMMAND [ARGUMENT...]\n"
    "\n"
    "Takes the store's lock, runs COMMAND as a member of the session, and releases the lock when\n"
    "it ends.\n";

static const char ending[] =
    "COMMAND finds in its environment: GMSFS_STORE, the store's path; GMSFS_MODE, RW, RW_DATA or\n"
    "RO; and GMSFS_SESSION, the session's token, with which others can join it. Signals are\n"
    "passed on. If the caller is in a session of the store already, COMMAND joins that session,\n"
    "and its owner commits.\n"
    "\n"
    "Exit status: that of COMMAND, or 128 + N when signal N ended it; 1 failure, as a commit\n"
    "that was refused; 2 usage; 3 the lock was not free in time; 4 COMMAND succeeded, but that\n"
    "could not be reported; 126 COMMAND cannot be run; 127 there is no such COMMAND.\n";

struct run {
    char *store;      /* absolute */
    const char *file; /* "lock", "auto" or "data" */
    int flags;        /* of open(2) */
    uint64_t timeout_ms;
    char **command;
    char mode; /* the option's letter; 0 if none was given */
    bool mps;  /* true to give the pool's percentage of processors to the command */

    char *sessions; /* text of the file before the open */
    int fd;
    struct gmsfs_ioc_info info;
    bool joined; /* true if it is another process's session */
};

/* ---- taking the lock ----------------------------------------------------------------------- */

static void run_on_alarm(int number)
{
    (void)number;
}

/* Repeats after the timeout: one signal may come just before the open that it has to end. */
static void run_set_alarm(uint64_t timeout_ms)
{
    struct sigaction action = {.sa_handler = run_on_alarm};
    struct itimerval timer = {.it_interval = {.tv_usec = ALARM_REPEAT_US}};

    if (timeout_ms == CLI_FOREVER)
        return;
    sigemptyset(&action.sa_mask);
    sigaction(SIGALRM, &action, NULL);
    timer.it_value.tv_sec = (time_t)(timeout_ms / MS_PER_S);
    timer.it_value.tv_usec = (suseconds_t)(timeout_ms % MS_PER_S * US_PER_MS);
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void run_end_alarm(void)
{
    const struct itimerval none = {.it_value = {0}};

    setitimer(ITIMER_REAL, &none, NULL);
    signal(SIGALRM, SIG_DFL);
}

/* Opens the writer's lock and waits for it; an open for reading never waits. Returns the descriptor
 * or a negative errno. Repeats after the kernel's own ETIMEDOUT: the place in the queue is
 * reserved. */
static int run_wait_open(const char *path, int flags, uint64_t timeout_ms)
{
    uint64_t start_ms = clock_now_ms();
    int fd;

    run_set_alarm(timeout_ms);
    do
        fd = open(path, flags);
    while (fd < 0 && (errno == EINTR || errno == ETIMEDOUT) &&
           cli_left_ms(start_ms, timeout_ms) > 0);
    if (fd < 0)
        fd = errno == EINTR ? -ETIMEDOUT : -errno;
    run_end_alarm();
    return fd;
}

/* Repeats after EINTR, which is a signal or the kernel's own bound on a wait. */
static int run_acquire(int fd, uint64_t timeout_ms)
{
    uint64_t start_ms = clock_now_ms();
    int error;

    do {
        struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RO,
                                            .flags = GMSFS_ACQUIRE_BY_PROCESS,
                                            .timeout_ms = cli_left_ms(start_ms, timeout_ms)};

        error = ioctl(fd, GMSFS_IOC_ACQUIRE, &acquire) < 0 ? -errno : 0;
    } while (error == -EINTR);
    return error;
}

/* Waits for the reader's lock. Returns the descriptor or a negative errno. */
static int run_wait_acquire(const char *store, uint64_t timeout_ms)
{
    SCOPED_FREE char *path = store_file_path(store, "ctl");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 ? -errno : run_acquire(fd, timeout_ms);

    if (error && fd >= 0)
        close(fd);
    return error ? error : fd;
}

static bool run_is_for_data(const struct run *run)
{
    return strcmp(run->file, "data") == 0;
}

/* True if its memory may be damaged, and its copy on the disk is being read. */
static bool run_is_healed(const struct run *run)
{
    json_auto_t *info = store_info_json(run->store);

    return json_get_flag(info, "suspect") && json_is_object(json_object_get(info, "moving"));
}

static const char *run_where_to_look(const struct run *run)
{
    if (run_is_for_data(run))
        return "'sessions' in it names the holder, 'may_write' in its 'info' the processes that "
               "can write its memory and have to exit first";
    return run_is_healed(run)
               ? "its memory may be damaged, and its copy on the disk is read first: 'residency' "
                 "in it shows how far that is"
               : "'sessions' in it names the holder";
}

/* True if the lock is free but not granted, because the store's bytes are not on the device. */
static bool run_is_away(const struct run *run)
{
    json_auto_t *info = store_info_json(run->store);
    json_t *tier, *residency = json_object_get(info, "residency");
    bool away = strcmp(json_get_text(info, "state"), "COMMITTED") == 0;
    size_t i;

    json_array_foreach (residency, i, tier)
        away &= strcmp(json_string_value(tier), "device") != 0;
    return away;
}

/* True for a reader of a store without a holder and without a layout to read. */
static bool run_is_before_commit(const struct run *run)
{
    json_auto_t *info = store_info_json(run->store);

    return !(run->flags & O_RDWR) && strcmp(json_get_text(info, "state"), "EMPTY") == 0;
}

/* Prints the reason of the wait, on a terminal only. */
static void run_say_waiting(const struct run *run)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (run_is_away(run))
        ui_line(stderr,
                "waiting for %s to come to the device ('gmsfs promote %s' names the obstacle)",
                run->store, run->store);
    else if (run_is_before_commit(run))
        ui_line(stderr, "waiting for a commit: %s is EMPTY ('gmsfs load' fills it)", run->store);
    else
        ui_line(stderr, "waiting for the lock of %s (%s)", run->store, run_where_to_look(run));
}

static int run_open(struct run *run)
{
    SCOPED_FREE char *path = store_file_path(run->store, run->file);
    int fd = open(path, run->flags | O_NONBLOCK);

    if (fd < 0)
        fd = -errno;
    if (fd == -EAGAIN && run->timeout_ms > 0) {
        run_say_waiting(run);
        fd = run->flags & O_RDWR ? run_wait_open(path, run->flags, run->timeout_ms)
                                 : run_wait_acquire(run->store, run->timeout_ms);
    }
    return fd;
}

static int run_explain_late(const struct run *run)
{
    const char *late = run->timeout_ms ? " in the time given" : "";

    if (run_is_away(run))
        cli_error(
            "cannot take the lock: %s: its bytes did not come to the device%s; 'gmsfs promote "
            "%s' brings them, or names the obstacle",
            run->store, late, run->store);
    else if (run_is_before_commit(run))
        cli_error("cannot take the lock: %s is EMPTY: nothing was committed in it%s; 'gmsfs load' "
                  "does that",
                  run->store, late);
    else
        cli_error("cannot take the lock: %s: not free%s; %s", run->store, late,
                  run_where_to_look(run));
    return CLI_TIMEOUT;
}

static int run_take(struct run *run)
{
    int error = store_read_file(run->store, "sessions", &run->sessions);

    if (error)
        return store_explain(run->store, "look at the sessions", error);
    run->fd = run_open(run);
    if (run->fd == -EAGAIN || run->fd == -ETIMEDOUT)
        return run_explain_late(run);
    if (run->fd < 0)
        return store_explain(run->store, "take the lock", run->fd);
    if (ioctl(run->fd, GMSFS_IOC_INFO, &run->info) < 0)
        return store_explain(run->store, "look at the session", -errno);
    run->joined = run_lists_session(run->sessions, run->info.session);
    return CLI_OK;
}

/* ---- running ------------------------------------------------------------------------------- */

static const char *run_mode_name(uint32_t mode)
{
    if (mode == GMSFS_MODE_RW)
        return "RW";
    return mode == GMSFS_MODE_RW_DATA ? "RW_DATA" : "RO";
}

static void run_set(const char *name, const char *value)
{
    if (setenv(name, value, 1) != 0)
        cli_out_of_memory();
}

static void run_export(const struct run *run)
{
    char token[GMSFS_TOKEN_TEXT_BYTES];

    run_set("GMSFS_STORE", run->store);
    run_set("GMSFS_MODE", run_mode_name(run->info.mode));
    if (digest_is_zero(run->info.token)) {
        unsetenv("GMSFS_SESSION");
    } else {
        gmsfs_token_format(run->info.token, token);
        run_set("GMSFS_SESSION", token);
    }
}

/* Reads the percentage from the store's pool in `pools`; 100 if it sets none. */
static int run_read_percentage(const struct run *run, unsigned *percentage)
{
    SCOPED_FREE char *pools = NULL;
    char line[RUN_POOL_BYTES];
    const char *found = NULL, *sm;
    json_auto_t *info = NULL;
    int error = store_read_file(run->store, "../pools", &pools);

    if (!error)
        error = store_read_json(run->store, "info", &info);
    int bytes = snprintf(line, sizeof(line), "\n%s ", info ? json_get_text(info, "pool") : "");
    if (!error) /* no newline precedes the first line */
        found = strncmp(pools, line + 1, (size_t)bytes - 1) == 0 ? pools : strstr(pools, line);
    sm = found ? strstr(found, " sm=") : NULL;
    *percentage = sm ? (unsigned)strtoul(sm + strlen(" sm="), NULL, 10) : 100;
    return error;
}

/* Exports the pool's percentage; a lower one in the environment stays, as it was set for a reason.
 */
static int run_export_percentage(const struct run *run)
{
    const char *before = getenv(MPS_PERCENTAGE);
    char text[16];
    unsigned percentage;
    int error = run->mps ? run_read_percentage(run, &percentage) : 0;

    if (error)
        return store_explain(run->store, "read the budget of its pool", error);
    if (!run->mps || percentage == 0 || percentage >= 100 ||
        (before && strtod(before, NULL) > 0 && strtod(before, NULL) <= percentage))
        return CLI_OK;
    snprintf(text, sizeof(text), "%u", percentage);
    run_set(MPS_PERCENTAGE, text);
    return CLI_OK;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* The session is over: by a commit of one of its members, or by an abort or revocation. */
static int run_explain_over(const struct run *run)
{
    SCOPED_FREE char *events = NULL;

    if (store_read_file(run->store, "../events", &events) == 0 &&
        run_has_commit(events, run->info.session)) {
        output_set_done();
        return CLI_OK;
    }
    return cli_error(
        "%s: the writer's session was over before COMMAND was: it aborted, or was revoked "
        "('events' in the mount says which); nothing of it is committed",
        run->store);
}

/* Commits, or with --data seals. */
static int run_commit(const struct run *run)
{
    struct gmsfs_ioc_commit commit = {.flags = run_is_for_data(run) ? GMSFS_COMMIT_SEAL : 0};
    char why[256];
    int error;

    do
        error = ioctl(run->fd, GMSFS_IOC_COMMIT, &commit) < 0 ? -errno : 0;
    while (error == -EINTR);
    if (error == 0) {
        output_set_done();
        return CLI_OK;
    }
    if (error == -ESTALE || error == -ENOLCK)
        return run_explain_over(run);
    store_last_error(run->store, why, sizeof(why));
    if (error == -EINVAL && *why)
        return cli_error("%s: the store refuses the layout: %s; nothing was committed", run->store,
                         why);
    return store_explain(run->store, run_is_for_data(run) ? "seal the layout" : "commit", error);
}

/* Aborts after the command failed; returns the command's status. */
static int run_abort(const struct run *run, int status)
{
    struct gmsfs_ioc_abort abort = {.rolled_back = 0};
    int error;

    do
        error = ioctl(run->fd, GMSFS_IOC_ABORT, &abort) < 0 ? -errno : 0;
    while (error == -EINTR);
    /* over already: COMMAND or another process ended it */
    if (error)
        return status;
    cli_error("COMMAND failed with status %d, so nothing was committed; %s %s", status, run->store,
              abort.rolled_back ? "has its earlier layout again" : "is empty");
    return status;
}

/* Ends a writer's session. A sealed layout stays as it is, with any status of COMMAND. */
static int run_finish_writer(const struct run *run, int status)
{
    struct gmsfs_ioc_info info = {0};

    if (ioctl(run->fd, GMSFS_IOC_INFO, &info) < 0 || info.mode != GMSFS_MODE_RW_DATA)
        return status == 0 ? run_commit(run) : run_abort(run, status);
    output_set_done();
    return status;
}

static int run_finish(const struct run *run, int status)
{
    struct gmsfs_ioc_info info;

    if (run->joined) {
        if (run->info.mode == GMSFS_MODE_RW && status == 0 && run->flags & O_RDWR) {
            output_set_done(); /* the session's owner commits */
            ui_line(stderr, "gmsfs run: joined session %" PRIu64 " of %s; its owner commits",
                    (uint64_t)run->info.session, run->store);
        }
        return status;
    }
    if (run->info.mode == GMSFS_MODE_RW)
        return run_finish_writer(run, status);
    if (ioctl(run->fd, GMSFS_IOC_INFO, &info) < 0 && errno == ESTALE) {
        cli_error("%s: the %s lock was revoked while COMMAND ran", run->store,
                  run->info.mode == GMSFS_MODE_RO ? "reader's" : "RW_DATA");
        return status ? status : CLI_FAILURE;
    }
    return status;
}

static int run_do(struct run *run)
{
    int status = store_check(run->store);

    if (status == CLI_OK)
        status = run_take(run);
    if (status == CLI_OK) {
        run_export(run);
        status = run_export_percentage(run);
    }
    if (status == CLI_OK)
        status = run_finish(run, run_command(run->command));
    if (run->fd >= 0)
        close(run->fd);
    free(run->sessions);
    return status;
}

/* ---- the command line ---------------------------------------------------------------------- */

static void run_take_mode(const char *name, const char *text, void *at)
{
    char *mode = at, letter = name[strlen("--")];

    (void)text;
    if (*mode && *mode != letter)
        cli_usage_error("-%c and -%c exclude each other", *mode, letter);
    *mode = letter;
}

static void run_take_nonblock(const char *name, const char *text, void *at)
{
    (void)name, (void)text;
    *(uint64_t *)at = 0;
}

static const struct cli_option options[] = {
    {"--read", 'r', NULL, run_take_mode, offsetof(struct run, mode),
     "the reader's lock (default); waits until something is committed"},
    {"--write", 'w', NULL, run_take_mode, offsetof(struct run, mode),
     "the writer's lock; commits when COMMAND exits with 0, else aborts"},
    {"--auto", 'a', NULL, run_take_mode, offsetof(struct run, mode),
     "the writer's when nothing is committed by then, else the reader's"},
    {"--data", 'd', NULL, run_take_mode, offsetof(struct run, mode),
     "the lock of a sealed layout's bytes, else the writer's; a layout that COMMAND\n"
     "has not sealed is sealed when it exits with 0, else aborted"},
    {"--nonblock", 'n', NULL, run_take_nonblock, offsetof(struct run, timeout_ms),
     "give up when the lock is not free at once"},
    {"--mps", 0, NULL, cli_take_flag, offsetof(struct run, mps),
     "COMMAND gets the share of the GPU's processors that the store's pool sets, by\n"
     "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE; the administrator has to start MPS"},
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct run, timeout_ms),
     "give up when it is not free within S seconds (default: wait for it)"},
    {0},
};

static int run_run(int argc, char **argv)
{
    struct run run = {.timeout_ms = CLI_FOREVER, .fd = -1};

    cli_parse(argc, argv, &run);
    run.file = run.mode == 'a' ? "auto" : run.mode == 'd' ? "data" : "lock";
    run.flags = (run.mode == 0 || run.mode == 'r' ? O_RDONLY : O_RDWR) | O_CLOEXEC;
    int at = optind;
    if (at < argc - 1 && strcmp(argv[at + 1], "--") == 0)
        run.command = argv + at + 2;
    else
        run.command = argv + at + 1;
    if (at >= argc || run.command >= argv + argc)
        cli_usage_error("a STORE and a COMMAND are needed");
    SCOPED_FREE char *store = realpath(argv[at], NULL);
    run.store = store ? store : argv[at]; /* opening it will explain the error */
    return run_do(&run);
}

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "run a command while holding a store's lock",
    .usage = usage,
    .options = options,
    .ending = ending,
    .is_prefix = true,
    .has_free_words = true,
    .run = run_run,
};
