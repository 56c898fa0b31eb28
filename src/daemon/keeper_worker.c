/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a worker, by fork alone or as another program. */
#include "daemon/keeper_internal.h"

#include "base/file_io.h"
#include "daemon/at_work.h"
#include "daemon/wire.h"
#include "daemon/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int keeper_start_worker(struct keeper *keeper)
{
    int control[2] = {-1, -1}, keep[2] = {-1, -1};
    struct worker_setup setup = {
        .options = keeper->setup->options,
        .mountpoint = keeper->setup->mountpoint,
        .allow_other = keeper->setup->allow_other,
        .keeper = getpid(),
        .ledger = keeper->ledger,
        .journal = keeper->journal,
        .gms_memory_fd = keeper->gms_memory_fd,
        .holdings = &keeper->holdings,
    };
    int error = wire_pair(control);

    at_work_clear(keeper->ledger);
    keeper->restarts.kills = keeper_read_kills();
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
        keeper_expose_worker();
        file_close_fd(&keeper->signal_fd);
        file_close_fd(&keeper->mounts_fd);
        file_close_fd(&keeper->audit_fd);
        file_close_fd(&keeper->trace_fd);
        file_close_fd(&keeper->visit.fd);
        file_close_fd(&keeper->lifeline_fd);
        file_close_fd(&keeper->fuse_fd); /* messages bring these, as for the first worker */
        file_close_fd(&keeper->listen_fd);
        file_close_fd(&keeper->binder.fd);
        file_close_fd(&keeper->tracer.fd);
        file_close_fd(&keeper->auditor.fd);
        file_close_fd(&keeper->backings.fd);
        gms_sockets_forget(&keeper->gms);
        fdstore_close(&keeper->store);
        relay_close(keeper->setup->relay);
        if (keeper->setup->ready_fd >= 0 && (!keeper->is_serving || keeper->is_taken_over))
            close(keeper->setup->ready_fd);
        setup.control_fd = control[1];
        setup.keep_fd = keep[1];
        if (keeper->program.fd < 0) {
            file_close_fd(&keeper->ledger_fd); /* it is mapped */
            exit(worker_main(&setup));
        }
        keeper_execute_worker(keeper, control[1], keep[1]);
        _exit(1);
    }
    keeper_expect_worker(keeper);
    file_close_fd(&control[1]);
    file_close_fd(&keep[1]);
    keeper->control_fd = control[0];
    keeper->keep_fd = keep[0];
    if (!error) {
        fcntl(keeper->control_fd, F_SETFL, O_NONBLOCK);
        fcntl(keeper->keep_fd, F_SETFL, O_NONBLOCK);
    }
    return error;
}
