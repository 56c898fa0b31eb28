/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that end without having been told to: whether, when and how the next one starts. */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For processes that a worker leaves behind, before the next one is started. */
#define ORPHANS_MS     5000u
#define ORPHAN_TURN_MS 5u
#define STEADY_MS      10000u /* a worker that served this long resets the counts */
#define FREE_RESTARTS  2u     /* restarts in a row without a pause */
/* Before the next restart; each pause is twice as long as the one before. */
#define FIRST_PAUSE_MS   100u
#define LONGEST_PAUSE_MS 10000u
#define PATIENCE_MS      60000u /* without a worker that serves */

/* ---- processes that a worker leaves behind -------------------------------------------------- */

/* Returns a process that the dead worker has left to the keeper; 0 if there is none. Looks at all
 * processes if the kernel has no list of children (CONFIG_PROC_CHILDREN), or if a dead worker still
 * has children. */
static pid_t find_orphan(const struct keeper *keeper)
{
    char path[64];
    int pid = 0;

    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    SCOPED_FILE FILE *children = keeper->dead_count > 0 ? NULL : fopen(path, "re");
    if (!children)
        return keeper_search_orphan(keeper);
    while (fscanf(children, "%d", &pid) == 1)
        if (keeper_is_own(keeper, pid))
            pid = 0;
        else
            break;
    return pid;
}

/* Ends the processes that the worker had started. They die with it, though not at once, and a
 * copier that still moves bytes, or a process that writes a snapshot, must not meet the next
 * worker. They are children of the keeper by now (PR_SET_CHILD_SUBREAPER). A process that a driver
 * keeps alive cannot delay the mount for long: no other store gets the memory that it has imported
 * before it has gone, and it can still write only to the piece that it was told to write. */
static void reap_orphans(struct keeper *keeper)
{
    uint64_t until_ms = clock_now_ms() + ORPHANS_MS;
    pid_t orphan;

    while ((orphan = find_orphan(keeper)) > 0) {
        siginfo_t end = {0};
        kill(orphan, SIGKILL);
        if (waitid(P_PID, (id_t)orphan, &end, WEXITED | WNOHANG) != 0 && errno != ECHILD)
            return;
        if (end.si_pid == orphan)
            continue;
        if (clock_now_ms() >= until_ms) {
            log_error("%s: process %d, which the worker had started, does not end although it was "
                      "killed (ps -o stat,wchan -p %d shows where it waits); the next worker "
                      "starts without waiting for it",
                      keeper_path(keeper), (int)orphan, (int)orphan);
            return;
        }
        clock_pause_ms(ORPHAN_TURN_MS);
    }
}

/* Handles the messages that the worker sent before it died, because no other process repeats
 * them. */
static void handle_last_messages(struct keeper *keeper)
{
    while (keeper->control_fd >= 0 && keeper_on_control(keeper))
        ;
    while (keeper->keep_fd >= 0 && keeper_on_keep(keeper))
        ;
}

/* ---- the next one -------------------------------------------------------------------------- */

/* Lengthens the pause before the next worker, but raises no other count. */
static void count_starved(struct keeper *keeper)
{
    struct keeper_restarts *restarts = &keeper->restarts;
    uint64_t now_ms = clock_now_ms();

    if (restarts->resumed_ms > 0 && now_ms - restarts->resumed_ms >= STEADY_MS)
        restarts->starved = 0;
    restarts->starved++;
    restarts->served_ms = now_ms;
    restarts->resumed_ms = 0;
}

/* A worker that served for a while, or was killed from outside, says nothing about the next one. */
static void count_restart(struct keeper *keeper)
{
    struct keeper_restarts *restarts = &keeper->restarts;
    bool served = restarts->resumed_ms > 0;
    bool was_killed =
        WIFSIGNALED(keeper->worker_status) && WTERMSIG(keeper->worker_status) == SIGKILL;

    restarts->unserved = served ? 0 : restarts->unserved + 1;
    if (served)
        restarts->served_ms = clock_now_ms();
    if (served && (was_killed || clock_now_ms() - restarts->resumed_ms >= STEADY_MS))
        restarts->in_row = 0;
    else
        restarts->in_row++;
    restarts->starved = 0;
    restarts->resumed_ms = 0;
}

static uint64_t choose_pause_ms(unsigned in_row)
{
    uint64_t pause_ms = FIRST_PAUSE_MS;

    if (in_row <= FREE_RESTARTS)
        return 0;
    for (unsigned i = FREE_RESTARTS + 1; i < in_row && pause_ms < LONGEST_PAUSE_MS; i++)
        pause_ms *= 2;
    return pause_ms < LONGEST_PAUSE_MS ? pause_ms : LONGEST_PAUSE_MS;
}

static bool may_restart(const struct keeper *keeper)
{
    bool ended_itself = WIFEXITED(keeper->worker_status) && WEXITSTATUS(keeper->worker_status) == 0;

    return keeper->is_serving && !keeper->end_ms && !ended_itself;
}

/* The cause that keeps workers from serving may pass in a moment: memory that is short, a driver
 * that is being loaded. */
static bool are_too_many(const struct keeper *keeper)
{
    const struct keeper_restarts *restarts = &keeper->restarts;
    uint64_t unserved_ms = clock_now_ms() - restarts->served_ms;

    if (restarts->unserved > KEEPER_MAX_UNSERVED &&
        unserved_ms >= (hook_has_file("GMSFS_LAST_WORKER") ? 0 : PATIENCE_MS))
        log_error("%s: %u workers in a row ended before they served", keeper_path(keeper),
                  restarts->unserved);
    else if (restarts->in_row > KEEPER_MAX_IN_ROW)
        log_error("%s: %u workers in a row ended soon after they were started", keeper_path(keeper),
                  restarts->in_row);
    else
        return false;
    return true;
}

static void leave_worker(struct keeper *keeper)
{
    file_close_fd(&keeper->control_fd);
    file_close_fd(&keeper->keep_fd);
    reap_orphans(keeper);
}

/* Call it when the worker has just ended. Returns false if none follows. */
static bool plan_restart(struct keeper *keeper)
{
    struct keeper_restarts *restarts = &keeper->restarts;
    char how[128];

    if (!may_restart(keeper))
        return false;
    handle_last_messages(keeper);
    restarts->was_starved =
        keeper_is_starved(keeper->worker_status, restarts->kills, keeper_read_kills());
    keeper_describe_end(keeper->worker_status, how, sizeof how);
    if (restarts->was_starved)
        snprintf(how, sizeof how, FS_RECOVERY_STARVED);
    if (keeper_is_yielding(keeper))
        snprintf(how, sizeof how, "made way for %s",
                 keeper->visit.stage == VISIT_GIVING ? "another keeper (gmsfs mount --takeover)"
                                                     : "another build (gmsfs upgrade)");
    keeper_note_recovery(keeper->ledger, how);
    if (keeper_is_yielding(keeper) || keeper_go_back(keeper)) {
        leave_worker(keeper);
        keeper->restarts =
            (struct keeper_restarts){.next_ms = clock_now_ms(), .served_ms = clock_now_ms()};
        return true;
    }
    if (restarts->was_starved)
        count_starved(keeper);
    else
        count_restart(keeper);
    if (!restarts->was_starved && are_too_many(keeper))
        return false;
    uint64_t pause_ms = choose_pause_ms(restarts->was_starved ? restarts->starved + FREE_RESTARTS
                                                              : restarts->in_row);
    if (restarts->was_starved)
        log_error(
            "%s: the worker %s; device memory is kept, and another one is started in %" PRIu64
            ".%u s or later, when there is room: free memory, or raise the limit of the cgroup "
            "(MemoryMax=)",
            keeper_path(keeper), how, pause_ms / 1000, (unsigned)(pause_ms % 1000 / 100));
    else if (pause_ms > 0)
        log_warning("%s: the worker %s, as those before it did; another one is started in %" PRIu64
                    ".%u s",
                    keeper_path(keeper), how, pause_ms / 1000, (unsigned)(pause_ms % 1000 / 100));
    else
        log_warning("%s: the worker %s; another one is started", keeper_path(keeper), how);
    leave_worker(keeper);
    keeper_refuse_poison(keeper);
    restarts->next_ms = clock_now_ms() + pause_ms;
    return true;
}

/* No process could be started, which may pass in a moment. */
static bool try_later(struct keeper *keeper, int error)
{
    struct keeper_restarts *restarts = &keeper->restarts;
    bool is_starved = error == -ENOMEM;

    file_close_fd(&keeper->control_fd);
    file_close_fd(&keeper->keep_fd);
    keeper->worker = -1;
    if (is_starved)
        count_starved(keeper);
    else
        restarts->in_row++;
    log_error(
        "%s: cannot start another worker: %s; device memory is kept, and the keeper tries again",
        keeper_path(keeper), strerror(-error));
    if (!is_starved && are_too_many(keeper))
        return false;
    restarts->next_ms =
        clock_now_ms() + FIRST_PAUSE_MS +
        choose_pause_ms(is_starved ? restarts->starved + FREE_RESTARTS : restarts->in_row);
    return true;
}

/* Returns true if the mount has left the tree and no file of it is open: the kernel has ended the
 * connection. */
static bool is_connection_over(const struct keeper *keeper)
{
    struct pollfd connection = {.fd = keeper->fuse_fd};

    return keeper->is_detached && keeper->fuse_fd >= 0 && poll(&connection, 1, 0) == 1 &&
           connection.revents & POLLERR;
}

static void wait_for_room(struct keeper *keeper)
{
    struct keeper_restarts *restarts = &keeper->restarts;

    if (restarts->starved == 0 || !restarts->was_starved)
        log_error("%s: there is no memory for another worker; device memory is kept, and one is "
                  "started as soon as there is room: free memory, or raise the limit of the cgroup "
                  "(MemoryMax=)",
                  keeper_path(keeper));
    restarts->was_starved = true;
    count_starved(keeper);
    restarts->next_ms = clock_now_ms() + choose_pause_ms(restarts->starved + FREE_RESTARTS);
}

bool keeper_restart_worker(struct keeper *keeper)
{
    if (!keeper->restarts.next_ms && !plan_restart(keeper))
        return false;
    if (keeper->end_ms || is_connection_over(keeper))
        return false;
    if (keeper_is_yielding(keeper)) { /* asked for while there was no worker, so none has to end */
        if (!keeper_succeed_worker(keeper))
            return false;
        if (keeper->visit.is_trial)
            keeper->restarts.next_ms = clock_now_ms();
    }
    if (clock_now_ms() < keeper->restarts.next_ms)
        return true;
    if (!keeper_has_room(keeper)) {
        wait_for_room(keeper);
        return true;
    }
    keeper->restarts.next_ms = 0;
    int error = keeper_start_worker(keeper);
    return !error || try_later(keeper, error);
}
