/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process - finds the process behind a thread id
 *
 * A caller is blocked while this looks at it. One in the middle of execve(2), which closes its
 * O_CLOEXEC files, holds its exec_update_lock, and newer kernels make /proc/PID/stat (and environ,
 * mem, ...) wait for that lock, so reading it would hang both (seen on 6.18.44). So only
 * PIDFD_GET_INFO (Linux 6.13), /proc/TID/status and comm are read, which do not wait, and the inode
 * of a pidfd, which is never used again (Linux 6.9), tells a process from a later one with the same
 * number. On older kernels it is the start time in `stat`. The ioctl is there because it takes a
 * microsecond and the text of `status` ten, for each ancestor, at each open of a lock.
 *
 * The parsers are pure (and tested as such). A client chooses its own name, so no code here trusts
 * how it looks. For the loop's thread.
 */
#ifndef GMSFS_DAEMON_PROCESS_H
#define GMSFS_DAEMON_PROCESS_H

#include "service/service.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_status {
    uint64_t pid;    /* thread group id */
    uint64_t parent; /* 0 if no parent is visible */
    char comm[CORE_COMM_BYTES];
};

/* Parses /proc/TID/status; text[bytes] must be NUL. -EINVAL */
int process_parse_status(const char *text, size_t bytes, struct process_status *status);
/* Reads the start time, in clock ticks since boot, from /proc/PID/stat. -EINVAL */
int process_parse_start(const char *text, size_t bytes, uint64_t *start);

/* Reads a number that tells this process from earlier and later ones with its pid; `pidfd` refers
 * to the process. */
int process_read_start(uint64_t pid, int pidfd, uint64_t *start);
/* -ESRCH: no such process. */
int process_open(uint64_t pid, int *pidfd);
/* Fills processes (itself, then its ancestors, pid 1 excluded, at most `max`) and comm;
 * process_count is 0 if `tid` is 0, gone or not visible. uid and gid stay as they are. -EMFILE,
 * -ENFILE, -ENOMEM: it cannot be looked up now, and process_count is 0. */
int process_resolve(uint32_t tid, size_t max, struct service_caller *caller);
/* The same for the process that connected to this unix socket. That process is not blocked, so it
 * may have ended and another may have its number; it is found only if it is still itself. (Linux
 * before 6.5 has no SO_PEERPIDFD: there the process that has the number now is found.) */
int process_resolve_peer(int connection, size_t max, struct service_caller *caller);
/* Returns true if the process that connected has exited, reaped or not; false if that cannot be
 * found out. */
bool process_peer_has_exited(int connection);
/* The same for the process of a pidfd. */
bool process_has_exited(int pidfd);

#endif
