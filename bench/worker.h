/* SPDX-License-Identifier: Apache-2.0 */
/* worker - the processes of a daemon, for benches that look at them */
#ifndef GMSFS_BENCH_WORKER_H
#define GMSFS_BENCH_WORKER_H

#include <sys/types.h>

#include "bench.h"

/* The first child of a thread that is the process's first, of this name; any name: NULL. 0: none */
BENCH_UNUSED static pid_t worker_find_child(pid_t parent, const char *name)
{
    char path[96], text[256], comm[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[got > 0 ? got : 0] = '\0';
    for (char *at = text; *at; at += strspn(at, " ")) {
        pid_t pid = (pid_t)strtol(at, &at, 10);
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        got = fd < 0 ? -1 : read(fd, comm, sizeof comm - 1);
        if (fd >= 0)
            close(fd);
        if (got > 0 && (!name || (size_t)got == strlen(name) + 1) &&
            (!name || strncmp(comm, name, strlen(name)) == 0))
            return pid;
    }
    return 0;
}

BENCH_UNUSED static pid_t worker_of(pid_t keeper)
{
    pid_t worker = worker_find_child(keeper, "gmsfs-worker");

    if (!worker)
        bench_die("the keeper has no worker", ESRCH);
    return worker;
}

#endif
