/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shm_object - opens a POSIX shared-memory object of the asking user, and of no other user
 *
 * For the opener. As root it could open any user's objects: so it opens as the asking user, and
 * accepts only objects that belong to that user. Never creates, follows or unlinks.
 */
#ifndef GMSFS_TRITON_SHM_OBJECT_H
#define GMSFS_TRITON_SHM_OBJECT_H

#include <stdint.h>

/* key: without slashes. 0 or a negative errno; -EACCES also if the object belongs to another
 * user. */
int shm_object_open(uint32_t uid, const char *key, int *fd);

#endif
