/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keeper_internal.h"

#include "base/log.h"
#include "base/size.h"
#include "daemon/attach.h"
#include "daemon/refuse.h"
#include "daemon/signals.h"
#include "daemon/wire.h"
#include "daemon/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *keeper_path(const struct keeper *keeper)
{
    return keeper->setup->mountpoint;
}

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
    signal(SIGCHLD, SIG_DFL); /* ignored by a parent, it would take the worker's status away */
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

static int start_worker(struct keeper *keeper)
{
    int control[2] = {-1, -1}, keep[2] = {-1, -1};
    struct worker_setup setup = {
        .options = keeper->setup->options,
        .mountpoint = keeper->setup->mountpoint,
        .allow_other = keeper->setup->allow_other,
        .keeper = getpid(),
        .ledger = keeper->ledger,
        .journal = keeper->journal,
        .holdings = &keeper->holdings,
    };
    int error = wire_pair(control);

    if (!error)
        error = wire_pair(keep);
    if (!error) {
        fflush(NULL);
        keeper->worker = fork();
        error = keeper->worker < 0 ? -errno : 0;
    }
    if (!error && keeper->worker == 0) {
        close(control[0]);
        close(keep[0]);
        keeper_close(&keeper->signal_fd);
        keeper_close(&keeper->mounts_fd);
        keeper_close(&keeper->audit_fd);
        keeper_close(&keeper->fuse_fd); /* these come by messages, as they did to the first */
        keeper_close(&keeper->listen_fd);
        keeper_close(&keeper->binder_fd);
        gms_sockets_forget(&keeper->gms);
        relay_close(keeper->setup->relay);
        if (keeper->setup->ready_fd >= 0 && !keeper->is_serving)
            close(keeper->setup->ready_fd);
        setup.control_fd = control[1];
        setup.keep_fd = keep[1];
        exit(worker_main(&setup));
    }
    keeper_close(&control[1]);
    keeper_close(&keep[1]);
    keeper->control_fd = control[0];
    keeper->keep_fd = keep[0];
    if (!error) {
        fcntl(keeper->control_fd, F_SETFL, O_NONBLOCK);
        fcntl(keeper->keep_fd, F_SETFL, O_NONBLOCK);
    }
    return error;
}

/* Before anything is mounted: an audit that was asked for and cannot be is no mount. */
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

/* -ECANCELED: it has said why. */
static int begin(struct keeper *keeper)
{
    raise_limits();
    int error = open_signals(keeper);
    if (error)
        return error;
    keeper->ledger = mmap(NULL, sizeof *keeper->ledger, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (keeper->ledger == MAP_FAILED)
        return -errno;
    keeper->mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
    if (keeper->mounts_fd < 0)
        return -errno;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    error = open_audit(keeper);
    if (!error)
        error = journal_make_files(&keeper->journal);
    if (!error)
        error = start_worker(keeper);
    return error;
}

/* ---- a next worker ------------------------------------------------------------------------- */

static void describe_end(int status, char *text, size_t room)
{
    if (WIFSIGNALED(status))
        snprintf(text, room, "was killed by signal %d (%s)%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
    else if (WEXITSTATUS(status) == 0)
        snprintf(text, room, "found the connection aborted (/sys/fs/fuse/connections)");
    else
        snprintf(text, room, "gave up with exit status %d, see above", WEXITSTATUS(status));
}

static uint64_t read_clock_us(clockid_t clock)
{
    struct timespec now;

    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* For the next worker, which tells of it in the mount. */
static void note_recovery(struct fs_ledger *ledger, const char *cause)
{
    ledger->recovery = (struct fs_recovery){.noticed_us = read_clock_us(CLOCK_MONOTONIC),
                                            .wall_ms = read_clock_us(CLOCK_REALTIME) / 1000};
    snprintf(ledger->recovery.cause, sizeof ledger->recovery.cause, "%s", cause);
}

/* What the worker had started dies with it, though not at once: a copier that still moves bytes, or
 * who writes a snapshot, must not meet the next worker. They are ours by now
 * (PR_SET_CHILD_SUBREAPER). */
static void reap_orphans(struct keeper *keeper)
{
    siginfo_t child = {0};
    pid_t orphan;

    while ((orphan = keeper_find_orphan(keeper)) > 0) {
        kill(orphan, SIGKILL);
        if (waitid(P_PID, (id_t)orphan, &child, WEXITED) != 0)
            return;
    }
}

/* The request that the dead worker was at. One that several in a row died of is answered, or the
 * kernel would send it to the next one, too. */
static void refuse_poison(struct keeper *keeper)
{
    uint64_t served = keeper->ledger->unique[0], number = served & ~FS_RESENT_BIT;

    keeper->poisoned = number && number == keeper->poison ? keeper->poisoned + 1 : 0;
    keeper->poison = number;
    if (keeper->poisoned + 1 < KEEPER_POISONED)
        return;
    log_error("%s: %u workers in a row ended while they served one request; it is answered with an "
              "input/output error",
              keeper_path(keeper), KEEPER_POISONED);
    refuse_one(keeper->fuse_fd, served, -EIO);
    keeper->ledger->unique[0] = 0;
}

static bool may_restart(const struct keeper *keeper)
{
    bool ended_itself = WIFEXITED(keeper->worker_status) && WEXITSTATUS(keeper->worker_status) == 0;

    return keeper->is_serving && !keeper->end_ms && !ended_itself &&
           keeper->restarts_in_vain < KEEPER_MAX_RESTARTS;
}

/* The worker is gone although nobody asked it to. True: another one goes on. */
static bool restart_worker(struct keeper *keeper)
{
    char how[128];

    if (!may_restart(keeper))
        return false;
    describe_end(keeper->worker_status, how, sizeof how);
    note_recovery(keeper->ledger, how);
    log_warning("%s: the worker %s; another one is started", keeper_path(keeper), how);
    keeper->restarts_in_vain++;
    keeper_close(&keeper->control_fd);
    keeper_close(&keeper->keep_fd);
    reap_orphans(keeper);
    refuse_poison(keeper);
    int error = start_worker(keeper);
    if (error)
        log_error("%s: cannot start another worker: %s", keeper_path(keeper), strerror(-error));
    return !error;
}

/* ---- waiting ----------------------------------------------------------------------------- */

static int how_long(const struct keeper *keeper)
{
    if (!keeper->end_ms)
        return -1;
    uint64_t now_ms = keeper_now_ms();
    return now_ms < keeper->end_ms ? (int)(keeper->end_ms - now_ms) : 0;
}

/* Waits for one event or more and serves them. Descriptors that are not there are -1, which poll
 * passes over. */
static void serve_turn(struct keeper *keeper)
{
    struct pollfd events[] = {
        {keeper->signal_fd, POLLIN, 0},  {keeper->keep_fd, POLLIN, 0},
        {keeper->control_fd, POLLIN, 0}, {keeper->mounts_fd, POLLPRI, 0},
        {keeper->binder_fd, POLLIN, 0},  {keeper->setup->relay->fd, POLLIN, 0},
    };
    int count = poll(events, sizeof events / sizeof events[0], how_long(keeper));

    if (keeper->end_ms && keeper_now_ms() >= keeper->end_ms && keeper->worker > 0) {
        log_error("%s: the worker does not end; it is killed", keeper_path(keeper));
        kill(keeper->worker, SIGKILL);
        keeper->end_ms += KEEPER_ENDING_MS;
    }
    if (count <= 0)
        return;
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

/* The worker has ended: what it said before that counts. */
static void take_last_words(struct keeper *keeper)
{
    struct wire_message message;
    int fd;

    while (keeper->control_fd >= 0 && wire_receive(keeper->control_fd, &message, &fd) == 0) {
        if (fd >= 0)
            close(fd);
        if (message.type == WIRE_ENDED)
            keeper->files_lost = message.id;
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* The worker is gone although nobody asked it to: nobody who waits on it may hang. */
static void clean_up(struct keeper *keeper)
{
    char how[128], size[SIZE_TEXT_BYTES];
    uint64_t bytes = holdings_count_bytes(&keeper->holdings);

    describe_end(keeper->worker_status, how, sizeof how);
    keeper->status = 1;
    if (!keeper->is_serving && WIFEXITED(keeper->worker_status))
        return; /* it has said why */
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
    return WIFEXITED(keeper->worker_status) && WEXITSTATUS(keeper->worker_status) == 0 &&
           (keeper->is_detached || keeper->end_ms);
}

static void end(struct keeper *keeper)
{
    gms_sockets_close(&keeper->gms);
    keeper_close(&keeper->listen_fd);
    if (keeper->binder > 0)
        kill(keeper->binder, SIGKILL);
    take_last_words(keeper);
    keeper_on_mounts(keeper);
    if (ended_in_order(keeper))
        report_end(keeper);
    else
        clean_up(keeper);
    if (keeper->is_mounted && keeper->fuse_fd >= 0)
        refuse_all(keeper->fuse_fd, keeper->ledger);
    /* While it is in the tree, its number cannot be another connection's. */
    if (keeper->is_mounted && !keeper->is_detached)
        attach_abort(&keeper->mount);
    keeper_close(&keeper->fuse_fd); /* the last one: the kernel ends what still waits */
    if (keeper->is_mounted && !keeper->is_detached)
        keeper_detach(keeper);
    journal_close_files(&keeper->journal);
    holdings_free(&keeper->holdings);
    keeper_close(&keeper->control_fd);
    keeper_close(&keeper->keep_fd);
    keeper_close(&keeper->mounts_fd);
    keeper_close(&keeper->signal_fd);
    keeper_close(&keeper->audit_fd);
}

int keeper_main(const struct keeper_setup *setup)
{
    struct keeper keeper = {
        .setup = setup,
        .worker = -1,
        .binder = -1,
        .unmounter = -1,
        .signal_fd = -1,
        .mounts_fd = -1,
        .control_fd = -1,
        .keep_fd = -1,
        .binder_fd = -1,
        .listen_fd = -1,
        .fuse_fd = -1,
        .audit_fd = -1,
    };
    int error = begin(&keeper);

    if (error && error != -ECANCELED)
        log_error("%s: not mounted: cannot start: %s", setup->mountpoint, strerror(-error));
    if (error) {
        relay_drain(setup->relay);
        return 1;
    }
    do
        serve_turn(&keeper);
    while (keeper.worker > 0 || restart_worker(&keeper));
    end(&keeper);
    relay_drain(setup->relay);
    return keeper.status;
}
