/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passthrough - the parts of the FUSE protocol by which the kernel serves a file from another one
 *
 * Since Linux 6.9. libfuse 3.14 and older headers do not know them, so they are put into libfuse's
 * answers on their way out (include/uapi/linux/fuse.h, FUSE_PASSTHROUGH). Pure. For session.c.
 */
#ifndef GMSFS_FS_PASSTHROUGH_H
#define GMSFS_FS_PASSTHROUGH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fuse_init_out;
struct fuse_open_out;

/* Returns true if the kernel that sent this FUSE_INIT, with its head, can serve files by itself. */
bool passthrough_is_offered(const void *init, size_t bytes);
/* Returns true if this answer to FUSE_INIT, with its head, agreed to that. */
bool passthrough_is_agreed(const void *answer, size_t bytes);
void passthrough_agree(struct fuse_init_out *answer);
/* Has the kernel serve this open file from the registered file of this number. Its flag
 * FOPEN_DIRECT_IO then leaves read(2) to the daemon, and mmap(2) to the kernel. */
void passthrough_open(struct fuse_open_out *answer, uint32_t backing);

#endif
