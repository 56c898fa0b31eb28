/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_object - opens a POSIX shared-memory object for the user who asks, and for nobody else
 *
 * For the opener. It may be root's, and could open what belongs to anybody: so it opens as that
 * user, and then only what is his. Never creates, follows or unlinks anything.
 */
#ifndef GMSFS_TRITON_SHM_OBJECT_H
#define GMSFS_TRITON_SHM_OBJECT_H

#include <stdint.h>

/* key: without slashes before it, and without any inside. 0 or a negative errno: -EACCES also where
 * it is another user's. */
int shm_object_open(uint32_t uid, const char *key, int *fd);

#endif
