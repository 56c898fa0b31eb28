/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill - fills the memory of stores from a source: the one engine of all commands that load
 *
 * For `gmsfs load`, `gmsfs image load` and the check of an image. A caller lists parts; threads
 * take them. A part consists of ranges; each range goes from an offset of a file of the source
 * (source/source.h) to a *sink*, an offset in an allocation. Ranges that follow each other in a
 * file are copied at once. There are three sinks: a file of host memory, which a supply hands out
 * while others are filled; mapped memory, a GPU's through staging; and none, if the bytes are only
 * summed. The bytes of a part may be compared with a sum.
 *
 * Bytes get into a file of host memory by splice(2) from the page cache, or by write(2) from a
 * buffer that stays in the processor's cache: a page that is written whole is never cleared, while
 * a page touched through a mapping is cleared first, after a fault. But the kernel locks a file for
 * a write, and not for a fault: where there are two threads and more for each file, one of them
 * writes, and the others fill their parts through mappings, unless their source is so slow that the
 * lock is mostly free.
 *
 * Each device has a crew of threads, so that all are filled at the same time. The first failure
 * stops all, and is reported once. Knows nothing of stores, models, images or signals; prints
 * nothing.
 */
#ifndef GMSFS_MOVER_FILL_H
#define GMSFS_MOVER_FILL_H

#include "mover/staging.h"
#include "mover/work.h"
#include "source/source.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILL_SUM_BYTES 16u

struct supply;
struct fill;

/* Bytes that are contiguous both in a file and in an allocation. */
struct fill_range {
    size_t file;   /* of the source */
    uint64_t from; /* offset in the file */
    uint8_t *into; /* the mapped allocation; NULL: an item of the supply */
    size_t item;
    uint64_t to; /* offset in the allocation */
    uint64_t size_bytes;
};

/* One or more ranges of one allocation, filled by one thread. */
struct fill_part {
    size_t first, end;  /* ranges[first] to ranges[end - 1] of the fill */
    const uint8_t *sum; /* FILL_SUM_BYTES of XXH3-128; NULL: unknown */
};

struct fill_failure {
    const struct fill_range *range;
    uint64_t at;       /* offset in the file */
    const char *doing; /* failed operation on the sink's memory, such as "write"; NULL: the source
                        * has failed */
    int error;         /* -ENODATA: the file is shorter; -EBADMSG: the sum differs */
    const char *why;   /* of the source, in words; "": the error tells all */
};

/* The parts of one device, and its threads. */
struct fill_crew {
    const struct staging_memory *memory; /* memory of one store there; NULL: no store */
    const struct fill_part *parts;
    const uint64_t *part_bytes; /* the size of each part */
    size_t part_count;
    uint64_t threads; /* 0: as many as are best */
    bool cuts;        /* parts have one range and no sum, and are cut, the last into small pieces */

    /* Private to fill.c. */
    struct fill *fill;
    struct work work;
    size_t *order;
    pthread_t thread;
    atomic_ullong done_bytes;
    int result;
};

struct fill {
    struct source *source; /* cancelled by the first failure */
    const struct fill_range *ranges;
    struct fill_crew *crews;
    size_t crew_count;
    struct staging *staging;
    struct supply *supply; /* of the ranges that are not mapped; NULL: they are only summed */

    /* Called once, with the first failure, on any thread; no tick comes after it. */
    void (*fail)(void *context, const struct fill_failure *failure);
    /* Called several times a second for each crew, on any thread, never twice at the same time.
     * Non-zero (a negative errno) stops all. May be NULL. */
    int (*tick)(void *context, size_t crew, uint64_t done_bytes);
    void *context;

    /* The error that fail() got; 0: none. */
    int failure;

    /* Private to fill.c. */
    pthread_mutex_t lock; /* of `failure`, and of the calls of fail() and tick() */
    atomic_bool stopped;
};

/*
 * Fills all; the calling thread supplies. 0; the error that fail() got; or an earlier one:
 * -ECANCELED if the supply's memory was refused, -EAGAIN or -ENOMEM if no thread could be started,
 * or an error of a device, which staging reports.
 */
int fill_run(struct fill *fill);

#endif
