/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner - root becomes the user that mounted
 *
 * Called before root takes a mount over: the process that continues must have the rights of the
 * mount's owner and no others, because the mount is served with them and they decide who may
 * administer it.
 */
#ifndef GMSFS_DAEMON_OWNER_H
#define GMSFS_DAEMON_OWNER_H

#include "daemon/mountinfo.h"

/* Changes the user for good; the working directory and most of the environment go. The caller has
 * to close the descriptors that this user must not have. Does nothing if this process is not root
 * or if the mount is root's. After a negative errno part of the change may be done, and the process
 * must end. */
int owner_become(const struct mountinfo *mount);

#endif
