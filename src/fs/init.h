/* SPDX-License-Identifier: Apache-2.0 */
/*
 * init - the answer to FUSE_INIT: of the first worker of a mount, and of the workers after it
 *
 * For session.c and resume.c. Pure.
 */
#ifndef GMSFS_FS_INIT_H
#define GMSFS_FS_INIT_H

#include <fuse_lowlevel.h>

/* Pending requests for which no process waits (RELEASE). The largest number of libfuse: with the
 * default of 12, slow transfers hold them back. From a process without CAP_SYS_ADMIN the kernel
 * takes less, so the keeper sets it again (attach_widen). */
#define FS_INIT_MAX_BACKGROUND 65535u
#define FS_INIT_MAX_WRITE      (1u << 20)

struct fuse_init_out;

/* Chooses the features of a new mount, out of the kernel's. */
void fs_init_choose(struct fuse_conn_info *connection);
/* Repeats the earlier answer in place of this build's choice. */
void fs_init_repeat(struct fuse_conn_info *connection, const struct fuse_init_out *agreed);

#endif
