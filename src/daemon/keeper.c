/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keeper_internal.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/size.h"
#include "daemon/attach.h"
#include "daemon/notify.h"
#include "daemon/privileges.h"
#include "daemon/program.h"
#include "daemon/refuse.h"
#include "daemon/signals.h"
#include "daemon/wire.h"
#include "journal/journal_copy.h"
#include "rpc/rpc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- a copy of the journal of a mount that ends by a failure (keep_journal=DIR) -------------- */

/* Before anything is mounted: -ECANCELED where the directory cannot be written to, which was said.
 */
static int keeper_check_journal_directory(const struct keeper *keeper)
{
    const char *directory = keeper->setup->options->keep_journal;

    if (!*directory)
        return 0;
    SCOPED_CLOSE int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && faccessat(fd, ".", W_OK | X_OK, AT_EACCESS) == 0)
        return 0;
    log_error("%s: not mounted: option keep_journal=%s: cannot write there: %s",
              keeper->setup->mountpoint, directory, strerror(errno));
    return -ECANCELED;
}

/* Makes a new file, which the daemon's user alone can read. */
static int write_copy(const struct keeper *keeper, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return -errno;
    int error = journal_write_copy(&keeper->journal, fd);
    if (close(fd) != 0 && !error)
        error = -errno;
    if (error)
        unlink(path);
    return error;
}

/* Keeps a copy of the journal of a mount that has failed, if that was asked for. */
static void keeper_keep_journal(const struct keeper *keeper)
{
    const char *directory = keeper->setup->options->keep_journal;
    char path[PATH_MAX];

    if (!*directory)
        return;
    snprintf(path, sizeof path, "%s/gmsfs-%d-%llu.journal", directory, (int)getpid(),
             (unsigned long long)(clock_wall_us() / 1000));
    int error = write_copy(keeper, path);
    if (error)
        log_error("%s: its journal is not kept: %s: %s", keeper->setup->mountpoint, path,
                  strerror(-error));
    else
        log_error("%s: its journal is kept in %s, which 'gmsfs journal' prints",
                  keeper->setup->mountpoint, path);
}

#define WAKING_MS 60000 /* after that the worker tries, and logs the cause */

/* ---- beginning ------------------------------------------------------------------------------ */

static void raise_limits(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) != 0)
        log_warning("cannot raise the limit of open files: %s", strerror(errno));
}

static int open_signals(struct keeper *keeper)
{
    sigset_t signals;

    signal(SIGPIPE, SIG_IGN);
    /* A parent may have set SIG_IGN, which would take the worker's status away. */
    signal(SIGCHLD, SIG_DFL);
    signals_block_others();
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    keeper->signal_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    return keeper->signal_fd < 0 ? -errno : 0;
}

/* Opens the audit before anything is mounted: a mount whose audit cannot be opened fails. */
static int open_audit(struct keeper *keeper)
{
    const char *path = keeper->setup->options->audit;

    if (!*path)
        return 0;
    keeper->audit_fd = keeper_open_audit(path);
    if (keeper->audit_fd >= 0)
        return 0;
    log_error("%s: not mounted: option audit=%s: cannot open it: %s", keeper_path(keeper), path,
              strerror(-keeper->audit_fd));
    return -ECANCELED;
}

/* The same for the trace. */
static int open_trace(struct keeper *keeper)
{
    const char *path = keeper->setup->options->trace;
    struct failure failure;

    if (!*path)
        return 0;
    keeper->trace_fd = keeper_open_trace(path, &failure);
    if (keeper->trace_fd >= 0)
        return 0;
    log_error("%s: not mounted: option trace: %s", keeper_path(keeper), failure.text);
    return -ECANCELED;
}

static void wake_device(const void *options, int to)
{
    (void)to;
    vmm_wake(options);
}

/* Wakes the device. The first use of a GPU after the machine has started may load modules and make
 * device files, which needs rights that are dropped next. */
static void have_device_woken(const struct keeper *keeper)
{
    const struct vmm_options *options = &keeper->setup->options->vmm;
    struct child *child;
    int fd;

    if (!vmm_is_asleep(options) || child_start(&child, wake_device, options, &fd))
        return;
    struct pollfd over = {.fd = fd};
    poll(&over, 1, WAKING_MS);
    close(fd);
    child_end(child);
}

static int make_anew(struct keeper *keeper)
{
    int error = open_audit(keeper);
    if (!error)
        error = open_trace(keeper);
    if (!error)
        error = keeper_check_journal_directory(keeper);

    if (!error)
        error = fs_ledger_make(&keeper->ledger_fd, &keeper->ledger);
    if (!error)
        error = backings_make(&keeper->backings);
    if (!error)
        error = journal_make_files(&keeper->journal);
    if (!error && keeper->setup->options->gms)
        error = rpc_make_memory(&keeper->gms_memory_fd);
    return error;
}

/* -ECANCELED: the reason was logged. */
static int begin(struct keeper *keeper)
{
    raise_limits();
    /* With huge pages, the default of some systems, a few bytes more of the heap take 2 MiB, for
     * which nothing has asked room (vmm/room.h). Workers inherit this. */
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (!keeper->setup->takes_over && !keeper->setup->is_stored)
        have_device_woken(keeper);
    privileges_begin_keeper();
    keeper_spare_itself();
    int error = open_signals(keeper);
    if (!error)
        error = program_find(keeper->program_path, sizeof keeper->program_path);
    if (error)
        return error;
    keeper->restarts.served_ms = clock_now_ms(); /* it is about to, for the first time */
    abi_write(keeper->program.abi);
    keeper->mounts_fd = open(MOUNTINFO_FILE, O_RDONLY | O_CLOEXEC);
    if (keeper->mounts_fd < 0)
        return -errno;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    error = keeper->setup->takes_over  ? keeper_take_over(keeper)
            : keeper->setup->is_stored ? keeper_resume_stored(keeper)
                                       : make_anew(keeper);
    if (!error)
        error = keeper_start_worker(keeper);
    return error;
}

/* ---- waiting ----------------------------------------------------------------------------- */

static int choose_timeout_ms(const struct keeper *keeper)
{
    uint64_t until_ms = keeper->end_ms ? keeper->end_ms : UINT64_MAX;
    uint64_t now_ms = clock_now_ms();

    if (keeper->worker < 0 && keeper->restarts.next_ms < until_ms)
        until_ms = keeper->restarts.next_ms;
    if (keeper->worker > 0 && keeper->look_ms < until_ms)
        until_ms = keeper->look_ms;
    if (keeper->visit.until_ms && keeper->visit.until_ms < until_ms)
        until_ms = keeper->visit.until_ms;
    if (fdstore_next_ms(&keeper->store) < until_ms)
        until_ms = fdstore_next_ms(&keeper->store);
    if (notify_next_ms() >= 0 && now_ms + (uint64_t)notify_next_ms() < until_ms)
        until_ms = now_ms + (uint64_t)notify_next_ms();
    if (until_ms == UINT64_MAX)
        return -1;
    return now_ms < until_ms ? (int)(until_ms - now_ms) : 0;
}

/* Waits for one event or more and serves them. poll(2) skips descriptors that are -1. */
static void serve_turn(struct keeper *keeper)
{
    struct pollfd events[] = {
        {keeper->signal_fd, POLLIN, 0},  {keeper->keep_fd, POLLIN, 0},
        {keeper->control_fd, POLLIN, 0}, {keeper->mounts_fd, POLLPRI, 0},
        {keeper->binder.fd, POLLIN, 0},  {keeper->setup->relay->fd, POLLIN, 0},
        {keeper->visit.fd, POLLIN, 0},   {keeper->lifeline_fd, POLLIN, 0},
        {keeper->tracer.fd, POLLIN, 0},  {keeper->auditor.fd, POLLIN, 0},
    };
    int count = poll(events, sizeof events / sizeof events[0], choose_timeout_ms(keeper));

    if (keeper->end_ms && clock_now_ms() >= keeper->end_ms && keeper->worker > 0) {
        log_error("%s: the worker does not end; it is killed", keeper_path(keeper));
        kill(keeper->worker, SIGKILL);
        keeper->end_ms += KEEPER_ENDING_MS;
    }
    if (keeper->visit.until_ms && clock_now_ms() >= keeper->visit.until_ms)
        keeper_on_visit_late(keeper);
    keeper_look_at_worker(keeper);
    fdstore_resend(&keeper->store, clock_now_ms());
    notify_resend();
    if (count <= 0)
        return;
    if (events[9].revents)
        keeper_on_audited(keeper);
    if (events[8].revents)
        keeper_on_traced(keeper);
    if (events[7].revents)
        keeper_on_lifeline(keeper);
    if (events[6].revents)
        keeper_on_visitor(keeper);
    if (events[5].revents)
        relay_drain(keeper->setup->relay);
    if (events[1].revents)
        keeper_on_keep(keeper);
    if (events[2].revents)
        keeper_on_control(keeper);
    if (events[4].revents)
        keeper_on_bound(keeper);
    if (events[3].revents)
        keeper_on_mounts(keeper);
    if (events[0].revents)
        keeper_on_signal(keeper);
}

/* Reads the messages that the worker sent before it ended. */
static void read_last_messages(struct keeper *keeper)
{
    struct wire_message message;
    int fd;

    while (keeper->control_fd >= 0 && wire_receive(keeper->control_fd, &message, &fd) == 0) {
        file_close_fd(&fd);
        if (message.type == WIRE_ENDED)
            keeper->files_lost = message.id;
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Reports a worker that ended without having been told to. */
static void clean_up(struct keeper *keeper)
{
    char how[128], size[SIZE_TEXT_BYTES];
    uint64_t bytes = holdings_count_bytes(&keeper->holdings);

    keeper_describe_end(keeper->worker_status, how, sizeof how);
    keeper->status = 1;
    if (!keeper->is_serving && WIFEXITED(keeper->worker_status))
        return; /* the worker has logged the cause */
    if (!keeper->is_serving) {
        log_error("%s: not mounted: the worker %s", keeper_path(keeper), how);
        return;
    }
    log_error("%s: the worker %s; %zu allocations (%s) are lost, mount again and load anew",
              keeper_path(keeper), how, holdings_count(&keeper->holdings),
              size_format(bytes, size));
}

static void report_end(struct keeper *keeper)
{
    char size[SIZE_TEXT_BYTES];
    size_t count = holdings_count(&keeper->holdings);

    if (!keeper->is_serving)
        return;
    if (keeper->files_lost > 0)
        log_warning("%s: ended; %" PRIu64 " files were open, their holders get ENOTCONN; "
                    "%zu allocations (%s) given back",
                    keeper_path(keeper), keeper->files_lost, count,
                    size_format(holdings_count_bytes(&keeper->holdings), size));
    else
        log_info("%s: ended; no client held a file; %zu allocations (%s) given back",
                 keeper_path(keeper), count,
                 size_format(holdings_count_bytes(&keeper->holdings), size));
}

static bool ended_in_order(struct keeper *keeper)
{
    if ((keeper->end_ms || keeper->is_detached) && keeper->restarts.next_ms)
        return true; /* there was no worker at that moment, and none is needed to end */
    return WIFEXITED(keeper->worker_status) && WEXITSTATUS(keeper->worker_status) == 0 &&
           (keeper->is_detached || keeper->end_ms);
}

/* Closes without cleaning up: another keeper has all of it too. */
static void end_given(struct keeper *keeper)
{
    log_info("%s: another process is the keeper now", keeper_path(keeper));
    gms_sockets_forget(&keeper->gms);
    journal_close_files(&keeper->journal);
    holdings_free(&keeper->holdings);
    backings_free(&keeper->backings);
}

static void end(struct keeper *keeper)
{
    file_close_fd(&keeper->visit.fd);
    gms_sockets_close(&keeper->gms);
    file_close_fd(&keeper->listen_fd);
    if (keeper->binder.pid > 0)
        kill(keeper->binder.pid, SIGKILL);
    if (keeper->tracer.pid > 0)
        kill(keeper->tracer.pid, SIGKILL);
    if (keeper->auditor.pid > 0)
        kill(keeper->auditor.pid, SIGKILL);
    read_last_messages(keeper);
    keeper_on_mounts(keeper);
    if (ended_in_order(keeper))
        report_end(keeper);
    else
        clean_up(keeper);
    if (keeper->is_mounted && keeper->fuse_fd >= 0)
        refuse_all(keeper->fuse_fd, keeper->ledger);
    if (keeper->fuse_fd >= 0)
        keeper_end_dead(keeper);
    /* While it is in the tree, no other connection can have its number. */
    if (keeper->is_mounted && !keeper->is_detached)
        attach_abort(&keeper->mount);
    file_close_fd(&keeper->fuse_fd); /* the last one: the kernel ends the waiting requests */
    if (keeper->is_mounted && !keeper->is_detached)
        keeper_detach(keeper);
    file_close_fd(&keeper->gms_memory_fd);
    holdings_free(&keeper->holdings);
    backings_free(&keeper->backings);
    fdstore_clear(&keeper->store);
    if (keeper->is_serving && keeper->status) /* without memory of the device: it takes long */
        keeper_keep_journal(keeper);
    journal_close_files(&keeper->journal);
    file_close_fd(&keeper->control_fd);
    file_close_fd(&keeper->keep_fd);
    file_close_fd(&keeper->lifeline_fd);
    file_close_fd(&keeper->mounts_fd);
    file_close_fd(&keeper->signal_fd);
    file_close_fd(&keeper->audit_fd);
    file_close_fd(&keeper->trace_fd);
}

int keeper_main(const struct keeper_setup *setup)
{
    struct keeper keeper = {
        .setup = setup,
        .worker = -1,
        .binder = ERRAND_NONE,
        .tracer = ERRAND_NONE,
        .auditor = ERRAND_NONE,
        .unmounter = -1,
        .signal_fd = -1,
        .mounts_fd = -1,
        .control_fd = -1,
        .keep_fd = -1,
        .lifeline_fd = -1,
        .listen_fd = -1,
        .fuse_fd = -1,
        .audit_fd = -1,
        .trace_fd = -1,
        .gms_memory_fd = -1,
        .ledger_fd = -1,
        .backings.fd = -1,
        .program.fd = -1,
        .visit.fd = -1,
        .journal = {-1, {-1, -1}, {-1, -1}},
    };
    fdstore_init(&keeper.store);
    int error = begin(&keeper);

    if (error && error != -ECANCELED)
        log_error("%s: %s: cannot start: %s", setup->mountpoint,
                  setup->takes_over ? "not taken over" : "not mounted", strerror(-error));
    if (error) {
        relay_drain(setup->relay);
        backings_free(&keeper.backings);
        return 1;
    }
    do
        serve_turn(&keeper);
    while (keeper.worker > 0 || keeper_restart_worker(&keeper));
    if (keeper.is_given)
        end_given(&keeper);
    else
        end(&keeper);
    relay_drain(setup->relay);
    return keeper.status;
}
