/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lane_file - whole parts of a file, read and written at their place
 *
 * For lanes.c. Any thread. 0, or a negative errno: -ENODATA, the file ends before.
 */
#ifndef GMSFS_COPIER_LANE_FILE_H
#define GMSFS_COPIER_LANE_FILE_H

#include <stddef.h>
#include <stdint.h>

int lane_file_read(int fd, void *to, size_t bytes, uint64_t offset);
int lane_file_write(int fd, const void *from, size_t bytes, uint64_t offset);

#endif
