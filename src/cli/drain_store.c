/* SPDX-License-Identifier: Apache-2.0 */
/* The store is drained as long as the connection lives: once this process ends, for any reason, the
 * store grants its lock again. */
#include "cli/drain_store.h"

#include "base/fd_path.h"
#include "base/thread.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_explain.h"
#include "cli/holders.h"
#include "cli/output.h"
#include "cli/own_files.h"
#include "cli/run.h"
#include "cli/signals.h"
#include "cli/store_file.h"
#include "cli/store_place.h"
#include "cli/ui.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ASK_EVERY_MS 50
#define END_MS       5000u /* longest time for sessions to end after their processes have */

enum stage {
    ASKED,   /* holders were told, and may still leave */
    KILLED,  /* their processes were killed */
    REVOKED, /* their sessions were revoked */
};

struct waiting {
    const struct drain_store *drain;
    struct daemon_drain asked;
    int dir; /* the store's directory, also after a rename */
    uint8_t id[16];
    enum stage stage;
    uint64_t since_ms;      /* of the stage */
    uint64_t said;          /* number of sessions in the last message */
    pthread_mutex_t asking; /* held by each user of the connection */
};

static int explain(const struct drain_store *drain, int error)
{
    switch (error) {
    case -EPERM:
    case -EACCES: /* this user may not even look at it */
        return daemon_explain_rights(drain->path, drain->undo ? "undo a drain of it" : "drain it");
    case -EBUSY:
        return cli_error(
            "%s: another 'gmsfs drain' of it is under way; 'gmsfs drain --undo' ends that",
            drain->path);
    case -ECANCELED:
        return daemon_explain_cancelled(drain->path, "the store is open again");
    case -ENOENT:
        return cli_error(
            "%s: it is no store of a gmsfs mount, or not any more; 'gmsfs status' lists the stores",
            drain->path);
    case -EINTR:
        cli_error("stopped by a signal (%s); %s is open again", strsignal(signals_get()),
                  drain->path);
        return CLI_SIGNALED + signals_get();
    default:
        return daemon_explain(drain->path, error);
    }
}

static void say_holders(const struct waiting *waiting, uint64_t left)
{
    json_t *rows, *row;
    size_t i;

    if (left != waiting->said)
        own_files_warn(waiting->drain->path);
    if (waiting->drain->quiet || left == waiting->said)
        return;
    rows = holders_read(waiting->drain->path);
    ui_line(stderr, "waiting for %" PRIu64 " session%s%s", left, left == 1 ? "" : "s",
            json_array_size(rows) ? ":" : "");
    json_array_foreach (rows, i, row) {
        ui_line(stderr, "  %s  held  pid %" PRIu64 "  uid %" PRIu64 "  %s",
                json_get_text(row, "mode"), json_get_number(row, "pid"),
                json_get_number(row, "uid"), json_get_text(row, "comm"));
    }
    json_decref(rows);
}

static bool is_late(const struct waiting *waiting)
{
    uint64_t limit_ms = waiting->stage == ASKED ? waiting->drain->timeout_ms : END_MS;

    if (waiting->stage == ASKED && limit_ms == CLI_FOREVER)
        return waiting->drain->kill || waiting->drain->revoke; /* at once */
    return cli_left_ms(waiting->since_ms, limit_ms) == 0;
}

static int give_up(const struct waiting *waiting, uint64_t left)
{
    const struct drain_store *drain = waiting->drain;

    cli_error("%s: %" PRIu64 " %s left in the time given; it is open again%s", drain->path, left,
              left == 1 ? "session is" : "sessions are",
              waiting->stage == REVOKED ? "; transfers of theirs have not ended"
              : waiting->stage == KILLED
                  ? "; children of killed processes hold them: --revoke ends "
                    "the sessions"
                  : "; --kill ends their processes, --revoke the sessions");
    return CLI_TIMEOUT;
}

/* Takes the next step after the time limit; false if there is none. */
static bool go_further(struct waiting *waiting)
{
    const struct drain_store *drain = waiting->drain;

    if (waiting->stage == ASKED && drain->kill) {
        waiting->stage = KILLED;
        holders_kill(drain->mount->path, drain->path);
    } else if (waiting->stage != REVOKED && drain->revoke) {
        waiting->stage = REVOKED;
    } else {
        return false;
    }
    waiting->since_ms = clock_now_ms();
    return true;
}

/* Waits until no session holds the store. */
static int wait_for_holders(struct waiting *waiting)
{
    uint64_t left = 0;
    int error;

    for (;;) {
        error = daemon_drain_ask(&waiting->asked, GMSFS_FDS_STORE_HOLDERS,
                                 waiting->stage == REVOKED, &left);
        if (error != -EBUSY)
            return error ? explain(waiting->drain, error) : CLI_OK;
        if (is_late(waiting) && !go_further(waiting))
            return give_up(waiting, left);
        say_holders(waiting, left);
        waiting->said = left;
        clock_pause_ms(ASK_EVERY_MS);
        if (signals_get())
            return explain(waiting->drain, -EINTR);
    }
}

/* Moves the drained store. A signal ends this process at once, as a move can take long and ends by
 * itself: the store stays whole, and the daemon grants its lock again as always. */
static int move_drained(struct waiting *waiting)
{
    const struct drain_store *drain = waiting->drain;
    uint8_t token[sizeof(waiting->asked.token)];
    uint64_t timeout_ms = CLI_FOREVER;

    signals_install("gmsfs drain: ", "; the store is open again, wherever it is now\n");
    signals_defer(false);
    if (signals_get())
        return explain(drain, -EINTR);
    pthread_mutex_lock(&waiting->asking);
    memcpy(token, waiting->asked.token, sizeof(token));
    pthread_mutex_unlock(&waiting->asking);
    /* This waits for an earlier move, and the drain may be undone meanwhile. */
    int status = store_place_order(waiting->dir, drain->path, drain->then, token, &timeout_ms);
    if (status == CLI_OK)
        status = store_place_wait(waiting->dir, drain->path, drain->then, true, timeout_ms);
    if (status != CLI_OK || drain->quiet)
        return status;
    if (strcmp(drain->then, "none") == 0)
        ui_line(stdout, "%s: its bytes are given up", drain->path);
    else
        ui_line(stdout, "%s is at %s", drain->path, drain->then);
    return CLI_OK;
}

static int run_drained(struct waiting *waiting)
{
    const struct drain_store *drain = waiting->drain;

    if (drain->command)
        return run_command(drain->command);
    if (drain->then)
        return move_drained(waiting);
    if (!drain->quiet)
        ui_line(stdout, "no session holds %s", drain->path);
    return CLI_OK;
}

/* ---- while it is drained ----------------------------------------------------------------- */

struct keeping {
    struct waiting *waiting;
    int end; /* hangs up when run_drained() has ended */
};

/* Mends a broken connection. The mutex keeps the main thread's answers apart from a hangup. */
static int mend_connection(struct waiting *waiting)
{
    struct pollfd connection = {.fd = waiting->asked.fd, .events = POLLIN | POLLRDHUP};
    int error = 0;

    pthread_mutex_lock(&waiting->asking);
    if (poll(&connection, 1, 0) > 0)
        error = daemon_drain_mend(&waiting->asked);
    pthread_mutex_unlock(&waiting->asking);
    return error;
}

/* Watches for a break of the connection, which is idle most of the time. If it cannot be mended,
 * the next request gets the error. */
static void *keep_connection(void *argument)
{
    struct keeping *keeping = argument;
    struct pollfd ends[] = {{.fd = keeping->waiting->asked.fd, .events = POLLIN | POLLRDHUP},
                            {.fd = keeping->end, .events = POLLIN}};

    for (;;) {
        if (poll(ends, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (ends[1].revents || (ends[0].revents && mend_connection(keeping->waiting)))
            return NULL;
    }
}

static int keep_and_run(struct waiting *waiting)
{
    struct keeping keeping = {.waiting = waiting};
    pthread_t thread;
    int ends[2], status;

    if (pipe2(ends, O_CLOEXEC))
        return run_drained(waiting); /* then the drain ends with the worker */
    keeping.end = ends[0];
    status = thread_start(&thread, 0, keep_connection, &keeping);
    if (status) {
        close(ends[0]);
        close(ends[1]);
        return run_drained(waiting);
    }
    status = run_drained(waiting);
    close(ends[1]);
    pthread_join(thread, NULL);
    close(ends[0]);
    return status;
}

static uint32_t get_deadline_ms(const struct drain_store *drain)
{
    uint64_t timeout_ms = drain->timeout_ms;

    if (timeout_ms == CLI_FOREVER)
        timeout_ms = drain->kill || drain->revoke ? 1 : 0; /* 0: no deadline */
    else if (timeout_ms == 0)
        timeout_ms = 1;
    return timeout_ms > UINT32_MAX ? UINT32_MAX : (uint32_t)timeout_ms;
}

/* Opens the directory of the store that is at the path now, and reads its id. */
static int find_store(struct waiting *waiting)
{
    waiting->dir = open(waiting->drain->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (waiting->dir < 0)
        return errno == ENOTDIR ? -ENOENT : -errno;
    return store_read_id(fd_path(waiting->dir).text, waiting->id);
}

static int drain_by(struct waiting *waiting)
{
    const struct drain_store *drain = waiting->drain;
    int error = find_store(waiting), status;

    if (!error && drain->undo)
        error = daemon_ask(waiting->asked.fd, GMSFS_FDS_STORE_SERVE, waiting->id, 0, NULL);
    else if (!error)
        error = daemon_drain_begin(&waiting->asked, GMSFS_FDS_STORE_DRAIN, waiting->id,
                                   get_deadline_ms(drain));
    if (error)
        return explain(drain, error);
    if (drain->undo) {
        if (!drain->quiet)
            ui_line(stdout, "%s is open again", drain->path);
        return CLI_OK;
    }
    status = wait_for_holders(waiting);
    return status == CLI_OK ? keep_and_run(waiting) : status;
}

int drain_store_run(const struct drain_store *drain)
{
    struct waiting waiting = {
        .drain = drain, .dir = -1, .since_ms = clock_now_ms(), .asking = PTHREAD_MUTEX_INITIALIZER};

    waiting.asked =
        (struct daemon_drain){.path = drain->mount->path, .fd = daemon_connect(drain->mount->path)};
    if (waiting.asked.fd < 0)
        return explain(drain, waiting.asked.fd);
    signals_install("gmsfs drain: ", "; nothing was asked for\n");
    signals_defer(true);
    int status = drain_by(&waiting);
    if (!drain->undo && daemon_drain_end(&waiting.asked) != 0)
        cli_error("%s: the daemon does not answer; the store opens again once it does",
                  drain->path);
    close(waiting.asked.fd);
    if (waiting.dir >= 0)
        close(waiting.dir);
    if (status == CLI_OK)
        output_set_done();
    return status;
}
