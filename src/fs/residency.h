/* SPDX-License-Identifier: Apache-2.0 */
/*
 * residency - the words of the file `residency`: what is written to it, and what it shows
 *
 * Pure, for src/fs and for tests.
 */
#ifndef GMSFS_FS_RESIDENCY_H
#define GMSFS_FS_RESIDENCY_H

#include "service/move.h"

#define RESIDENCY_TEXT_BYTES 128u

/* One word, and white space around it; or `WORD drained TOKEN`, of a tier or `none`. -EINVAL */
int residency_parse(const char *text, size_t bytes, struct service_move_order *order);
/* The tiers that have a copy, the fastest first, or `none`; empty where nothing is committed. Then
 * a line of what is under way (NULL: nothing). How many bytes that is. */
size_t residency_format(const struct core_store *store, const struct service_moving *moving,
                        char text[RESIDENCY_TEXT_BYTES]);

#endif
