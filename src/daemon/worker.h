/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker - the process that serves one mount
 *
 * Forked by the keeper, which it never outlives. Puts memory, stores, FUSE and the loop together.
 * What it holds can be lost without harm to the machine: the keeper cleans up behind it.
 */
#ifndef GMSFS_DAEMON_WORKER_H
#define GMSFS_DAEMON_WORKER_H

#include "daemon/holdings.h"
#include "daemon/options.h"
#include "fs/fs.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <sys/types.h>

/* Of one that goes on as another program: what it inherited by this descriptor. The exit status. */
int worker_main_inherited(int fd);

struct worker_setup {
    const struct daemon_options *options;
    const char *mountpoint;   /* absolute */
    struct fs_ledger *ledger; /* shared with the keeper */
    bool allow_other;
    int control_fd, keep_fd;      /* become the worker's */
    struct journal_files journal; /* the keeper's, inherited */
    int gms_memory_fd;            /* likewise; -1: GMS clients are not served */
    struct holdings *holdings;    /* likewise; the worker takes them */
    pid_t keeper;
};

/* The exit status of one that ended because another is to go on. */
#define WORKER_YIELDED 75

/* Returns the exit status: 0 when the mount went away in order. */
int worker_main(const struct worker_setup *setup);

#endif
