/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - making pages of a mapping ahead, and giving much memory back without stopping the other
 * threads
 *
 * munmap(2) of hundreds of megabytes holds the lock of the address space until the last page is
 * gone, and every thread that maps something waits. Any thread.
 */
#ifndef GMSFS_BASE_PAGES_H
#define GMSFS_BASE_PAGES_H

#include <stddef.h>

/* What will be freed or unmapped next: the pages that lie wholly inside are dropped, a few at a
 * time. Their bytes are lost. */
void pages_drop(void *at, size_t bytes);

/* Makes the pages that the bytes lie in, in one go: else each costs a fault. 0, also where the
 * kernel cannot (before 5.14); or a negative errno. */
int pages_make(void *at, size_t bytes);

#endif
