/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioctl - commands whose answer may come later; shared by ioctl.c and ioctl_later.c alone
 *
 * Each takes over the request, whose payload is the caller's argument.
 */
#ifndef GMSFS_FS_IOCTL_H
#define GMSFS_FS_IOCTL_H

#include "fs/fs_internal.h"

/* Returns the ABI's number of the granted mode. */
uint32_t ioctl_get_mode(enum lock_mode mode);
/* Answers success with the first bytes of the payload, as far as the caller has room. */
int ioctl_answer(struct fs_request *request, size_t size);

void ioctl_acquire(struct fs_request *request, const struct core_file *file);
void ioctl_release(struct fs_request *request, const struct core_file *file);
void ioctl_alloc(struct fs_request *request, const struct core_file *file);
void ioctl_alloc_each(struct fs_request *request, const struct core_file *file);
void ioctl_reserve(struct fs_request *request, const struct core_file *file);
void ioctl_export(struct fs_request *request, const struct core_file *file);
void ioctl_commit(struct fs_request *request, const struct core_file *file);
void ioctl_abort(struct fs_request *request, const struct core_file *file);
void ioctl_apply(struct fs_request *request, const struct core_file *file);
/* Drops the bytes of an APPLY, so that no later one finds them: `document`, or if that is NULL, for
 * an APPLY without memory for a request, the handle's. */
void ioctl_drop_gathered(struct fs *fs, uint64_t file, struct fs_gathered *document);

#endif
