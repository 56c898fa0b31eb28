/* SPDX-License-Identifier: Apache-2.0 */
/* Tools that all files of the keeper use. */
#include "daemon/keeper_internal.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void keeper_send(struct keeper *keeper, const struct wire_message *message, int passed_fd)
{
    int error = keeper->control_fd >= 0 ? wire_send(keeper->control_fd, message, passed_fd)
                                        : -EPIPE; /* there is no worker at the moment */

    if (error && error != -EPIPE) /* SIGCHLD reports the end of the worker */
        log_error("%s: cannot send a message to the worker: %s", keeper->setup->mountpoint,
                  strerror(-error));
}

void keeper_tell_worker(struct keeper *keeper, uint32_t type, int passed_fd)
{
    struct wire_message message = {.type = type};

    keeper_send(keeper, &message, passed_fd);
}

bool keeper_is_left_dead(const struct keeper *keeper, pid_t pid)
{
    for (size_t i = 0; i < keeper->dead_count; i++)
        if (keeper->dead[i] == pid)
            return true;
    return false;
}

bool keeper_is_own(const struct keeper *keeper, pid_t child)
{
    return child == keeper->worker || child == keeper->binder.pid || child == keeper->tracer.pid ||
           child == keeper->auditor.pid || child == keeper->unmounter ||
           keeper_is_left_dead(keeper, child) ||
           child_is_left_behind(child); /* the child that woke the device (have_device_woken) */
}

void keeper_describe_end(int status, char *text, size_t room)
{
    if (WIFSIGNALED(status))
        snprintf(text, room, "was killed by signal %d (%s)%s", WTERMSIG(status),
                 strsignal(WTERMSIG(status)), WCOREDUMP(status) ? ", core dumped" : "");
    else if (WEXITSTATUS(status) == 0)
        snprintf(text, room, "found the connection aborted (/sys/fs/fuse/connections)");
    else
        snprintf(text, room, "gave up with exit status %d, see above", WEXITSTATUS(status));
}

void keeper_note_recovery(struct fs_ledger *ledger, const char *cause)
{
    if (!ledger->recovery.noticed_us || ledger->recovery.took_us) /* else it is the same recovery */
        ledger->recovery =
            (struct fs_recovery){.noticed_us = clock_now_us(), .wall_ms = clock_wall_ms()};
    snprintf(ledger->recovery.cause, sizeof ledger->recovery.cause, "%s", cause);
}
