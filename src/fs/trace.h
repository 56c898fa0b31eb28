/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - lines of the front ends of FUSE and `.fds` in the log at level debug
 *
 * The caller asks log_is_debug() first: off, a site costs one branch.
 */
#ifndef GMSFS_FS_TRACE_H
#define GMSFS_FS_TRACE_H

#include "base/log.h"
#include "fs/fs_internal.h"

bool fs_trace_has_name(uint32_t opcode);
/* "other" if it has no name. */
const char *fs_trace_opcode_name(uint32_t opcode);
/* Writes a request of the kernel. A request shorter than its header is left out. */
void fs_trace_request(const struct fs *fs, const void *request, size_t size);
/* Writes an answer to the kernel. Notifications are left out. */
void fs_trace_answer(const struct iovec *parts, int count, size_t bytes);
/* Write a request on `.fds` and its answer. asker: process and operation (fs_at_asker) */
void fs_trace_asked(uint64_t asker, uint32_t op, uint32_t batch, uint32_t uid);
void fs_trace_told(uint64_t asker, int error, size_t bytes, unsigned descriptors);

#endif
