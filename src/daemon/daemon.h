/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon - `gmsfs mount` and `gmsfs version`, for src/cli/main.c
 *
 * Keeper and worker do not return from here before the mount is gone.
 */
#ifndef GMSFS_DAEMON_DAEMON_H
#define GMSFS_DAEMON_DAEMON_H

#include <stdbool.h>

/* `argv[0]` is the word before the arguments: "mount" or the program's name. Returns the exit
 * status: 0 when the mount answers (with -f: when it ended in order), 1 on failure, 2 for wrong
 * arguments; the reason was printed. */
int daemon_mount_main(int argc, char **argv);

/* Runs `gmsfs version --json`. Returns the exit status; 2, with nothing printed, for other
 * arguments. */
int daemon_version_main(int argc, char **argv);

/* True if the arguments look as mount(8) gives them to a file system: SOURCE DIRECTORY -o ... */
bool daemon_is_mount_helper(int argc, char **argv);

#endif
