/* SPDX-License-Identifier: Apache-2.0 */
/*
 * supply - memory that one thread asks for, in order, while others fill it
 *
 * For the commands that load into memory that is files. Only the supplying thread calls get(), so a
 * wait in get() can be ended like any wait of that thread. It asks for several items at a time,
 * which can be made in parallel: the kernel makes one file's pages by one thread. The others fill:
 * each takes parts of the items, in about the order in which these are supplied, and gives each
 * back when it is filled. At most `most` items are open at a time. Knows nothing of stores.
 */
#ifndef GMSFS_MOVER_SUPPLY_H
#define GMSFS_MOVER_SUPPLY_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct supply {
    /* Set before supply_begin. Items have numbers from 0 on. */
    size_t count;
    size_t most;    /* maximum of items supplied and not filled */
    size_t at_once; /* maximum of items in one call of get() */
    /* Returns true if two items may be in one call: all items of a call arrive when the last one
     * does. NULL: any two. */
    bool (*alike)(const void *context, size_t item, size_t other);
    /* Calls supply_put for each of the items from `first` on, as soon as it exists. Or returns a
     * negative errno, which ends the supply; items already put stay. */
    int (*get)(void *context, size_t first, size_t count);
    /* Ends the wait of the running get(); does nothing while get() does not wait yet, so it is
     * called again until get() returns. Called by the thread that calls supply_stop. NULL: get()
     * does not wait for others. */
    void (*cancel)(void *context);
    void *context;

    /* Result, for the supplying thread, after supply_run. */
    int refusal;                   /* error of get(); 0: none */
    size_t refused, refused_count; /* the items of that call */

    /* Private to supply.c. */
    pthread_mutex_t mutex; /* of all fields below, and of the result */
    pthread_cond_t changed;
    int *fds;     /* of each item supplied and not filled; else -1 */
    size_t *left; /* parts of each item that are not filled */
    bool *writes; /* a thread writes to the item */
    size_t there, filled;
    bool is_getting; /* get() is running */
    bool is_over;    /* no more is supplied or filled */
};

/* -ENOMEM: do not call supply_end. */
int supply_begin(struct supply *supply);
/* Called before supply_run: the item has one more part for a thread to fill. An item without parts
 * is closed as soon as it arrives. */
void supply_add_part(struct supply *supply, size_t item);
/* Called when all threads have stopped; closes items that were not filled. */
void supply_end(struct supply *supply);

/* Called by the supplying thread: returns when all items arrived, one was refused, or supply_stop
 * was called. */
void supply_run(struct supply *supply);
/* Called by get() alone; the supply owns the descriptor. */
void supply_put(struct supply *supply, size_t item, int fd);

/* Called by a filling thread: waits for the item. Returns its descriptor, open until all parts were
 * given back; or -ECANCELED: it will not arrive. *writes: true if the caller alone may write
 * to the item until its part is given back: the kernel locks a file for each write(2). */
int supply_take(struct supply *supply, size_t item, bool *writes);
/* Gives back a part of an item, filled or not. writes: as supply_take said. */
void supply_give_back(struct supply *supply, size_t item, bool writes);
/* Stops filling, so that no more items are asked for and no later refusal counts. Ends the wait of
 * get(). Returns the earlier refusal; 0: none. */
int supply_stop(struct supply *supply);

#endif
