/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rights - the rights of users, decided in one place for all front ends
 *
 * A store has an owner, a group and mode bits, as a directory has. Root may do everything;
 * administrators (root and the user that mounted) make and remove stores, drain and unmount. The
 * rights of an open file were fixed when it was opened: its direction, its user. Front ends ask;
 * each call of the service that changes or shows something asks again.
 */
#ifndef GMSFS_SERVICE_RIGHTS_H
#define GMSFS_SERVICE_RIGHTS_H

#include "service/service.h"

#define SERVICE_READ   4u /* as the bits of a mode */
#define SERVICE_WRITE  2u
#define SERVICE_SEARCH 1u

/* Checks whether the caller may do all of these with the contents of the store (0: of the top of
 * the tree). 0, -EACCES, -ENOENT */
int service_check_right(const struct service *s, uint64_t store,
                        const struct service_caller *caller, unsigned rights);
/* Returns 1, 0, or a negative errno if the caller's groups are not visible. */
int service_is_in_group(const struct service_caller *caller, uint32_t gid);
bool service_is_admin(const struct service *s, uint32_t uid);
/* Returns true for administrators and for the store's owner. */
bool service_is_owner(const struct service *s, uint64_t store, uint32_t uid);
/* Returns the directions in which a file of this kind can be opened at all, by root too. */
unsigned service_get_directions(enum core_kind kind);

#endif
