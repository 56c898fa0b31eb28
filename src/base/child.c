/* SPDX-License-Identifier: Apache-2.0 */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 200 /* to wait for the end of a killed child */

struct child {
    pid_t pid;
    int pidfd;          /* -1 if the kernel has none */
    struct child *next; /* in left_behind */
};

static struct child *left_behind;

bool child_is_over(struct child *child, int *status)
{
    pid_t got;

    do
        got = waitpid(child->pid, status, WNOHANG);
    while (got < 0 && errno == EINTR);
    if (got == 0)
        return false;
    if (child->pidfd >= 0)
        close(child->pidfd);
    free(child);
    return true;
}

static void child_reap_left(void)
{
    struct child **at = &left_behind, *next;

    while (*at) {
        next = (*at)->next;
        if (child_is_over(*at, NULL))
            *at = next;
        else
            at = &(*at)->next;
    }
}

/* The number stays the child's until it is waited for; an ignored SIGCHLD would free it at once. */
static int child_fork(struct child *child)
{
    struct sigaction known;

    if (sigaction(SIGCHLD, NULL, &known) == 0 && known.sa_handler == SIG_IGN)
        signal(SIGCHLD, SIG_DFL);
    child->pid = fork();
    if (child->pid < 0)
        return -errno;
    if (child->pid > 0)
        child->pidfd = (int)syscall(SYS_pidfd_open, child->pid, 0);
    return 0;
}

int child_start(struct child **child, child_run *run, const void *context, int *from)
{
    struct child *started = calloc(1, sizeof(*started));
    int ends[2], error;

    child_reap_left();
    if (!started)
        return -ENOMEM;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error = -errno;
        free(started);
        return error;
    }
    error = child_fork(started);
    if (!error && started->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        run(context, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (error) {
        close(ends[0]);
        free(started);
        return error;
    }
    *child = started;
    *from = ends[0];
    return 0;
}

int child_ask(child_run *run, const void *context, int timeout_ms, int *number)
{
    struct pollfd said = {.events = POLLIN};
    struct child *child = NULL;
    int error = child_start(&child, run, context, &said.fd);

    if (error)
        return error;
    if (poll(&said, 1, timeout_ms) <= 0)
        error = -ETIMEDOUT;
    else if (read(said.fd, number, sizeof(*number)) != sizeof(*number))
        error = -ESRCH;
    close(said.fd);
    child_end(child);
    return error;
}

bool child_is_left_behind(pid_t pid)
{
    child_reap_left();
    for (const struct child *child = left_behind; child; child = child->next)
        if (child->pid == pid)
            return true;
    return false;
}

void child_forget_left(void)
{
    while (left_behind) {
        struct child *child = left_behind;

        left_behind = child->next;
        if (child->pidfd >= 0)
            close(child->pidfd);
        free(child);
    }
}

static void child_wait(const struct child *child)
{
    struct pollfd over = {.fd = child->pidfd, .events = POLLIN};

    if (child->pidfd >= 0)
        poll(&over, 1, END_MS);
}

int child_get_pidfd(const struct child *child)
{
    return child->pidfd;
}

void child_end_group(struct child *child)
{
    /* Not waited for yet, so no other process or group can have its number. */
    if (child)
        kill(-child->pid, SIGKILL);
    child_end(child);
}

void child_end(struct child *child)
{
    child_reap_left();
    if (!child || child_is_over(child, NULL))
        return;
    kill(child->pid, SIGKILL);
    child_wait(child);
    if (child_is_over(child, NULL))
        return;
    child->next = left_behind;
    left_behind = child;
}
