/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifeline - a descriptor that hangs up as soon as the threads of this process end
 *
 * The worker passes it to its keeper. While one thread of a process waits in the kernel, a leader
 * that has exited cannot be reaped, and the descriptors that the threads share stay open. So one
 * idle thread has a descriptor table of its own, with nothing in it but one end of a pipe: the
 * kernel closes that end when SIGKILL or exit(3) ends the thread.
 */
#ifndef GMSFS_DAEMON_LIFELINE_H
#define GMSFS_DAEMON_LIFELINE_H

/* Starts the thread. Returns the other end of the pipe, which reports POLLHUP and belongs to the
 * caller, or a negative errno. -ENOSYS: this kernel has no close_range(2) (Linux 5.9 has it). Once
 * per process. */
int lifeline_start(void);

#endif
