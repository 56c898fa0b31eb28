/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work - processes much data in pieces, by several threads
 *
 * For the commands that touch every byte of a store: items (tensors) of any size are cut into
 * pieces, which threads take in order. The calling thread only waits and ticks, for a progress bar.
 * Knows nothing of how a piece is processed. Only the calling thread handles signals.
 */
#ifndef GMSFS_MOVER_WORK_H
#define GMSFS_MOVER_WORK_H

#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WORK_PIECE_BYTES (8u << 20)
#define WORK_LAST_BYTES  (1u << 20) /* of a piece near the end, if the work tapers */
#define WORK_MAX_THREADS 256u
#define WORK_TICK_MS     100

struct work_piece {
    size_t item;
    uint64_t offset_bytes; /* in the item */
    size_t size_bytes;     /* 1..WORK_PIECE_BYTES, or the whole item */
};

struct work {
    /* Set by the caller. */
    const uint64_t *item_bytes; /* an item of 0 bytes has no pieces */
    const size_t *order;        /* order in which items are taken; NULL: by index */
    size_t item_count;
    unsigned threads;
    bool whole;  /* an item is one piece, of any size */
    bool tapers; /* the last pieces are small, so that the threads end at about the same time */
    /* State of each thread; may be NULL. A negative errno counts as an error of a piece. */
    void *shared;
    int (*begin)(void *shared, void **own);
    int (*end)(void *shared, void *own); /* called after every successful begin */
    void *context;
    /* Called on any thread. A negative errno stops all, and work_run returns it. */
    int (*piece)(void *context, const struct work_piece *piece, void *own);
    /* Called on the calling thread, each WORK_TICK_MS and at the end; may be NULL. Non-zero (a
     * negative errno) stops all, and work_run returns it. */
    int (*tick)(void *context, uint64_t done_bytes);

    /* Private to work.c. */
    struct work_piece *pieces;
    size_t piece_count;
    atomic_size_t next;
    atomic_ullong done_bytes;
    atomic_int error;
    sem_t ended; /* posted once by each thread */
};

/* Returns the number of CPUs that this process may use, at most 16: memory is not faster with
 * more. */
unsigned work_default_threads(void);

/* Makes an order that takes the items of `abreast` files in turns, because the kernel lets one
 * thread at a time write to a file. file: of each item; items of one file follow each other. When a
 * file ends, the next one takes its place. */
void work_order_abreast(const size_t *file, size_t count, unsigned abreast, size_t *order);

/* Processes all; 0, or the first error. -ENOMEM and -EAGAIN (no thread could be started) are its
 * own. */
int work_run(struct work *work);

#endif
