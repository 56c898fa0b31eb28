/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot - has the journal's snapshots written, while the worker goes on serving
 *
 * A child of the worker has a copy of the state as it was at the fork, encodes and writes it, and
 * ends; the loop is held up for the fork alone. Where that fails, the journal goes on growing until
 * the next try. One thread: the loop's.
 */
#ifndef GMSFS_DAEMON_SNAPSHOT_H
#define GMSFS_DAEMON_SNAPSHOT_H

#include "core/core.h"
#include "daemon/loop.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <sys/types.h>

struct snapshot {
    struct loop *loop;
    struct journal *journal;
    pid_t child;              /* 0: none */
    struct event_watch watch; /* its pidfd */
    uint64_t retry_ms;        /* not before, where others are refused for want of it */
};

void snapshot_init(struct snapshot *snapshot, struct loop *loop, struct journal *journal);
/* After a step, its transaction published: begins one if it is time. True: it did, and what is not
 * of the state has to be noted anew. */
bool snapshot_step(struct snapshot *snapshot, const struct core *core);
/* None is under way when it returns. */
void snapshot_stop(struct snapshot *snapshot);

#endif
