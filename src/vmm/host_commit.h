/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host_commit - allocates pages of files in memory before they are touched
 *
 * A missing page is an errno here, and a SIGBUS or the OOM killer later. For host.c. Any thread; 0
 * or a negative errno.
 */
#ifndef GMSFS_VMM_HOST_COMMIT_H
#define GMSFS_VMM_HOST_COMMIT_H

#include "vmm/headroom.h"

#include <pthread.h>
#include <stdint.h>

struct host_commit {
    struct headroom *headroom;
    uint64_t hugepage_bytes; /* 0: ordinary pages */
    /* Bytes granted to threads of this process that are committing them now: the machine's numbers
     * may include them or not. */
    pthread_mutex_t mutex; /* guards pending_bytes; a leaf: nothing else is locked under it */
    pthread_cond_t finished;
    uint64_t pending_bytes;
};

/* Must be closed even after a failure. */
int host_commit_open(const char *root, struct host_commit *c);
void host_commit_close(struct host_commit *c);
/* -EFBIG: beyond RLIMIT_FSIZE the kernel would send SIGXFSZ, which ends a process. */
int host_commit_check_limit(uint64_t bytes);
/* -ENOMEM: refuses now, instead of making most of it and freeing it again. */
int host_commit_check_room(struct host_commit *c, uint64_t bytes);
/* Makes the missing pages of a file's bytes from..to. -ENOMEM: some may have been made; the caller
 * undoes that. */
int host_commit_make(struct host_commit *c, int fd, uint64_t from, uint64_t to);

#endif
