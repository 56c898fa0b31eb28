/* SPDX-License-Identifier: Apache-2.0 */
/*
 * errand - a child of the keeper that opens a descriptor where the keeper must not wait
 *
 * Binding `.fds` waits for the worker, and a file for its disk. The child ends with the keeper. For
 * attach.c and the keeper's files.
 */
#ifndef GMSFS_DAEMON_ERRAND_H
#define GMSFS_DAEMON_ERRAND_H

#include <sys/types.h>

struct errand {
    pid_t pid; /* -1 if there is none */
    int fd;    /* readable when it has finished; -1 if there is none */
};

#define ERRAND_NONE ((struct errand){-1, -1})

/* Runs in the child, with the keeper's capabilities: opens *fd. Returns 0 or a negative errno. */
typedef int errand_run(const void *argument, int *fd);

/* Makes a child, just forked, ready for the keeper's work; ends it if `parent` has ended. */
void errand_begin_child(pid_t parent);
/* Returns 0 or a negative errno. The child has closed all other descriptors of the keeper. */
int errand_start(struct errand *errand, errand_run *run, const void *argument);
/* Receives the descriptor and ends the child. Returns the error of `run`, or -EPIPE if the child
 * was killed. */
int errand_finish(struct errand *errand, int *fd);

#endif
