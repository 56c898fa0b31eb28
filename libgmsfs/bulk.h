/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk - many metadata entries in one document: written to `ctl`, then applied whole
 *
 * Called by metadata.c with the handle entered. gfs_bulk_encode is pure, for tests/unit.
 */
#ifndef GMSFS_LIB_BULK_H
#define GMSFS_LIB_BULK_H

#include <stddef.h>

#include "gfs_msgpack.h"
#include "gmsfs.h"

/* `slots`: the layout's, ascending; a slot's index there is its rank. -EINVAL: an entry's slot is
 * not among them, and *culprit is that entry. */
int gfs_bulk_encode(struct gfs_writer *writer, const struct gmsfs_metadata *entries, size_t count,
                    const uint64_t *slots, size_t slot_count, size_t *culprit);

int gfs_bulk_put(struct gmsfs_store *handle, const struct gmsfs_metadata *entries, size_t count,
                 size_t *culprit);

#endif
