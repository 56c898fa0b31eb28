/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread - copies the memory of one store to the memory of others, of any kinds
 *
 * For `gmsfs copy` and `gmsfs load --group`. Copy engines fill the GPUs that reach the source's, in
 * a chain (relay.h); threads fill all other targets: they read a block once, through staging, and
 * put it into each, a GPU's memory through its ring, files of host memory by write(2). The caller
 * maps the memory of GPUs before; get() opens some files at a time, on the calling thread. Knows no
 * lock and no layout; prints nothing.
 */
#ifndef GMSFS_MOVER_SPREAD_H
#define GMSFS_MOVER_SPREAD_H

#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spread_target {
    const struct staging_memory *memory;
    const struct gmsfs_mapping *mappings; /* of each item, of memory that is no file; else NULL */
    bool by_host; /* set by spread_run(): no copy engine reaches this GPU's memory */
};

struct spread {
    struct staging *staging;
    const struct staging_memory *from;
    const struct gmsfs_mapping *items; /* of `from` */
    const uint64_t *item_bytes;        /* bytes to copy of each item */
    size_t item_count;
    struct spread_target *targets;
    size_t target_count;
    uint64_t threads;  /* 0: as many as are best */
    bool engines_only; /* copies nothing, -EOPNOTSUPP, where copy engines do not reach a target */
    size_t at_once;    /* most items that get() is asked for; fewer where RLIMIT_NOFILE is low */

    /* Called once, when all is prepared, before the first byte. May be NULL. */
    void (*begin)(void *context);
    /* Opens `count` files of a target's memory, from an item on; the descriptors are closed here. A
     * negative errno stops all, and spread_run returns it. */
    int (*get)(void *context, size_t target, size_t item, size_t count, int *fds);
    /* Called several times a second with the bytes put into all targets together. Non-zero (a
     * negative errno) stops all, and spread_run returns it. */
    int (*tick)(void *context, uint64_t done_bytes);
    void *context;

    /* The first failed write to host memory; 0 if none. Staging reports failures of devices. */
    int failure;
    size_t failed_target, failed_item;
};

/* Returns true if copy engines can copy from one GPU's memory to the other's: they are one, or have
 * peer access. */
bool spread_reaches(const struct staging_memory *from, const struct staging_memory *to);

/* 0; `failure`; or an error of get(), of tick(), or of a device. */
int spread_run(struct spread *spread);

#endif
