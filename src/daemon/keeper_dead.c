/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dead workers that cannot be reaped: one of their threads waits in the kernel for an event that no
 * signal ends. For example, for the answer to a request of this very mount: a process closes its
 * files as it ends (FUSE_FLUSH), and clients send files of the mount to be registered as regions.
 * Only the next worker answers. So it is started beside the remains of the last one, which run no
 * instruction of ours any more.
 */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/log.h"
#include "daemon/refuse.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_MS              1000u
#define GRACE_MS             500u  /* for the kernel to free memory and descriptors */
#define LAST_MS              2000u /* for the remaining ones, at the end of the mount */
#define LAST_TURN_MS         5u
#define STAT_BYTES           1024u
#define FLAG_EXITING         0x4u /* PF_EXITING of the kernel's sched.h, in proc_pid_stat(5) */
#define STATE_IS_OVER(state) ((state) == 'Z' || (state) == 'X')

/* Its leader has ended, so all its threads were killed. `status` is as waitpid gives it, if
 * known. */
bool keeper_is_dead(pid_t pid, int *status)
{
    char path[64], text[STAT_BYTES] = "", state = 0;
    unsigned long flags = 0;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    SCOPED_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    const char *name_end = strrchr(text, ')'), *last = strrchr(text, ' ');
    if (bytes <= 0 || !name_end || !last ||
        sscanf(name_end + 1, " %c %*d %*d %*d %*d %*d %lu", &state, &flags) != 2)
        return false;
    *status = atoi(last);
    return STATE_IS_OVER(state) || flags & FLAG_EXITING;
}

static void leave_dead(struct keeper *keeper, int status)
{
    if (waitpid(keeper->worker, &keeper->worker_status, WNOHANG) > 0) {
        keeper->worker = -1; /* it was reaped after all */
        return;
    }
    bool may_be_told = status || keeper->end_ms || keeper->is_detached;

    log_warning(
        "%s: worker %d is dead but cannot be reaped: one of its threads waits in the kernel "
        "(ps -L -o stat,wchan -p %d shows where); the mount continues without it",
        keeper->setup->mountpoint, (int)keeper->worker, (int)keeper->worker);
    keeper->dead[keeper->dead_count++] = keeper->worker;
    keeper->worker_status = may_be_told ? status : SIGKILL;
    keeper->worker = -1;
}

void keeper_expect_worker(struct keeper *keeper)
{
    file_close_fd(&keeper->lifeline_fd);
    keeper->look_ms = clock_now_ms() + LOOK_MS;
    keeper->seems_dead = false;
}

void keeper_trust_lifeline(struct keeper *keeper, int fd)
{
    file_close_fd(&keeper->lifeline_fd);
    keeper->lifeline_fd = fd;
    keeper->look_ms = UINT64_MAX;
}

void keeper_on_lifeline(struct keeper *keeper)
{
    file_close_fd(&keeper->lifeline_fd);
    keeper->look_ms = clock_now_ms() + GRACE_MS; /* usually it is reaped before */
}

void keeper_look_at_worker(struct keeper *keeper)
{
    int status = 0;

    if (keeper->worker <= 0 || clock_now_ms() < keeper->look_ms)
        return;
    bool is_dead = keeper_is_dead(keeper->worker, &status);
    if (is_dead && keeper->seems_dead && keeper->dead_count < KEEPER_MAX_DEAD)
        leave_dead(keeper, status);
    keeper->seems_dead = is_dead;
    keeper->look_ms = clock_now_ms() + (is_dead ? GRACE_MS : LOOK_MS);
}

void keeper_reap_dead(struct keeper *keeper)
{
    size_t left = 0;

    for (size_t i = 0; i < keeper->dead_count; i++) {
        if (waitpid(keeper->dead[i], NULL, WNOHANG) == 0)
            keeper->dead[left++] = keeper->dead[i];
        else
            log_info("%s: dead worker %d was reaped", keeper->setup->mountpoint,
                     (int)keeper->dead[i]);
    }
    keeper->dead_count = left;
}

/* Reads the parent. Returns false if the process has gone, or is a zombie. */
static bool read_parent(pid_t pid, pid_t *parent)
{
    char path[64], line[128], state = 'X';
    int number = 0;

    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    SCOPED_FILE FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "State: %c", &state) != 1 && sscanf(line, "PPid: %d", &number) == 1)
            break;
    *parent = number;
    return !STATE_IS_OVER(state);
}

pid_t keeper_search_orphan(const struct keeper *keeper)
{
    DIR *processes = opendir("/proc");
    struct dirent *entry;
    pid_t found = 0, parent;

    while (processes && !found && (entry = readdir(processes))) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && !keeper_is_own(keeper, pid) && read_parent(pid, &parent) &&
            (parent == getpid() || keeper_is_left_dead(keeper, parent)))
            found = pid;
    }
    if (processes)
        closedir(processes);
    return found;
}

/* Answers the requests that they wait for; else the mount would not end either. */
void keeper_end_dead(struct keeper *keeper)
{
    uint64_t until_ms = clock_now_ms() + LAST_MS;

    keeper_reap_dead(keeper);
    while (keeper->dead_count > 0 && clock_now_ms() < until_ms) {
        refuse_all(keeper->fuse_fd, keeper->ledger);
        clock_pause_ms(LAST_TURN_MS);
        keeper_reap_dead(keeper);
    }
}
