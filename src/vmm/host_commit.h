/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_commit - pages of files in memory, made before anybody touches them
 *
 * A page that the machine or its cgroup does not have is an errno here, and a SIGBUS or the OOM
 * killer later. For host.c. Any thread; 0 or a negative errno.
 */
#ifndef GMSFS_VMM_HOST_COMMIT_H
#define GMSFS_VMM_HOST_COMMIT_H

#include "vmm/headroom.h"

#include <pthread.h>
#include <stdint.h>

struct host_commit {
    struct headroom *headroom;
    uint64_t hugepage_bytes; /* 0: ordinary pages */
    /* Bytes that threads of ours have been granted and are committing at this moment: what the
     * machine's numbers show of them is not known. */
    pthread_mutex_t mutex; /* over pending_bytes; a leaf: nothing else is locked under it */
    pthread_cond_t finished;
    uint64_t pending_bytes;
};

/* To be closed also where it failed. */
int host_commit_open(const char *root, struct host_commit *c);
void host_commit_close(struct host_commit *c);
/* -EFBIG: beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends a process. */
int host_commit_check_limit(uint64_t bytes);
/* -ENOMEM: better to refuse now than to make most of it and then give it back. */
int host_commit_check_room(struct host_commit *c, uint64_t bytes);
/* Makes what is not there of a file's bytes from..to. -ENOMEM: some may be there; the caller undoes
 * that. */
int host_commit_make(struct host_commit *c, int fd, uint64_t from, uint64_t to);

#endif
