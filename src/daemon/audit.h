/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit - every event as a line of a file, a record of the acts of each client
 *
 * The loop's thread hands over lines; a thread of its own writes them, so that a slow or full disk
 * delays nothing else. Lines that do not fit into the queue, or cannot be written, are dropped and
 * counted, and when writing works again a line says how many. The position is noted in memory that
 * outlives the worker: the next worker continues there, and no line is missing or twice in a file
 * that only this mount writes to. (In a pipe the last line may come twice, because it is unknown
 * whether it was written.) The keeper opens the file, because the worker may not be allowed to. The
 * code at each event decides whether it has a line and which client it names (src/core:
 * core_add_event in core_events.c); core/event_line.c renders it, for `events` too.
 */
#ifndef GMSFS_DAEMON_AUDIT_H
#define GMSFS_DAEMON_AUDIT_H

#include "service/service.h"

#include <stdatomic.h>
#include <stdint.h>

struct audit;

/* Version of struct audit_position, which is kept in the journal's own bytes. */
#define AUDIT_VERSION 1u

/* Written by one thread, which may end at any instruction. All zeros if nothing was ever
 * written. */
struct audit_position {
    _Atomic uint64_t next; /* the first event that has no byte in the file yet */
    /* While `size` bytes are being written at `offset` of the file: when all are written, `next`
     * becomes `after`. 0 if none are. */
    _Atomic uint64_t after, offset, size;
};

/* In memory that another build continues: only append fields. */
struct audit_numbers {
    uint64_t written, dropped; /* lines */
};

/* Writes lines to `fd`, which it owns from here, for the events from `position` on; if nothing was
 * ever written, for later events only. `position` stays the caller's, and `numbers`, which it
 * counts on. -ENOMEM, -EAGAIN */
int audit_new(struct service *service, int fd, struct audit_position *position,
              struct audit_numbers *numbers, struct audit **audit);
/* Allows the lines of all events so far to be written: the events are published. NULL is fine. */
void audit_release(struct audit *audit);
/* Continues in this descriptor, after the file was renamed or replaced. Takes the descriptor. */
void audit_reopen(struct audit *audit, int fd);
/* Writes the remaining lines, in at most a second. NULL is fine. */
void audit_free(struct audit *audit);

struct audit_numbers audit_get_numbers(struct audit *audit);

#endif
