/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process - who is behind a thread id: /proc as the daemon sees it
 *
 * The parsers are pure (and tested as such); the rest reads /proc. A client chooses its own name,
 * so nothing here trusts what stands between the parentheses of `stat`. Loop's thread.
 */
#ifndef GMSFS_DAEMON_PROCESS_H
#define GMSFS_DAEMON_PROCESS_H

#include "store/service.h"

#include <stddef.h>
#include <stdint.h>

struct process_stat {
    uint64_t parent; /* 0: none that is visible */
    uint64_t start;  /* clock ticks since boot */
    char comm[CORE_COMM_BYTES];
};

/* /proc/PID/stat. `text` is terminated at text[bytes]. -EINVAL */
int process_parse_stat(const char *text, size_t bytes, struct process_stat *stat);
/* "Tgid:" of /proc/TID/status. -EINVAL */
int process_parse_tgid(const char *text, size_t bytes, uint64_t *tgid);

/* -ESRCH: no such process */
int process_read_stat(uint64_t pid, struct process_stat *stat);
/* Fills processes (itself, then its ancestors, pid 1 excluded) and comm; process_count 0 if `tid`
 * is 0, gone or not visible. uid and gid stay as they are. */
void process_resolve(uint32_t tid, struct service_caller *caller);

#endif
