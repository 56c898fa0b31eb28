/* SPDX-License-Identifier: Apache-2.0 */
/*
 * steps - the states of an operation that takes several steps, and their transitions
 *
 * Each operation has one enum of states (it begins in the first and ends in the last) and one table
 * (steps.c), which a test prints and compares.
 */
#ifndef GMSFS_SERVICE_STEPS_H
#define GMSFS_SERVICE_STEPS_H

#include <stdint.h>

struct steps_row {
    const char *name;
    uint32_t next; /* a bit for each state that may come next */
};

struct steps {
    const char *name;
    unsigned count;
    const struct steps_row *rows; /* by state */
};

enum move_state {
    MOVE_BEGINS,    /* tries to charge memory */
    MOVE_WAITS,     /* waits for memory that is on its way: nothing is charged, no part runs */
    MOVE_SHORT,     /* the same while no memory is on its way: others have to leave for it */
    MOVE_MAKES,     /* makes memory, by pieces */
    MOVE_COPIES,    /* copies bytes, by spans */
    MOVE_AGAIN,     /* the same after one failed transfer */
    MOVE_SYNCS,     /* syncs to the disk, by pieces */
    MOVE_VERIFIES,  /* verifies both ends of the copy in the tier, by pieces */
    MOVE_READS,     /* reads all of that copy, by spans */
    MOVE_CANCELLED, /* its parts end with their current step */
    MOVE_ENDS,
};

enum alloc_state {
    ALLOC_TRIES, /* tries to charge the account */
    ALLOC_WAITS, /* waits in the queue */
    ALLOC_MAKES, /* makes memory on helper threads: no answer is possible yet */
    ALLOC_ENDS,
};

enum spool_state {
    SPOOL_BEGINS, /* finds its piece and its memory */
    SPOOL_QUEUES, /* waits for the operation that has the piece */
    SPOOL_WAITS,  /* waits for memory that is being freed */
    SPOOL_RUNS,   /* runs on a helper thread, or waits for its turn there */
    SPOOL_ENDS,
};

enum turn_state {
    TURN_BEGINS,
    TURN_WAITS, /* waits behind others of its user, or for a slot */
    TURN_RUNS,  /* runs in a slot */
    TURN_FAILS, /* its turn came, but there was no thread */
    TURN_ENDS,
};

enum ending_state {
    ENDING_WAITS,    /* waits for the transfers of its session, and for older endings */
    ENDING_SEALS,    /* turns a commit's spools into memory */
    ENDING_PREPARES, /* computes on a helper thread, so that the record need not */
    ENDING_ENDS,     /* its record is applied */
};

enum bulk_state {
    BULK_DECODES, /* decodes on a helper thread */
    BULK_APPLIES, /* applies a slice at a time, in turn with other documents */
    BULK_WAITS,   /* waits for memory of the daemon's own */
    BULK_ENDS,
};

extern const struct steps move_steps, alloc_steps, spool_steps, turn_steps, ending_steps,
    bulk_steps;

/* Reports a transition that the table does not have. A test build aborts. Another build logs the
 * first one and goes on: a worker that ended here would be followed by one that ends here again. */
void steps_report(const struct steps *steps, unsigned from, unsigned to);

#define steps_go(steps, state, to)                         \
    do {                                                   \
        if (!((steps).rows[*(state)].next & (1u << (to)))) \
            steps_report(&(steps), *(state), (to));        \
        *(state) = (to);                                   \
    } while (0)

#endif
