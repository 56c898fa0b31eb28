/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backings - files of memory that the keeper has registered with the kernel (FUSE passthrough)
 *
 * Keeper only. The kernel reads and maps a registered file by itself wherever the worker's answer
 * to an OPEN names its number. Registering needs CAP_SYS_ADMIN, and only memory whose bytes are
 * final is registered: a memfd sealed against writing, shrinking, growing and further seals. So a
 * worker that a client controls can have no other file registered. The numbers belong to the
 * mount's connection and outlive this process, so they stand in a table in memory of its own, which
 * goes to the next keeper (handover.h).
 */
#ifndef GMSFS_DAEMON_BACKINGS_H
#define GMSFS_DAEMON_BACKINGS_H

#include "base/idvec.h"

#include <stddef.h>
#include <stdint.h>

struct backings {
    struct idvec items; /* by number of the memory */
    int fd;             /* of the table; -1: nothing can be registered */
    uint32_t rows;      /* of the table, used or free */
    uint32_t *free;     /* free rows */
    size_t free_count, free_room;
};

/* Makes an empty table if this process may register files; without that right the table has no
 * descriptor. 0 or a negative errno. */
int backings_make(struct backings *backings);
/* Takes over the table of a former keeper, and closes the number that it may have got last without
 * noting it. The descriptor is taken, even on failure. -EPROTO: it is no table */
int backings_take(struct backings *backings, int fd, int fuse_fd);
/* Frees the table in this process; the numbers stay registered. */
void backings_free(struct backings *backings);
/* Registers this file of memory, or returns the number that it has already. *number is not 0.
 * -EPERM: its bytes are not final, or this process may not; another negative errno of the
 * kernel. */
int backings_add(struct backings *backings, int fuse_fd, uint64_t memory, int fd, uint32_t *number);
/* Ends the registration of this memory, if there is one. Open files and mappings stay good. */
void backings_remove(struct backings *backings, int fuse_fd, uint64_t memory);

#endif
