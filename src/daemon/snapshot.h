/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot - writes snapshots of the state for the journal while the worker serves
 *
 * A child of the worker has a copy of the state at the moment of the fork, encodes and writes it,
 * and ends; only the fork delays the loop. A helper frees the memory of a large former snapshot,
 * and no other snapshot begins before; jobs that free other memory, which may hang on a disk, do
 * not delay it. If a snapshot fails, the journal grows until the next try,
 * and each failure in a row doubles the wait for it. One thread: the loop's.
 *
 * When nothing has been written for a while, the journal frees the memory that it took in busier
 * times; it does so too when memory is short. First it makes a snapshot if there is none, or if the
 * last one and the entries since are much larger than the state now.
 */
#ifndef GMSFS_DAEMON_SNAPSHOT_H
#define GMSFS_DAEMON_SNAPSHOT_H

#include "core/core.h"
#include "daemon/helpers.h"
#include "journal/journal.h"
#include "vmm/room.h"

#include <stdbool.h>
#include <sys/types.h>

struct snapshot {
    struct loop *loop;
    struct helpers *helpers;
    struct journal *journal;
    struct room *room;        /* bounds the journal's memory; NULL if it is not bounded */
    pid_t child;              /* 0 if none */
    struct event_watch watch; /* the child's pidfd */
    struct job freeing;       /* of the former snapshot */
    bool is_freeing;
    /* No try before this, where other requests are refused until there is a snapshot. */
    uint64_t retry_ms;
    struct journal_numbers seen; /* the numbers at the last tick */
    uint64_t quiet_since_ms;     /* since when the numbers are unchanged */
    /* Size of the last snapshot made in a quiet time, without its entries. */
    uint64_t base_bytes;
    unsigned failures;         /* failed tries in a row */
    bool lacks_room;           /* the last try found no memory for a snapshot */
    bool is_wanted;            /* nothing is being written, and most of the journal is outdated */
    bool is_tried, is_trimmed; /* since nothing is being written */
};

void snapshot_init(struct snapshot *snapshot, struct loop *loop, struct helpers *helpers,
                   struct journal *journal, struct room *room);
/* Call it after a step whose transaction is published; begins a snapshot if it is time. In the
 * middle of a document (slices of it are ready to be applied) it waits for twice the bytes: each
 * page that a slice writes would be copied for the child, and the end of the document is near.
 * Returns true if a snapshot began: then notes outside the state must be noted again. */
bool snapshot_step(struct snapshot *snapshot, const struct core *core, bool is_amid_document);
/* Call it about once a second. Returns true while it has to be called again. */
bool snapshot_on_tick(struct snapshot *snapshot, const struct core *core, uint64_t now_ms);
/* No snapshot is being written when it returns. */
void snapshot_stop(struct snapshot *snapshot);

#endif
