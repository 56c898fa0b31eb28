/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_look - what a mount says about itself, without ever hanging on it
 *
 * For `gmsfs status` and `gmsfs umount`. A daemon that is stopped or stuck answers no system call,
 * and not all of those can be killed, so a child process looks, and is left behind when it does not
 * come back in time. Takes no lock.
 */
#ifndef GMSFS_CLI_MOUNT_LOOK_H
#define GMSFS_CLI_MOUNT_LOOK_H

#include "cli/mounts.h"

#include <jansson.h>

#define MOUNT_LOOK_TIMEOUT_MS 3000u

/*
 * Looks at all of them at the same time. (*looks)[i], of mount i, is an object:
 *   mount, source   text
 *   health          "ok" or what the device says, "dead", "silent" (no answer in time), "no
 * access", "unknown" (the look ended in another error) device          the file `device`; null
 * unless it answered stores          [{name, ...the file `info`, sessions: [{id, mode, status, pid,
 * uid, comm, since, files}]}], by name errno, error    its name and words, where `device` or the
 * list of stores could not be read; of a store, where its `info` or `sessions` could not 0 or
 * -ENOMEM. free(3) the array and json_decref its members.
 */
int mount_look(const struct mounts *mounts, json_t ***looks);

/* A line, indented, for each session of the mount, and for what could not be seen; free(3). NULL
 * when nothing could be said. */
char *mount_look_holders(const struct mount *mount);

/* The table of the file `sessions` as an array of objects; pure. NULL when out of memory. */
json_t *mount_look_parse_sessions(const char *text);

#endif
