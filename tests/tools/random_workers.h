/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_workers - kills what serves the mounts of random_ops, at any moment
 *
 * Another worker goes on each time, so no client may notice anything but a pause. Included by
 * random_ops.c alone, of which it is a part.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_WORKERS_H
#define GMSFS_TESTS_TOOLS_RANDOM_WORKERS_H

#include "random_targets.h"

#include <signal.h>

/* A keeper gives up after five workers that never came to serve: so now and then one has to. */
#define WORKERS_IN_VAIN 3

static int worker_kills;

/* Answered by the worker, as soon as it serves. */
static inline void wait_for_worker(void)
{
    char text[TOOL_TEXT_BYTES];
    ssize_t n = tool_read_text(tool_path("%s/device", mount_dir).text, text, sizeof(text));

    if (n <= 0)
        tool_die("%s/device: %s", mount_dir, strerror((int)-n));
}

/* The n-th keeper serves the n-th mount. */
static inline int first_target_of(int keeper)
{
    int index = 0;

    while (keeper > 0 || !is_first_of_mount(index))
        keeper -= is_first_of_mount(index++);
    return index;
}

/* False: there is none just now. */
static inline bool kill_worker(void)
{
    static struct {
        pid_t last;
        int kills;
    } mounts[MAX_KEEPERS];
    int keeper = (int)below((uint64_t)keeper_count);
    pid_t worker = worker_of(keepers[keeper]);

    if (!worker || worker == mounts[keeper].last || kill(worker, SIGKILL) != 0)
        return false;
    mounts[keeper].last = worker;
    worker_kills++;
    if (++mounts[keeper].kills % WORKERS_IN_VAIN == 0) {
        use_target(first_target_of(keeper));
        wait_for_worker();
    }
    return true;
}

#endif
