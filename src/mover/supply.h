/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supply - memory that one thread asks for, in order, while others fill what is there already
 *
 * For the commands that load into memory that is files. One thread supplies: for it alone get() is
 * called, so what get() waits for can be ended as that thread is. It asks for several at a time,
 * which can be made at the same time: the kernel makes one file's pages by one thread. The others
 * fill: each takes parts of the items, in about the order in which these are supplied, and says
 * when one is filled. No more than `most` items are open at a time. Knows nothing of stores.
 */
#ifndef GMSFS_MOVER_SUPPLY_H
#define GMSFS_MOVER_SUPPLY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct supply {
    /* What to do; set before supply_begin. Items are asked for by their numbers, from 0 on. */
    size_t count;
    size_t most;    /* that are there and not filled */
    size_t at_once; /* that are asked for together */
    /* Whether two items may be asked for together: all of a call are there when the last one is.
     * NULL: any two. */
    bool (*alike)(const void *context, size_t item, size_t other);
    /* Calls supply_put for each of the items from `first` on, as soon as it is there. Or a negative
     * errno, which ends the supply; what was put stays. */
    int (*get)(void *context, size_t first, size_t count);
    /* Ends a wait of the get() that is under way; does nothing where get() does not wait yet, so it
     * is called again until get() returns. By the thread that calls supply_stop. NULL: get() does
     * not wait for others. */
    void (*cancel)(void *context);
    void *context;

    /* What came of it; for the supplying thread, after supply_run. */
    int refusal;                   /* what get() said; 0: nothing was refused */
    size_t refused, refused_count; /* of which items */

    /* The machinery's. */
    pthread_mutex_t mutex; /* of all that follows, and of the outcome */
    pthread_cond_t changed;
    int *fds;     /* of each item that is there and not filled; else -1 */
    size_t *left; /* parts of each item that are not filled */
    size_t there, filled;
    bool is_getting; /* get() is under way */
    bool is_over;    /* the threads supply and fill no more */
};

/* -ENOMEM: then there is nothing to end. */
int supply_begin(struct supply *supply);
/* Before supply_run: the item has one more part, which a thread fills. One without parts is closed
 * as soon as it is there. */
void supply_add_part(struct supply *supply, size_t item);
/* When nobody supplies or fills any more; closes what was not filled. */
void supply_end(struct supply *supply);

/* By the supplying thread: until all is there, one is refused, or supply_stop was called. */
void supply_run(struct supply *supply);
/* From get() alone; the descriptor is the supply's. */
void supply_put(struct supply *supply, size_t item, int fd);

/* By a thread that fills: waits for the item. Its descriptor, which is open until all parts were
 * given back; or -ECANCELED: it will not come. */
int supply_take(struct supply *supply, size_t item);
/* One part of an item that was taken is filled, or given up. */
void supply_give_back(struct supply *supply, size_t item);
/* Nothing more is filled, so nothing more is asked for, and no refusal counts any more. Ends what
 * get() waits for. Returns the refusal that was there before; 0: none. */
int supply_stop(struct supply *supply);

#endif
