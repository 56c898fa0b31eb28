/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdings - every descriptor of memory that the keeper holds for its worker
 *
 * Keeper only; never looks into the memory.
 */
#ifndef GMSFS_DAEMON_HOLDINGS_H
#define GMSFS_DAEMON_HOLDINGS_H

#include "base/idvec.h"

#include <stddef.h>
#include <stdint.h>

struct holdings {
    struct idvec items; /* by memory */
};

/* Takes the descriptor, on failure too. */
int holdings_add(struct holdings *holdings, uint64_t memory, int fd, uint64_t bytes);
void holdings_drop(struct holdings *holdings, uint64_t memory);
void holdings_free(struct holdings *holdings);
size_t holdings_count(const struct holdings *holdings);
/* What the memory costs, as fstat says it. */
uint64_t holdings_count_bytes(const struct holdings *holdings);

#endif
