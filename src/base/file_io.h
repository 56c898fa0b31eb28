/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_io - bytes of a file at an offset, all of them or an error
 *
 * For the commands that read and write models and images, and for who moves bytes to and from a
 * disk. What a signal interrupts goes on. From any thread. 0 or a negative errno.
 */
#ifndef GMSFS_BASE_FILE_IO_H
#define GMSFS_BASE_FILE_IO_H

#include "base/scope.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* -ENODATA: the file ends before. */
int file_read_at(int fd, void *bytes, size_t size_bytes, uint64_t offset_bytes);
int file_write_at(int fd, const void *bytes, size_t size_bytes, uint64_t offset_bytes);

/* From where the descriptor is. */
int file_write(int fd, const void *bytes, size_t size_bytes);

/* Whatever this description moved past the page cache goes through it from now on. */
void file_end_direct(int fd);

/* Closes the variable's descriptor (-1: none) or input stream (NULL: none) when its block ends. */
#define SCOPED_CLOSE SCOPED(file_leave)
#define SCOPED_FILE  SCOPED(file_leave_stream)
void file_leave(const int *fd);
void file_leave_stream(FILE **stream);

#endif
