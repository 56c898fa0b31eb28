/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program - the installed gmsfs, which may be another build than the running one
 *
 * Keeper only. Opens no file of a client's choosing: the path is that of the keeper's own program.
 */
#ifndef GMSFS_DAEMON_PROGRAM_H
#define GMSFS_DAEMON_PROGRAM_H

#include "daemon/abi.h"

#include <stddef.h>

/* The flag of `gmsfs mount` that makes it a worker that continues a mount; a descriptor's number
 * follows. */
#define PROGRAM_WORKER_FLAG "--worker="
/* The flag of `gmsfs version` that asks whether this build can continue a mount with these format
 * numbers. The answer is PROGRAM_FOLLOWS and its own numbers, or the reason against it. */
#define PROGRAM_FOLLOW_FLAG "--can-follow="
#define PROGRAM_FOLLOWS     "follows "

/* Finds the installed path of the running program. A negative errno on failure. */
int program_find(char *path, size_t room);
/* Opens the program and asks it whether it can continue a mount with the numbers `abi`; if so, *fd
 * is the program and `own` its numbers. Takes some milliseconds, at most some seconds. A negative
 * errno on failure, with the reason. */
int program_open(const char *path, const char *abi, int *fd, char own[ABI_TEXT_BYTES],
                 struct failure *failure);
/* Replaces this process by the program. Returns only on failure, a negative errno. */
int program_execute(int fd, char *const argv[]);

#endif
