/* SPDX-License-Identifier: Apache-2.0 */
/*
 * child - a child process for calls that may hang, which is left behind if it does
 *
 * For callers that must not hang: a system call on a dead file system cannot always be interrupted,
 * but a process can be abandoned. The parent keeps a child's number until it has waited for it, so
 * that no signal goes to another process with a reused number. No zombie stays: a child that cannot
 * be ended yet is waited for when other children start or end. For one thread; the child ends with
 * it.
 */
#ifndef GMSFS_BASE_CHILD_H
#define GMSFS_BASE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

struct child;

/* Runs in the child: writes its result to `to`; the process ends when it returns. */
typedef void child_run(const void *context, int to);

/* Starts a child; its result is read from `from`, which the caller closes. 0 or a negative
 * errno. */
int child_start(struct child **child, child_run *run, const void *context, int *from);

/* Starts a child that writes one int, reads that, and ends the child. -ETIMEDOUT: no int in time;
 * -ESRCH: the child ended without it; or as child_start. */
int child_ask(child_run *run, const void *context, int timeout_ms, int *number);

/* Ends the child if it still runs; waits at most a moment. NULL is allowed. */
void child_end(struct child *child);

/* The same for the child's process group; the child has made itself its leader. */
void child_end_group(struct child *child);

/* True for a child that was killed, has not ended yet, and is waited for later. */
bool child_is_left_behind(pid_t pid);

/* Stops waiting for such children; call before this process closes all descriptors, or forks. */
void child_forget_left(void);

/* Returns a descriptor for poll(2), readable once the child has ended. -1: this kernel has no
 * pidfds. */
int child_get_pidfd(const struct child *child);

/* True if the child has ended: sets its status as waitpid(2) does, and frees it. */
bool child_is_over(struct child *child, int *status);

#endif
