/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "base/timeline.h"
#include "daemon/attach.h"
#include "daemon/notify.h"
#include "daemon/privileges.h"
#include "daemon/wire.h"
#include "fs/init.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 1000

bool keeper_detach(struct keeper *keeper)
{
    struct mountinfo top;

    if (mountinfo_find_path(keeper_path(keeper), &top) == 0 &&
        (top.id != keeper->mount.id || top.minor != keeper->mount.minor)) {
        log_warning("%s: something else is mounted over it or it was moved; it stays in the tree",
                    keeper_path(keeper));
        return false;
    }
    return attach_detach(keeper_path(keeper));
}

/* ---- an ordered end ------------------------------------------------------------------------- */

/* Ends the worker; with SIGKILL if it does not end in time. */
static void end_in_order(struct keeper *keeper)
{
    if (keeper->end_ms)
        return;
    keeper->end_ms = clock_now_ms() + KEEPER_ENDING_MS;
    gms_sockets_close(&keeper->gms);
    file_close_fd(&keeper->listen_fd);
    notify_send("STOPPING=1");
    if (keeper->is_mounted && !keeper->is_detached && keeper_detach(keeper))
        keeper->is_detached = true;
    keeper_tell_worker(keeper, WIRE_END, -1);
}

/* Ends a new mount, which is useless without its socket; one that serves already continues. */
static void end_without_socket(struct keeper *keeper)
{
    if (keeper->is_serving || keeper->end_ms)
        return;
    keeper->status = 1;
    end_in_order(keeper);
}

static void start_bind(struct keeper *keeper)
{
    if (keeper->binder.pid > 0 || keeper->listen_fd >= 0 || keeper->is_detached || keeper->end_ms)
        return;
    int error = attach_start_bind(keeper_path(keeper), &keeper->binder);
    if (error) {
        log_error("%s: cannot start the child that binds .fds: %s", keeper_path(keeper),
                  strerror(-error));
        end_without_socket(keeper);
    }
}

static void announce(struct keeper *keeper)
{
    char state[64];
    char byte = 0;

    keeper->is_serving = true;
    keeper->restarts.served_ms = keeper->restarts.resumed_ms = clock_now_ms();
    log_info("%s: %s (%s memory, keeper %d, worker %d)", keeper_path(keeper),
             keeper->setup->takes_over  ? "taken over"
             : keeper->setup->is_stored ? "resumed"
                                        : "mounted",
             keeper->setup->options->vmm.backend, (int)getpid(), (int)keeper->worker);
    snprintf(state, sizeof state, "READY=1\nMAINPID=%d", (int)getpid());
    notify_send(state);
    keeper_store_begin(keeper);
    if (keeper->setup->ready_fd < 0)
        return;
    relay_leave_terminal(keeper->setup->relay);
    dup2(STDIN_FILENO, STDOUT_FILENO); /* /dev/null, so that a reader of our output sees its end */
    ssize_t put = write(keeper->setup->ready_fd, &byte, 1);
    (void)put;
    close(keeper->setup->ready_fd);
}

void keeper_on_bound(struct keeper *keeper)
{
    int error = attach_finish_bind(&keeper->binder, &keeper->listen_fd);

    if (error) {
        end_without_socket(keeper);
        return;
    }
    if (keeper->is_detached || keeper->end_ms) {
        file_close_fd(&keeper->listen_fd);
        return;
    }
    keeper_tell_worker(keeper, WIRE_LISTENER, keeper->listen_fd);
    if (!keeper->is_serving) {
        /* The bind waited for the answer to FUSE_INIT, which at WIRE_READY may still be on its
         * way. */
        attach_widen(&keeper->mount, FS_INIT_MAX_BACKGROUND);
        announce(keeper);
    } else {
        keeper_store_update(keeper);
    }
}

int keeper_open_audit(const char *path)
{
    privileges_raise();
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    int error = fd < 0 ? -errno : 0;

    privileges_rest();

    /* O_NONBLOCK makes open(2) fail on a FIFO without a reader; writes to the file may wait. */
    if (!error && fcntl(fd, F_SETFL, O_APPEND) != 0)
        error = -errno;
    if (!error)
        return fd;
    file_close_fd(&fd);
    return error;
}

int keeper_open_trace(const char *path, struct failure *failure)
{
    privileges_raise();
    int fd = timeline_open(path, failure);
    privileges_rest();
    return fd;
}

/* Runs in a child: the disk may be slow or dead. */
static int replace_trace(const void *argument, int *fd)
{
    const struct keeper *keeper = argument;
    struct failure failure;

    hook_wait("GMSFS_HOLD_TRACE");
    *fd = timeline_open(keeper->setup->options->trace, &failure);
    if (*fd < 0)
        log_error("%s: the trace ends, because its file is full and cannot be replaced: %s",
                  keeper_path(keeper), failure.text);
    return *fd < 0 ? *fd : 0;
}

/* Replaces the trace's file, which is full; the former one becomes FILE.1. */
static void rotate_trace(struct keeper *keeper)
{
    if (keeper->trace_fd < 0 || keeper->end_ms || keeper->tracer.pid > 0)
        return;
    int error = errand_start(&keeper->tracer, replace_trace, keeper);
    if (error)
        log_error("%s: the trace ends, because its file is full and no child to replace it can be "
                  "started: %s",
                  keeper_path(keeper), strerror(-error));
}

/* The child has closed the former file too, so that its close waits for no disk here. */
void keeper_on_traced(struct keeper *keeper)
{
    int fd = -1, error = errand_finish(&keeper->tracer, &fd);

    if (error || keeper->end_ms) { /* the child has logged the error */
        file_close_fd(&fd);
        return;
    }
    file_close_fd(&keeper->trace_fd);
    keeper->trace_fd = fd;
    keeper_tell_worker(keeper, WIRE_TRACE, fd);
    keeper_store_update(keeper);
}

static void pass_audit(struct keeper *keeper)
{
    if (keeper->audit_fd >= 0)
        keeper_tell_worker(keeper, WIRE_AUDIT, keeper->audit_fd);
}

static void log_audit_stays(const struct keeper *keeper, int error)
{
    log_error("%s: cannot open the audit %s again: %s; events still go to the old file",
              keeper_path(keeper), keeper->setup->options->audit, strerror(-error));
}

/* Runs in a child: the disk may be slow or dead. */
static int open_audit_again(const void *argument, int *fd)
{
    const struct keeper *keeper = argument;

    hook_wait("GMSFS_HOLD_AUDIT");
    *fd = keeper_open_audit(keeper->setup->options->audit);
    if (*fd < 0)
        log_audit_stays(keeper, *fd);
    return *fd < 0 ? *fd : 0;
}

/* Opens the audit again after the file was renamed, once more if a child opens it already. */
static void reopen_audit(struct keeper *keeper)
{
    bool opens = keeper->auditor.pid > 0;

    keeper->is_audit_renamed = opens;
    if (opens || !*keeper->setup->options->audit || keeper->end_ms)
        return;
    int error = errand_start(&keeper->auditor, open_audit_again, keeper);
    if (error)
        log_audit_stays(keeper, error);
}

/* Keeps the old file, for a next worker too, if the child has failed; the child has logged that. */
void keeper_on_audited(struct keeper *keeper)
{
    int fd = -1, error = errand_finish(&keeper->auditor, &fd);

    if (error || keeper->end_ms) {
        file_close_fd(&fd);
    } else {
        file_close_fd(&keeper->audit_fd);
        keeper->audit_fd = fd;
        pass_audit(keeper);
        keeper_store_update(keeper);
    }
    if (keeper->is_audit_renamed)
        reopen_audit(keeper);
}

static int open_gms_sockets(struct keeper *keeper, const struct wire_message *prepared)
{
    const struct daemon_options *options = keeper->setup->options;
    struct gms_sockets_options sockets = {
        .dir = options->gms_dir,
        .ordinal = options->gms_ordinal,
        .mode = options->gms_mode,
        .mountpoint = keeper_path(keeper),
    };

    if (!options->gms)
        return 0;
    wire_get_uuid(prepared, sockets.uuid);
    return gms_sockets_open(&sockets, &keeper->gms);
}

static void pass_gms_socket(struct keeper *keeper, const struct gms_socket *socket)
{
    struct wire_message message = {
        .type = WIRE_GMS, .id = socket->domain, .value = socket->protocol};

    keeper_send(keeper, &message, socket->fd);
}

static void tell_gms_sockets(const struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->gms.count; i++)
        log_info("%s: serves GMS clients at %s", keeper_path(keeper), keeper->gms.items[i].path);
}

/* Passes everything that a worker needs, which is the same for the next one. */
static void pass_all(struct keeper *keeper)
{
    const struct wire_message fuse = {.type = WIRE_FUSE, .value = keeper->backings.fd >= 0};

    pass_audit(keeper);
    if (keeper->trace_fd >= 0)
        keeper_tell_worker(keeper, WIRE_TRACE, keeper->trace_fd);
    keeper_send(keeper, &fuse, keeper->fuse_fd);
    for (size_t i = 0; i < keeper->gms.count; i++)
        pass_gms_socket(keeper, &keeper->gms.items[i]);
    if (keeper->listen_fd >= 0)
        keeper_tell_worker(keeper, WIRE_LISTENER, keeper->listen_fd);
    if (keeper->is_detached)
        keeper_tell_worker(keeper, WIRE_DETACHED, -1);
}

static void on_resumed(struct keeper *keeper, const struct wire_message *resumed)
{
    keeper->restarts.resumed_ms = clock_now_ms();
    keeper->restarts.served_ms = keeper->restarts.resumed_ms;
    keeper->restarts.unserved = 0;
    log_info("%s: worker %d serves, %" PRIu64 ".%03u ms after it was started", keeper_path(keeper),
             (int)keeper->worker, resumed->value / 1000, (unsigned)(resumed->value % 1000));
    keeper_end_trial(keeper);
    if (keeper->is_taken_over) {
        keeper->is_taken_over = false;
        reopen_audit(keeper); /* the former keeper's child may not have done it */
        announce(keeper);
    }
}

static void on_prepared(struct keeper *keeper, const struct wire_message *prepared)
{
    const struct keeper_setup *setup = keeper->setup;
    if (keeper->is_mounted) {
        pass_all(keeper);
        return;
    }
    int error = keeper->end_ms ? -ECANCELED : open_gms_sockets(keeper, prepared);

    if (!error)
        error = attach_mount(setup->mountpoint, setup->options->vmm.backend, setup->allow_other,
                             &keeper->fuse_fd, &keeper->mount);
    if (error) {
        keeper->status = 1;
        end_in_order(keeper);
        return;
    }
    keeper->is_mounted = true;
    pass_all(keeper);
    tell_gms_sockets(keeper);
}

static void on_unmount_asked(struct keeper *keeper)
{
    if (keeper->unmounter > 0 || keeper->is_detached || keeper->end_ms)
        return;
    log_info("%s: a client asks for the unmount", keeper_path(keeper));
    file_close_fd(&keeper->listen_fd);
    /* A bound socket may keep the mount busy, in any process that holds it. */
    keeper_store_update(keeper);
    keeper->unmounter = attach_start_unmount(keeper_path(keeper), false);
    if (keeper->unmounter < 0) {
        log_error("%s: cannot start a process to unmount: %s", keeper_path(keeper),
                  strerror(errno));
        start_bind(keeper);
    }
}

static void on_unmounter_gone(struct keeper *keeper, int status)
{
    keeper->unmounter = -1;
    if (status == 0)
        return; /* the change of the mount table does the rest */
    log_warning("%s: not unmounted, a process holds a file in it (fuser -vm %s shows which)",
                keeper_path(keeper), keeper_path(keeper));
    start_bind(keeper);
}

/* ---- events ------------------------------------------------------------------------------ */

/* Returns true if the message has not arrived yet, or can be received later. */
static bool will_come_again(int error)
{
    return error == -EAGAIN || error == -ENOMEM || error == -ENOBUFS;
}

bool keeper_on_control(struct keeper *keeper)
{
    struct wire_message message;
    int fd;
    int error = wire_receive(keeper->control_fd, &message, &fd);

    if (!error && message.type == WIRE_VISITOR && fd >= 0) {
        keeper_on_introduced(keeper, message.id, fd);
        return true;
    }
    if (error == -EMFILE && message.type == WIRE_PREPARED)
        error = 0; /* it works without a lifeline */
    if (!error && message.type == WIRE_PREPARED && fd >= 0)
        keeper_trust_lifeline(keeper, fd);
    else if (fd >= 0)
        close(fd); /* no other message on this channel has one */
    if (will_come_again(error))
        return false;
    if (error) {
        file_close_fd(&keeper->control_fd);
        return false;
    }
    switch (message.type) {
    case WIRE_PREPARED:
        on_prepared(keeper, &message);
        break;
    case WIRE_READY:
        start_bind(keeper);
        break;
    case WIRE_RESUMED:
        on_resumed(keeper, &message);
        break;
    case WIRE_UNMOUNT:
        on_unmount_asked(keeper);
        break;
    case WIRE_TRACE:
        rotate_trace(keeper);
        break;
    case WIRE_ENDED:
        keeper->files_lost = message.id;
        break;
    default:
        log_error("%s: the worker sent a message of unknown type %u", keeper_path(keeper),
                  message.type);
    }
    return true;
}

static void drop_batch(struct keeper *keeper, const struct wire_batch *batch)
{
    for (size_t i = 0; i < batch->head.value; i++) {
        backings_remove(&keeper->backings, keeper->fuse_fd, batch->memories[i].id);
        holdings_drop(&keeper->holdings, batch->memories[i].id);
    }
}

/* Takes the descriptors: holds all of them, or none. */
static int keep_batch(struct keeper *keeper, const struct wire_batch *batch, const int *fds)
{
    struct holdings *holdings = &keeper->holdings;
    size_t count = (size_t)batch->head.value, kept = 0;
    int error = 0;

    while (kept < count && !error) {
        const struct wire_memory *memory = &batch->memories[kept];
        backings_remove(&keeper->backings, keeper->fuse_fd, memory->id);
        error = holdings_add(holdings, memory->id, fds[kept], memory->bytes);
        kept++;
    }
    if (!error)
        return 0;
    for (size_t i = 0; i < kept; i++)
        holdings_drop(holdings, batch->memories[i].id);
    for (size_t i = kept; i < count; i++)
        close(fds[i]);
    return error;
}

/* Registers the file that this keeper holds itself, by a read-only descriptor, or ends that. */
static int back(struct keeper *keeper, const struct wire_memory *memory, uint64_t *number)
{
    int fd = holdings_find_readonly(&keeper->holdings, memory->id);
    uint32_t made = 0;
    int error = fd < 0 ? -ENOENT : 0;

    if (memory->bytes == WIRE_BACK_ENDS)
        backings_remove(&keeper->backings, keeper->fuse_fd, memory->id);
    else if (!error)
        error = backings_add(&keeper->backings, keeper->fuse_fd, memory->id, fd, &made);
    *number = made;
    return error;
}

/* Carries out a batch whose descriptors, if any, belong to this call. */
static void do_batch(struct keeper *keeper, const struct wire_batch *batch, const int *fds,
                     struct wire_message *answer)
{
    switch (batch->head.type) {
    case WIRE_DROP: /* it is answered, because the memory is free only then */
        drop_batch(keeper, batch);
        break;
    case WIRE_BACK:
        answer->error = back(keeper, &batch->memories[0], &answer->value);
        break;
    default:
        answer->error = keep_batch(keeper, batch, fds);
    }
}

/* Answers a helper, which waits for it without a limit. A stopped worker reads no answer, and the
 * keeper must not wait for that for long. */
static void answer_helper(struct keeper *keeper, const struct wire_message *answer)
{
    struct pollfd helper = {.fd = keeper->keep_fd, .events = POLLOUT};
    int error = wire_send(keeper->keep_fd, answer, -1);

    if (error == -EAGAIN) {
        poll(&helper, 1, ANSWER_MS);
        error = wire_send(keeper->keep_fd, answer, -1);
    }
    if (error && error != -EPIPE) /* SIGCHLD reports the end of the worker */
        log_error("%s: worker %d takes no answer: %s", keeper_path(keeper), (int)keeper->worker,
                  strerror(-error));
}

static bool is_known_batch(const struct wire_batch *batch)
{
    uint32_t type = batch->head.type;

    return type == WIRE_KEEP || type == WIRE_DROP || (type == WIRE_BACK && batch->head.value == 1);
}

bool keeper_on_keep(struct keeper *keeper)
{
    struct wire_batch batch;
    int fds[WIRE_BATCH_MAX];
    int error = wire_receive_batch(keeper->keep_fd, &batch, fds);

    if (will_come_again(error))
        return false;
    if (!error && !is_known_batch(&batch))
        error = -EPROTO;
    if (error && error != -EMFILE) {
        if (error != -EPIPE) /* SIGCHLD reports the end of the worker */
            log_error("%s: cannot receive from the worker's helpers: %s", keeper_path(keeper),
                      strerror(-error));
        file_close_fd(&keeper->keep_fd);
        return false;
    }
    struct wire_message answer = {.type = WIRE_ACK, .id = batch.head.id};
    if (error)
        answer.error = error;
    else
        do_batch(keeper, &batch, fds, &answer);
    if (answer.error && batch.head.type == WIRE_KEEP)
        log_error("%s: cannot hold the descriptors of memory or of a connection: %s",
                  keeper_path(keeper), strerror(-answer.error));
    fdstore_settle(&keeper->store);
    if (keeper->is_detached)
        holdings_drop_unread(&keeper->holdings);
    /* Else it was sent without a question (keep_add_ahead), and unread answers would fill the
     * socket. */
    if (answer.id)
        answer_helper(keeper, &answer);
    return true;
}

void keeper_on_mounts(struct keeper *keeper)
{
    if (!keeper->is_mounted || keeper->is_detached || mountinfo_has(&keeper->mount))
        return;
    log_info("%s: unmounted", keeper_path(keeper));
    keeper->is_detached = true;
    gms_sockets_close(&keeper->gms); /* no client can wait at a socket that nothing serves */
    file_close_fd(&keeper->listen_fd);
    holdings_drop_unread(&keeper->holdings);
    keeper_tell_worker(keeper, WIRE_DETACHED, -1);
    keeper_store_update(keeper);
}

static void reap_strangers(struct keeper *keeper)
{
    siginfo_t child = {0};

    /* Reaps every orphan of a living worker that exits. */
    while (waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid > 0 &&
           !keeper_is_own(keeper, child.si_pid))
        waitid(P_PID, (id_t)child.si_pid, &child, WEXITED);
}

static void on_children(struct keeper *keeper)
{
    int status;

    if (keeper->unmounter > 0 && waitpid(keeper->unmounter, &status, WNOHANG) > 0)
        on_unmounter_gone(keeper, status);
    if (keeper->worker > 0 && waitpid(keeper->worker, &status, WNOHANG) > 0) {
        keeper->worker = -1;
        keeper->worker_status = status;
    }
    keeper_reap_dead(keeper);
    reap_strangers(keeper);
}

void keeper_on_signal(struct keeper *keeper)
{
    struct signalfd_siginfo info;

    if (read(keeper->signal_fd, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD) {
        on_children(keeper);
    } else if (info.ssi_signo == SIGHUP) {
        reopen_audit(keeper);
    } else if (!keeper->end_ms) {
        log_info("%s: %s from process %u, ending", keeper_path(keeper),
                 info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM", info.ssi_pid);
        end_in_order(keeper);
    }
}
