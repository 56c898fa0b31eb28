/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pages - faults in the pages of a mapping early, and frees much memory without blocking other
 * threads
 *
 * munmap(2) of hundreds of megabytes holds the lock of the address space until the last page is
 * gone, and every thread that maps something waits. Any thread.
 */
#ifndef GMSFS_BASE_PAGES_H
#define GMSFS_BASE_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Drops the pages that lie fully inside, a few at a time; call before free or munmap. Their bytes
 * are lost. */
void pages_drop(void *at, size_t bytes);

/* Faults in all pages of the bytes with one call instead of one fault each. 0, also if the kernel
 * cannot (before 5.14); or a negative errno. */
int pages_make(void *at, size_t bytes);

/* Returns true if write(2) can fill a file of memory: huge pages have no write(2), and RLIMIT_FSIZE
 * refuses larger files; these are filled through a mapping. */
bool pages_take_writes(int fd, uint64_t size_bytes);

#endif
