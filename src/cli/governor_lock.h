/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_lock - one governor for a mount
 *
 * For governor_round.c. The lock is a connection to the daemon, which lets one at a time govern the
 * mount (GMSFS_FDS_GOVERN): all namespaces have the same lock, it ends with its process, and only
 * root and the user that mounted can take it. A lock on a file of the mount would not do: any
 * reader could take that, and an open file keeps the mount from being unmounted. Never prints,
 * never hangs in the mount.
 */
#ifndef GMSFS_CLI_GOVERNOR_LOCK_H
#define GMSFS_CLI_GOVERNOR_LOCK_H

#include "base/failure.h"

/* Takes the lock of the mount at `path`, or makes sure that this process still has it: when the
 * daemon's worker is replaced, the lock is free. lock: the connection, -1 before the first call;
 * the caller closes it. -EPERM: another process has the lock, this user has no right to it, or the
 * daemon is too old to have one; another error: the daemon did not answer, and may do so later. */
int governor_lock(const char *path, int *lock, struct failure *failure);

#endif
