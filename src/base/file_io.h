/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_io - reads and writes all bytes, or fails
 *
 * For the commands that read and write models and images, and for moves to and from a disk.
 * Continues after signals. From any thread. 0 or a negative errno.
 */
#ifndef GMSFS_BASE_FILE_IO_H
#define GMSFS_BASE_FILE_IO_H

#include "base/scope.h"

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* -ENODATA: the file is shorter. */
int file_read_at(int fd, void *bytes, size_t size_bytes, uint64_t offset_bytes);
int file_write_at(int fd, const void *bytes, size_t size_bytes, uint64_t offset_bytes);

/* Writes at the descriptor's position. */
int file_write(int fd, const void *bytes, size_t size_bytes);

/* Ends O_DIRECT: this file description uses the page cache from now on. */
void file_end_direct(int fd);

/* Closes the variable's descriptor (-1: none), input stream or directory (NULL: none) at the end
 * of the block. */
#define SCOPED_CLOSE SCOPED(file_close_fd)
#define SCOPED_FILE  SCOPED(file_leave_stream)
#define SCOPED_DIR   SCOPED(file_leave_directory)
void file_close_fd(int *fd); /* and sets it to -1 */
void file_leave_stream(FILE **stream);
void file_leave_directory(DIR **directory);

#endif
