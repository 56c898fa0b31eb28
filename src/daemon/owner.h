/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner - root becomes the user who mounted
 *
 * Before it takes a mount over: what goes on has to have that one's rights and no others, for they
 * are whose files and GPU the mount is served with, and who may administer it.
 */
#ifndef GMSFS_DAEMON_OWNER_H
#define GMSFS_DAEMON_OWNER_H

#include "daemon/mountinfo.h"

#include <stdbool.h>

/* For good; the working directory and most of the environment go. Which descriptors that user may
 * have is the caller's to see to. Nothing is done where this is not root, or the mount is root's. A
 * negative errno: part of it may be done, and the process is to end. */
int owner_become(const struct mountinfo *mount);

#endif
