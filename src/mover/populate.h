/* SPDX-License-Identifier: Apache-2.0 */
/*
 * populate - pages of a mapping before they are written to
 *
 * For the commands that fill memory. Any thread; a hint that never fails.
 */
#ifndef GMSFS_MOVER_POPULATE_H
#define GMSFS_MOVER_POPULATE_H

#include <stddef.h>

/* Maps the pages in one go, where the kernel can (5.14): else each costs a fault. */
void populate(void *to, size_t size_bytes);

#endif
