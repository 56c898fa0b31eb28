/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - a process of our own that looks at what may hang, and is left behind when it does
 *
 * For whoever must not hang: a system call on a file system that does not answer cannot always be
 * ended, but a process can be given up. A child is its starter's until it has been waited for, so
 * no signal goes to a stranger that has its number by now, and no zombie stays: one that cannot be
 * ended yet is waited for when others are started or ended. For one thread; the child ends with it.
 */
#ifndef GMSFS_BASE_CHILD_H
#define GMSFS_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child;

/* What the child does. It says what it has to say on `to`, and its end is that of the process. */
typedef void child_run(const void *context, int to);

/* `from`: where its words come out; the caller closes it. 0 or a negative errno. */
int child_start(struct child **child, child_run *run, const void *context, int *from);

/* Starts a child that writes one int, and ends it. -ETIMEDOUT: it wrote none in time; -ESRCH: it
 * ended without; or as child_start. */
int child_ask(child_run *run, const void *context, int timeout_ms, int *number);

/* Ends it, if it has not ended; never waits for long. NULL is allowed. */
void child_end(struct child *child);

/* The same, and with it all of the process group that the child has made of itself. */
void child_end_group(struct child *child);

/* One that was ended, could not be yet, and is waited for later. */
bool child_is_left_behind(pid_t pid);

/* Those are waited for no more, for this process is about to close what it has open, or to fork. */
void child_forget_left(void);

/* For poll(2): readable once it has ended. -1: this kernel has no such thing. */
int child_get_pidfd(const struct child *child);

/* If it has ended: its status, as waitpid(2) tells it, and nothing of it is left. */
bool child_is_over(struct child *child, int *status);

#endif
