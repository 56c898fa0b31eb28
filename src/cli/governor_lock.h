/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_lock - one governor for a mount
 *
 * For cmd_governor.c. The lock is a name of the kernel's (an abstract socket, named for the file
 * system), so nothing is left of it after any death, it is the same in all mount namespaces, and
 * no file of the mount is kept open, which could not be unmounted then.
 */
#ifndef GMSFS_CLI_GOVERNOR_LOCK_H
#define GMSFS_CLI_GOVERNOR_LOCK_H

#include "cli/mounts.h"

/* Its descriptor, to be closed by close(2). -1 after the error was printed: somebody else has it.
 */
int governor_lock(const struct mount *mount);

#endif
