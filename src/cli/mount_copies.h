/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_copies - what else is mounted of the file system of a mount
 *
 * A bind mount, or the same mount in another mount namespace, keeps a daemon whose mount is gone
 * here. They are noted before unmounting and shown after it: the kernel gives the number of a file
 * system that has gone to the next one, so only what had it before is a copy. Reads /proc alone.
 */
#ifndef GMSFS_CLI_MOUNT_COPIES_H
#define GMSFS_CLI_MOUNT_COPIES_H

#include "cli/mounts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOUNT_COPIES_MAX 64u /* that are noted, and so can be shown */

struct mount_copies {
    uint64_t ids[MOUNT_COPIES_MAX]; /* of mounts, as the kernel counts them for all namespaces */
    size_t count;
};

/* Those that any process sees which may be looked at. What cannot be read is none. */
void mount_copies_note(struct mount_copies *copies, const struct mount *mount);

/* Whether some of them are still mounted; then it says so, with what to do. */
bool mount_copies_show(const struct mount_copies *copies, const struct mount *mount);

#endif
