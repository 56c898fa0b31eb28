/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work - much data in pieces, done by several threads
 *
 * For the commands that touch every byte of a store: items (tensors) of any size are cut into
 * pieces, which threads take in order. The calling thread only waits and ticks, for a progress bar.
 * Knows nothing of what is done to a piece. Signals are left to the calling thread.
 */
#ifndef GMSFS_MOVER_WORK_H
#define GMSFS_MOVER_WORK_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORK_PIECE_BYTES (8u << 20)
#define WORK_LAST_BYTES  (1u << 20) /* of a piece near the end, where the work tapers */
#define WORK_MAX_THREADS 256u
#define WORK_TICK_MS     100

struct work_piece {
    size_t item;
    uint64_t offset_bytes; /* in the item */
    size_t size_bytes;     /* 1..WORK_PIECE_BYTES, or the whole item */
};

struct work {
    /* What to do. */
    const uint64_t *item_bytes; /* an item of 0 bytes has no pieces */
    const size_t *order;        /* items in the order to be taken; NULL: as they are */
    size_t item_count;
    unsigned threads;
    bool whole;  /* an item is one piece, whatever its size */
    bool tapers; /* the last pieces are small: so the threads end at about the same time */
    /* What each thread has of its own; may be NULL. A negative errno is an error as of a piece. */
    void *shared;
    int (*begin)(void *shared, void **own);
    int (*end)(void *shared, void *own); /* for every begin that went well, whatever came of it */
    void *context;
    /* On any thread. A negative errno stops everything and is what work_run returns. */
    int (*piece)(void *context, const struct work_piece *piece, void *own);
    /* On the calling thread, each WORK_TICK_MS and at the end; may be NULL. Non-zero (a negative
     * errno) stops everything likewise. */
    int (*tick)(void *context, uint64_t done_bytes);

    /* The machinery's. */
    struct work_piece *pieces;
    size_t piece_count;
    atomic_size_t next;
    atomic_ullong done_bytes;
    atomic_int error;
    sem_t ended; /* posted once by each thread */
};

/* As many threads as this process may use CPUs, at most 16: memory is not faster with more. */
unsigned work_default_threads(void);

/* An order that takes the items of several files in turns, so many at a time, since the kernel lets
 * one thread at a time write to a file: file is that of each item, and those of one file are behind
 * one another. The next file takes the place of one that has ended. */
void work_order_abreast(const size_t *file, size_t count, unsigned abreast, size_t *order);

/* Does it all; 0, or the first error. -ENOMEM and -EAGAIN (no thread to be had) are its own. */
int work_run(struct work *work);

#endif
