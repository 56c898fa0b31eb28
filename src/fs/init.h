/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init - what FUSE_INIT is answered: for the first worker of a mount, and for those that follow it
 *
 * For session.c and resume.c. Pure.
 */
#ifndef GMSFS_FS_INIT_H
#define GMSFS_FS_INIT_H

#include <fuse_lowlevel.h>

/* Requests under way that nobody waits for (RELEASE). As large as libfuse can say: with the default
 * of 12, slow transfers hold them back. Of a process without CAP_SYS_ADMIN the kernel takes less,
 * so the keeper says it again (attach_widen). */
#define FS_INIT_MAX_BACKGROUND 65535u
#define FS_INIT_MAX_WRITE      (1u << 20)

struct fuse_init_out;

/* What a new mount asks for, of what the kernel is capable of. */
void fs_init_choose(struct fuse_conn_info *connection);
/* The same as was answered then, whatever would be chosen now. */
void fs_init_repeat(struct fuse_conn_info *connection, const struct fuse_init_out *agreed);

#endif
