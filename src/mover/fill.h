/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fill - the memory of stores filled from files: the one engine of all commands that load
 *
 * For `gmsfs load`, `gmsfs image load` and the check of an image. A caller lists parts; threads
 * take them. A part is some ranges, and each range goes from a *source*, bytes at an offset of a
 * file, to a *sink*, an offset in an allocation. There are three sinks: a file of host memory,
 * which a supply hands out while others are filled; memory that is mapped, a GPU's through staging;
 * and none, where the bytes are summed alone. What a part has may be held against a sum.
 *
 * Into a file of host memory bytes go by splice(2) from the page cache, or by write(2) through a
 * buffer that stays in the processor's cache: a page that is written whole is never cleared, while
 * one that is touched through a mapping is cleared first, after a fault. A source of another kind
 * than files has its place in fill_step(), which reads into a room that the sink offers.
 *
 * Each device has a crew of threads, so that all are filled at the same time. The first failure
 * stops all, and is told once. Knows nothing of stores, models, images or signals; prints nothing.
 */
#ifndef GMSFS_MOVER_FILL_H
#define GMSFS_MOVER_FILL_H

#include "mover/direct.h"
#include "mover/staging.h"
#include "mover/work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILL_SUM_BYTES 16u

struct supply;
struct fill;

/* Bytes that lie side by side in a file and in an allocation. */
struct fill_range {
    struct direct_file *file; /* NULL: open() of the fill opens it, for this range */
    uint64_t from;            /* offset in the file */
    uint8_t *into;            /* the allocation, mapped; NULL: it is an item of the supply */
    size_t item;
    uint64_t to; /* offset in the allocation */
    uint64_t size_bytes;
};

/* One or more ranges that go to one allocation, by one thread. */
struct fill_part {
    size_t first, end;  /* ranges[first] to ranges[end - 1] of the fill */
    const uint8_t *sum; /* FILL_SUM_BYTES of XXH3-128; NULL: none is known */
};

/* The parts that go to one device, and its threads. */
struct fill_crew {
    const struct staging_memory *memory; /* of one store there; NULL: there is no store */
    const struct fill_part *parts;
    const uint64_t *part_bytes; /* the size of each part */
    size_t part_count;
    uint64_t threads; /* 0: as many as are best */
    bool cuts;        /* parts have one range and no sum, and are cut, the last into small pieces */

    /* The machinery's. */
    struct fill *fill;
    struct work work;
    size_t *order;
    pthread_t thread;
    atomic_ullong done_bytes;
    int result;
};

struct fill {
    const struct fill_range *ranges;
    struct fill_crew *crews;
    size_t crew_count;
    struct staging *staging;
    struct supply *supply; /* of the ranges that are not mapped; NULL: those are summed alone */

    /* Descriptor of the file of a range, which is closed behind it, and `file` opened; or a
     * negative errno. On any thread. NULL: ranges have files. */
    int (*open)(void *context, const struct fill_range *range, struct direct_file *file);
    /* The first failure, once, on any thread; no tick comes after it. at: where in the file.
     * doing: what could not be done with the sink's memory, "write"; NULL: its source has failed;
     * error: -ENODATA, the file ends before; -EBADMSG, the sum is another one. */
    void (*fail)(void *context, const struct fill_range *range, uint64_t at, const char *doing,
                 int error);
    /* Several times a second for each crew, never two at a time, on any thread. Non-zero (a
     * negative errno) stops all. May be NULL. */
    int (*tick)(void *context, size_t crew, uint64_t done_bytes);
    void *context;

    /* What came of it: the error that fail() was told; 0: none. */
    int failure;

    /* The machinery's. */
    pthread_mutex_t lock; /* of `failure`, and of the calls of fail() and tick() */
    atomic_bool stopped;
};

/*
 * Does it all; the calling thread supplies. 0, the error that fail() was told, or another that came
 * first: -ECANCELED where the supply's memory was refused, -EAGAIN or -ENOMEM where threads could
 * not be had, or an error of a device, which staging tells.
 */
int fill_run(struct fill *fill);

#endif
