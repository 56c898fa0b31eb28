/* SPDX-License-Identifier: Apache-2.0 */
/*
 * large - blocks of memory that may be many megabytes, on huge pages where the system has them
 *
 * To touch a page for the first time takes longer than to fill it: of 12 MiB that are read and
 * decoded once, faults are half of the time. Any thread. Freed by free(3).
 */
#ifndef GMSFS_LIB_LARGE_H
#define GMSFS_LIB_LARGE_H

#include <stddef.h>

/* Not cleared. NULL: no memory. */
void *gfs_large_alloc(size_t size_bytes);

#endif
