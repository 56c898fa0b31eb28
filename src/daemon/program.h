/* SPDX-License-Identifier: Apache-2.0 */
/*
 * program - the gmsfs that is installed, as another build than the one that runs
 *
 * Keeper only. Looks into no file of a client's choosing: the path is that of the keeper's own
 * program.
 */
#ifndef GMSFS_DAEMON_PROGRAM_H
#define GMSFS_DAEMON_PROGRAM_H

#include "daemon/abi.h"

#include <stddef.h>

/* The word behind `gmsfs mount` that makes it a worker that goes on, and the descriptor's number.
 */
#define PROGRAM_WORKER_FLAG "--worker="
/* And that behind `gmsfs version`: can this build go on with what has these numbers? It prints its
 * own behind this word, or why not. */
#define PROGRAM_FOLLOW_FLAG "--can-follow="
#define PROGRAM_FOLLOWS     "follows "

/* Of the running process: where its program is installed. A negative errno */
int program_find(char *path, size_t room);
/* Opens it, and asks it whether it can go on with what has the numbers `abi`: then *fd is it, and
 * `own` are its numbers. Takes some milliseconds, at most some seconds. A negative errno, and why.
 */
int program_open(const char *path, const char *abi, int *fd, char own[ABI_TEXT_BYTES],
                 struct failure *failure);
/* Becomes it. Returns only on failure: a negative errno */
int program_execute(int fd, char *const argv[]);

#endif
