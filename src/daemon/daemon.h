/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon - `gmsfs mount` and `gmsfs version`, for src/cli/main.c
 *
 * Keeper and worker do not return from here before the mount is gone.
 */
#ifndef GMSFS_DAEMON_DAEMON_H
#define GMSFS_DAEMON_DAEMON_H

#include "base/failure.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/* `argv[0]` is the word before the arguments: "mount" or the program's name. Returns the exit
 * status: 0 when the mount answers (with -f: when it ended in order), 1 on failure, 2 for wrong
 * arguments; the reason was printed. */
int daemon_mount_main(int argc, char **argv);

/* Runs `gmsfs version --json`. Returns the exit status; 2, with nothing printed, for other
 * arguments. */
int daemon_version_main(int argc, char **argv);

/* `gmsfs journal`: prints a copy of a journal, or (file NULL) the journal of the process that
 * serves a mount. replays: applies its records instead, and prints how many there are. 0, or a
 * negative errno and why: it cannot be read, is damaged, or (-EINVAL) a state of it does not hold
 */
int daemon_show_journal(const char *file, pid_t pid, bool replays, FILE *to,
                        struct failure *failure);

/* True if the arguments look as mount(8) gives them to a file system: SOURCE DIRECTORY -o ... */
bool daemon_is_mount_helper(int argc, char **argv);

#endif
