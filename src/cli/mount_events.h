/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mount_events - the events of a mount as they come
 *
 * For `gmsfs status --watch` and `gmsfs top`. A child process reads them, because a wait in a stuck
 * mount cannot be ended.
 */
#ifndef GMSFS_CLI_MOUNT_EVENTS_H
#define GMSFS_CLI_MOUNT_EVENTS_H

#include "base/child.h"

/* Starts a child that writes an empty line to *fd, then the last events of the mount, then each new
 * one, as lines of the file `events`; the first may be the end of one. *fd, which does not block,
 * ends with the daemon, or when the file cannot be read. 0 or a negative errno. */
int mount_events_start(const char *mount, struct child **child, int *fd);
/* Ends the child; *child is NULL then, and *fd -1. Both may be so before. */
void mount_events_end(struct child **child, int *fd);

#endif
