/* SPDX-License-Identifier: Apache-2.0 */
/*
 * worker - the process that serves one mount
 *
 * Forked by the keeper, which it never outlives. Connects memory, stores, FUSE and the loop. Losing
 * it does not harm the machine: the keeper cleans up behind it.
 */
#ifndef GMSFS_DAEMON_WORKER_H
#define GMSFS_DAEMON_WORKER_H

#include "daemon/holdings.h"
#include "daemon/options.h"
#include "fs/fs.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <sys/types.h>

/* Runs a worker that is another program; `fd` is the handover that it inherited. Returns the exit
 * status. */
int worker_main_inherited(int fd);

struct worker_setup {
    const struct daemon_options *options;
    const char *mountpoint;   /* absolute */
    struct fs_ledger *ledger; /* shared with the keeper */
    bool allow_other;
    int control_fd, keep_fd;      /* belong to the worker from here */
    struct journal_files journal; /* inherited from the keeper */
    int gms_memory_fd;            /* likewise; -1 if GMS clients are not served */
    struct holdings *holdings;    /* likewise; the worker takes them */
    pid_t keeper;
};

/* The exit status of a worker that ended so that another one can continue. */
#define WORKER_YIELDED 75

/* Returns the exit status: 0 if the mount ended in order. */
int worker_main(const struct worker_setup *setup);

#endif
