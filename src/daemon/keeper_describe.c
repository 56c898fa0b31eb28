/* SPDX-License-Identifier: Apache-2.0 */
/* Describes a mount for another worker, another keeper or the service manager. */
#include "daemon/keeper_internal.h"

#include "base/file_io.h"

#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>

int keeper_describe(const struct keeper *keeper, int control_fd, int keep_fd,
                    struct handover *handover)
{
    const struct keeper_setup *setup = keeper->setup;

    handover_init(handover);
    if (setup->argc > (int)HANDOVER_MAX_ARGUMENTS)
        return -E2BIG;
    snprintf(handover->abi, sizeof handover->abi, "%s", keeper->program.abi);
    snprintf(handover->mountpoint, sizeof handover->mountpoint, "%s", setup->mountpoint);
    snprintf(handover->gms_dir, sizeof handover->gms_dir, "%s", setup->options->gms_dir);
    handover->allow_other = setup->allow_other;
    handover->is_detached = keeper->is_detached;
    handover->argc = setup->argc;
    for (int i = 0; i < setup->argc; i++)
        handover->argv[i] = setup->argv[i];
    handover->fds[HANDOVER_FUSE] = keeper->fuse_fd;
    handover->fds[HANDOVER_LISTENER] = keeper->listen_fd;
    handover->fds[HANDOVER_AUDIT] = keeper->audit_fd;
    handover->fds[HANDOVER_TRACE] = keeper->trace_fd;
    handover->fds[HANDOVER_LEDGER] = keeper->ledger_fd;
    handover->fds[HANDOVER_GMS_MEMORY] = keeper->gms_memory_fd;
    handover->fds[HANDOVER_CONTROL] = control_fd;
    handover->fds[HANDOVER_KEEP] = keep_fd;
    if (control_fd < 0) /* no worker gets the table */
        handover->fds[HANDOVER_BACKINGS] = keeper->backings.fd;
    handover->mount = keeper->mount;
    handover->gms = keeper->gms;
    handover->journal = keeper->journal;
    handover->holdings = keeper->holdings;
    return 0;
}

int keeper_write_text(const void *head, size_t head_size, const struct handover_text *text)
{
    int fd = memfd_create("handover", MFD_CLOEXEC);
    int error = fd < 0 ? -errno : file_write_at(fd, head, head_size, 0);

    if (!error)
        error = file_write_at(fd, text->bytes, text->size, head_size);

    if (!error)
        return fd;
    file_close_fd(&fd);
    return error;
}
