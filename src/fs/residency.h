/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency - parses writes to the file `residency`, and formats its text
 *
 * Pure, for src/fs and for tests.
 */
#ifndef GMSFS_FS_RESIDENCY_H
#define GMSFS_FS_RESIDENCY_H

#include "service/move.h"

#define RESIDENCY_TEXT_BYTES 128u

/* Parses one word with white space around it, or `WORD drained TOKEN` with a tier or `none`.
 * -EINVAL */
int residency_parse(const char *text, size_t bytes, struct service_move_order *order);
/* Writes the tiers with a copy, the fastest first, or `none`; nothing if nothing is committed. Then
 * a line about the move in progress (NULL: none). Returns the number of bytes. */
size_t residency_format(const struct core_store *store, const struct service_moving *moving,
                        char text[RESIDENCY_TEXT_BYTES]);

#endif
