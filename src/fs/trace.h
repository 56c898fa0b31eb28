/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace - what the front end of FUSE and `.fds` writes to the log at level debug
 *
 * The caller asks log_is_debug() first: off, a site costs one branch.
 */
#ifndef GMSFS_FS_TRACE_H
#define GMSFS_FS_TRACE_H

#include "base/log.h"
#include "fs/fs_internal.h"

/* A request of the kernel, which is about to be decoded; `size` may be too small for its header. */
void fs_trace_request(const struct fs *fs, const void *request, size_t size);
/* An answer to the kernel, on its way; news for the kernel are left out. */
void fs_trace_answer(const struct iovec *parts, int count, size_t bytes);
/* A request on `.fds`, and its answer, of the process that the worker works for now. */
void fs_trace_asked(const struct fs *fs, uint32_t op, uint32_t batch, uint32_t uid);
void fs_trace_told(const struct fs *fs, int error, size_t bytes, unsigned descriptors);

#endif
