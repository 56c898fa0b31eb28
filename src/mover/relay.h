/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay - copies the memory of a store on a GPU to other GPUs, by their copy engines
 *
 * For spread.c. The stops form a chain, or a tree: each reads an earlier stop, a block as soon as
 * that stop has it. Between GPUs this needs peer access: NVLink, or PCIe without the host. No byte
 * passes through the host's memory.
 */
#ifndef GMSFS_MOVER_RELAY_H
#define GMSFS_MOVER_RELAY_H

#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The memory of one store. */
struct relay_stop {
    const struct staging_memory *memory;
    const struct gmsfs_mapping *mappings; /* of each item */
    size_t from;                          /* the earlier stop that it reads; stop 0: unused */
};

struct relay {
    const struct relay_stop *stops; /* the first one has the bytes */
    size_t stop_count;
    const uint64_t *item_bytes;
    size_t item_count;
    /* Called several times a second; non-zero (a negative errno) stops all. done_bytes: of all
     * stops together. May be NULL. */
    int (*tick)(void *context, uint64_t done_bytes);
    void *context;
    struct relay_hop *hops; /* of each stop; owned by relay.c, NULL before relay_begin() */
};

/* Returns true if copy engines can copy from one GPU's memory to the other's: they are one, or have
 * peer access. */
bool relay_reaches(const struct staging_memory *from, const struct staging_memory *to);

/*
 * Lets the GPU of `reader` read the mappings of a stop, for relay_run(). Returns false if it
 * cannot: one of the two is no GPU, or there is no peer access between them. The stop's mappings
 * stay readable for that GPU until they are unmapped.
 */
bool relay_let_in(const struct relay_stop *stop, size_t item_count,
                  const struct staging_memory *reader);

/* Makes all that the copy engines need, so that relay_run() takes the time of the bytes alone. 0,
 * -ENOMEM, or the error of a device, which staging reports. relay_end() follows in any case. */
int relay_begin(struct relay *relay);
/* Copies all. 0, the error of a device, or that of tick(). */
int relay_run(const struct relay *relay);
/* Waits for all copies. 0, or the error of a device. */
int relay_end(struct relay *relay);

#endif
