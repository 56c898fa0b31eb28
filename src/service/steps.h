/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - the states of an operation that takes several steps, and which may follow which
 *
 * Each operation has one enum of states, the first of which it begins in and the last of which it
 * ends in, and one table (steps.c), which tests print and hold.
 */
#ifndef GMSFS_SERVICE_STEPS_H
#define GMSFS_SERVICE_STEPS_H

#include <stdint.h>

struct steps_row {
    const char *name;
    uint32_t next; /* a bit for each state that may follow */
};

struct steps {
    const char *name;
    unsigned count;
    const struct steps_row *rows; /* by state */
};

enum move_state {
    MOVE_BEGINS,    /* looks for memory */
    MOVE_WAITS,     /* for memory that is being freed or leaves: nothing is charged, no part runs */
    MOVE_SHORT,     /* the same where none is on its way: others are to leave for it */
    MOVE_MAKES,     /* memory, by pieces */
    MOVE_COPIES,    /* bytes, by spans */
    MOVE_AGAIN,     /* the same, after one transfer failed */
    MOVE_SYNCS,     /* waits for the disk to have what came to it, by pieces */
    MOVE_LOOKS,     /* at both ends of the copy that is there already, by pieces */
    MOVE_READS,     /* all of that copy, by spans */
    MOVE_CANCELLED, /* its parts end with the step that they are at */
    MOVE_ENDS,
};

enum alloc_state {
    ALLOC_TRIES, /* to charge the account */
    ALLOC_WAITS, /* in the queue */
    ALLOC_MAKES, /* memory, on helper threads: it cannot be answered yet */
    ALLOC_ENDS,
};

enum spool_state {
    SPOOL_BEGINS, /* looks for its piece and its memory */
    SPOOL_QUEUES, /* behind the operation that has the piece */
    SPOOL_WAITS,  /* for memory that is being freed */
    SPOOL_RUNS,   /* on a helper thread, or until it is its turn there */
    SPOOL_ENDS,
};

enum turn_state {
    TURN_BEGINS,
    TURN_WAITS, /* behind others of its user, or for a slot */
    TURN_RUNS,  /* it has a slot */
    TURN_FAILS, /* its turn came, and no thread could be had */
    TURN_ENDS,
};

enum ending_state {
    ENDING_WAITS,    /* for what its session has in flight, and for older endings */
    ENDING_SEALS,    /* a commit's spools become memory */
    ENDING_PREPARES, /* a helper thread computes what the record needs */
    ENDING_ENDS,     /* by its record */
};

enum bulk_state {
    BULK_DECODES, /* on a helper thread */
    BULK_APPLIES, /* a slice at a time, in turn with other documents */
    BULK_WAITS,   /* for memory, of the daemon's own */
    BULK_ENDS,
};

extern const struct steps move_steps, alloc_steps, spool_steps, turn_steps, ending_steps,
    bulk_steps;

/* The table lacks this transition. Aborts a test build. Another build logs the first one and goes
 * on: a worker that ended here would be followed by one that ends here again. */
void steps_report(const struct steps *steps, unsigned from, unsigned to);

#define steps_go(steps, state, to)                         \
    do {                                                   \
        if (!((steps).rows[*(state)].next & (1u << (to)))) \
            steps_report(&(steps), *(state), (to));        \
        *(state) = (to);                                   \
    } while (0)

#endif
