/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_workers - kills the workers of random_ops' mounts, at any moment
 *
 * Another worker continues each time, so clients must notice nothing but a pause. Included by
 * random_ops.c alone, of which it is a part.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_WORKERS_H
#define GMSFS_TESTS_TOOLS_RANDOM_WORKERS_H

#include "random_targets.h"

#include <signal.h>

static int worker_kills;

/* Returns false if there is none at the moment. */
static inline bool kill_worker(void)
{
    static pid_t last[MAX_KEEPERS];
    int keeper = (int)below((uint64_t)keeper_count);
    pid_t worker = worker_of(keepers[keeper]);

    if (!worker || worker == last[keeper] || kill(worker, SIGKILL) != 0)
        return false;
    last[keeper] = worker;
    worker_kills++;
    return true;
}

#endif
