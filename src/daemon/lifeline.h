/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lifeline - a descriptor that hangs up as soon as the threads of this process end
 *
 * For the worker, which passes it to its keeper. A process whose leader has exited cannot be reaped
 * while one of its threads waits in the kernel, nor are the descriptors that its threads share
 * closed. So one thread that does nothing has a descriptor table of its own, with nothing in it but
 * one end of a pipe: that end is closed when SIGKILL or exit(3) ends the thread.
 */
#ifndef GMSFS_DAEMON_LIFELINE_H
#define GMSFS_DAEMON_LIFELINE_H

/* Starts the thread. Returns the other end of the pipe (POLLHUP tells), which is the caller's, or a
 * negative errno. -ENOSYS: this kernel has no close_range(2) (Linux 5.9 has). Once per process. */
int lifeline_start(void);

#endif
