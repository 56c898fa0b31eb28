/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot - has the journal's snapshots written, while the worker goes on serving
 *
 * A child of the worker has a copy of the state as it was at the fork, encodes and writes it, and
 * ends; the loop is held up for the fork alone. Where that fails, the journal goes on growing until
 * the next try, for which each failure in a row waits longer. One thread: the loop's.
 *
 * Once nothing has been written for a while the journal gives back what memory it has of busier
 * times, and so it does where memory is short. Before that it makes a snapshot where there is none
 * yet, or where the last one, and what was written since, are much more than the state is now.
 */
#ifndef GMSFS_DAEMON_SNAPSHOT_H
#define GMSFS_DAEMON_SNAPSHOT_H

#include "core/core.h"
#include "daemon/loop.h"
#include "journal/journal.h"
#include "vmm/room.h"

#include <stdbool.h>
#include <sys/types.h>

struct snapshot {
    struct loop *loop;
    struct journal *journal;
    struct room *room;           /* what the journal takes of it; NULL: there is no bound */
    pid_t child;                 /* 0: none */
    struct event_watch watch;    /* its pidfd */
    uint64_t retry_ms;           /* not before, where others are refused for want of it */
    struct journal_numbers seen; /* at the last tick, */
    uint64_t quiet_since_ms;     /* since when they are the same */
    uint64_t base_bytes;         /* of the last one that was made then, beside the entries */
    unsigned failures;           /* tries in a row that began and failed */
    bool lacks_room;             /* there was no memory for one at the last try */
    bool is_wanted;              /* it is quiet, and most of what the journal has is of the past */
    bool is_tried, is_trimmed;   /* since it is quiet */
};

void snapshot_init(struct snapshot *snapshot, struct loop *loop, struct journal *journal,
                   struct room *room);
/* After a step, its transaction published: begins one if it is time. Amid a document, that is with
 * slices of it ready to be applied, that is at twice the bytes: each page that a slice writes would
 * be copied for the child, and the document's end is near. True: it began, and what is not of the
 * state has to be noted anew. */
bool snapshot_step(struct snapshot *snapshot, const struct core *core, bool is_amid_document);
/* Once a second or so. True: something is to be done at the next ones. */
bool snapshot_on_tick(struct snapshot *snapshot, const struct core *core, uint64_t now_ms);
/* None is under way when it returns. */
void snapshot_stop(struct snapshot *snapshot);

#endif
