/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_file - the other side of a move: whole parts of a file, read and written at their place
 *
 * For lanes.c, when the driver does not do it by itself (files.h), and for files.c. write(2) is
 * quickest, because it fills no page with zeros first; but it lets one thread at a time into a file
 * in memory, and none into one of hugetlbfs. Through a mapping all threads may write, but small
 * pages make that far slower than waiting. So a file of huge pages is also written through its
 * mapping, by a lane that finds another one in write(2); its pages exist, or are made before they
 * are written, and one that cannot be made is an errno and no SIGBUS. Reading needs none of that. A
 * descriptor with O_DIRECT bypasses the page cache as far as its file system lets it.
 *
 * Any thread. 0, or a negative errno: -ENODATA, the file ends before; -ENOSPC, no room on its disk,
 * or no memory for its pages, which is not the copier's fault.
 */
#ifndef GMSFS_COPIER_LANE_FILE_H
#define GMSFS_COPIER_LANE_FILE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct lane_file {
    int fd;
    char *at;                /* mapping of its huge pages, from `at_begin` on; else NULL */
    uint64_t at_begin;       /* in the file */
    atomic_bool *is_written; /* true during a write(2); NULL: write(2) cannot write the file */
};

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset);
int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset);

/* Makes all pages of a mapping that these bytes touch. */
int lane_file_make_pages(char *at, size_t bytes);

#endif
