/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_file - the other side of a move: whole parts of a file, read and written at their place
 *
 * For lanes.c. write(2) lets one thread at a time into a file in memory, and none into one in huge
 * pages. So a memfd that cannot shrink is mapped for who writes; its pages are made before they are
 * written to, and one that cannot be had is an errno and no SIGBUS. Any other file is written by
 * write(2). Reading needs none of that.
 *
 * Parts by any thread. 0, or a negative errno: -ENODATA, the file ends before.
 */
#ifndef GMSFS_COPIER_LANE_FILE_H
#define GMSFS_COPIER_LANE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lane_file {
    int fd;
    char *map; /* NULL: none */
    uint64_t map_offset;
    size_t map_bytes;
};

/* For these bytes of it; the descriptor becomes the file's. Never fails: without a mapping it is
 * written to. */
void lane_file_open(struct lane_file *file, int fd, bool to_write, uint64_t offset, uint64_t bytes);
void lane_file_close(struct lane_file *file);

int lane_file_read(const struct lane_file *file, void *to, size_t bytes, uint64_t offset);
int lane_file_write(const struct lane_file *file, const void *from, size_t bytes, uint64_t offset);

#endif
