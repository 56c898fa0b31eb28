/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/errand.h"

#include "base/file_io.h"
#include "daemon/privileges.h"
#include "daemon/wire.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void errand_begin_child(pid_t parent)
{
    sigset_t none;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    privileges_raise();
}

int errand_start(struct errand *errand, errand_run *run, const void *argument)
{
    int ends[2];
    pid_t parent = getpid();
    int error = wire_pair(ends);

    if (error)
        return error;
    pid_t child = fork();
    if (child == 0) {
        struct wire_message message = {.type = WIRE_LISTENER};
        int fd = -1;
        errand_begin_child(parent);
        /* The keeper's descriptors, above all /dev/fuse, must not stay open in this child. */
        dup2(ends[1], 3);
        close_range(4, ~0u, 0);
        message.error = run(argument, &fd);
        _exit(wire_send(3, &message, fd) ? 1 : 0);
    }
    error = child < 0 ? -errno : 0;
    close(ends[1]);
    if (error)
        close(ends[0]);
    else
        *errand = (struct errand){child, ends[0]};
    return error;
}

int errand_finish(struct errand *errand, int *fd)
{
    struct wire_message message;
    int error = wire_receive(errand->fd, &message, fd);

    file_close_fd(&errand->fd);
    kill(errand->pid, SIGKILL); /* it has finished */
    while (waitpid(errand->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    errand->pid = -1;
    if (!error && message.error)
        error = message.error;
    return !error && *fd < 0 ? -EPROTO : error;
}
