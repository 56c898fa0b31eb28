/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process - who is behind a thread id
 *
 * A caller is blocked while it is looked at, and one in the middle of execve(2), which closes its
 * O_CLOEXEC files, holds its exec_update_lock: newer kernels make /proc/PID/stat (and environ, mem,
 * ...) wait for that lock, so reading it would hang both (seen on 6.18.44). So only
 * PIDFD_GET_INFO (Linux 6.13), /proc/TID/status and comm are asked, which do not wait, and a
 * process is told from a later one with the same number by the inode of its pidfd, which is never
 * used again (Linux 6.9). On older kernels it is the start time in `stat`. The ioctl is there
 * because it takes a microsecond and the text of `status` ten, for each ancestor, at each open of a
 * lock.
 *
 * The parsers are pure (and tested as such). A client chooses its own name, so nothing here trusts
 * what it looks like. Loop's thread.
 */
#ifndef GMSFS_DAEMON_PROCESS_H
#define GMSFS_DAEMON_PROCESS_H

#include "service/service.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct process_status {
    uint64_t pid;    /* thread group id */
    uint64_t parent; /* 0: none that is visible */
    char comm[CORE_COMM_BYTES];
};

/* /proc/TID/status; `text` is terminated at text[bytes]. -EINVAL */
int process_parse_status(const char *text, size_t bytes, struct process_status *status);
/* The start time, in clock ticks since boot, in /proc/PID/stat. -EINVAL */
int process_parse_start(const char *text, size_t bytes, uint64_t *start);

/* What tells this process from others that had or will have its number; `pidfd` is one of it. */
int process_read_start(uint64_t pid, int pidfd, uint64_t *start);
/* -ESRCH: no such process */
int process_open(uint64_t pid, int *pidfd);
/* Fills processes (itself, then its ancestors, pid 1 excluded, `max` in all) and comm;
 * process_count 0 if `tid` is 0, gone or not visible. uid and gid stay as they are. -EMFILE,
 * -ENFILE, -ENOMEM: it cannot be looked up now; process_count is 0. */
int process_resolve(uint32_t tid, size_t max, struct service_caller *caller);
/* The same of who connected to this unix socket: it waits for nobody, so it may be gone and its
 * number another's; it is found only if it is still itself. (Before Linux 6.5, which lacks
 * SO_PEERPIDFD, that cannot be told, and whoever has the number by now is found.) */
int process_resolve_peer(int connection, size_t max, struct service_caller *caller);
/* Whoever connected has exited, reaped or not. False where that cannot be told. */
bool process_peer_has_exited(int connection);
/* Of a pidfd: the same of its process. */
bool process_has_exited(int pidfd);

#endif
