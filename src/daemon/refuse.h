/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse - answering for a worker that is dead
 *
 * When a connection is aborted, the kernel tells those who wait in it ECONNABORTED, and those who
 * come later ENOTCONN. Users are to see one error for one cause: so the keeper, before it aborts,
 * answers ENOTCONN to what the worker had not answered (struct fs_ledger) and to what nobody has
 * read yet. Of a request it looks at the number and the kind in its header, at nothing that a
 * client chose.
 */
#ifndef GMSFS_DAEMON_REFUSE_H
#define GMSFS_DAEMON_REFUSE_H

#include "fs/fs.h"

/* `fuse_fd` does not block. Bounded in time; what is left over is the abort's. */
void refuse_all(int fuse_fd, const struct fs_ledger *ledger);

#endif
