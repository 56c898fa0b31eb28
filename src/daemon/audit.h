/* SPDX-License-Identifier: Apache-2.0 */
/*
 * audit - every event as a line of a file, for those who have to know later who did what
 *
 * The loop's thread hands over lines; a thread of its own writes them, so a disk that is slow or
 * full holds nothing up. What does not fit into the queue, or cannot be written, is dropped and
 * counted, and a line says how many were when one can be written again. How far it has come is
 * noted in memory that outlives the worker: the next one goes on there, and no line is missing or
 * twice in a file that only this mount writes to. (Of a pipe nobody can say whether the last line
 * went through: it may come twice.) The file is the keeper's to open: the worker may not be allowed
 * to. What has a line, and who is named in it, is decided where it happens (src/core:
 * core_add_event in core_events.c); how a line looks, for `events` too, in core/event_line.c.
 */
#ifndef GMSFS_DAEMON_AUDIT_H
#define GMSFS_DAEMON_AUDIT_H

#include "service/service.h"

#include <stdatomic.h>
#include <stdint.h>

struct audit;

/* Of struct audit_position, which the journal's own bytes are. */
#define AUDIT_VERSION 1u

/* Of one thread, which may end at any instruction. Zeros: nothing was ever written. */
struct audit_position {
    _Atomic uint64_t next; /* the first event of which nothing is in the file yet */
    /* While `size` bytes are being written at `offset` of a file: when all are there, `next` is
     * `after`. 0: none are. */
    _Atomic uint64_t after, offset, size;
};

/* Lines go to `fd`, which becomes its own: those of events from `position` on, which stays the
 * caller's; where nothing was ever written, from now on. -ENOMEM, -EAGAIN */
int audit_new(struct service *service, int fd, struct audit_position *position,
              struct audit **audit);
/* All events so far are published: their lines may be written, and not before. NULL is fine. */
void audit_release(struct audit *audit);
/* The file was renamed away, or is another one: takes the descriptor. */
void audit_reopen(struct audit *audit, int fd);
/* Writes what is there, in a second at most. NULL is fine. */
void audit_free(struct audit *audit);

struct audit_numbers {
    uint64_t written, dropped; /* lines */
};

struct audit_numbers audit_get_numbers(struct audit *audit);

#endif
