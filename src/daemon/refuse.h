/* SPDX-License-Identifier: Apache-2.0 */
/*
 * refuse - answers requests in the place of a dead worker
 *
 * When a connection is aborted, the kernel answers waiting requests with ECONNABORTED and later
 * ones with ENOTCONN. Users should see one error for one cause: so, before it aborts, the keeper
 * answers ENOTCONN to the requests that the worker had not answered (struct fs_ledger) and to the
 * unread ones. Of a request it looks at the number and the kind in its header only, never at bytes
 * that a client chose.
 */
#ifndef GMSFS_DAEMON_REFUSE_H
#define GMSFS_DAEMON_REFUSE_H

#include "fs/fs.h"

/* `fuse_fd` must not block. Bounded in time; the abort ends the requests that remain. */
void refuse_all(int fuse_fd, const struct fs_ledger *ledger);

#endif
