/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups - the groups of a user, as the machine's user database has them, without a long wait
 *
 * For the opener, which serves all users and asks for one of them: a network directory of users may
 * answer late, or never. A thread asks it, and the answer is cached for a while. Called by one
 * thread.
 */
#ifndef GMSFS_TRITON_GROUPS_H
#define GMSFS_TRITON_GROUPS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define GROUPS_WAIT_MS 2000u
#define GROUPS_KEPT_MS 10000u

struct groups {
    gid_t gid;
    gid_t *list; /* malloc'ed; NULL: none */
    size_t count;
};

/* 0; -ENOENT: no user has this number; -ETIMEDOUT: not known yet, a later call may find it; or
 * another negative errno. Waits at most GROUPS_WAIT_MS, and not at all while an earlier answer is
 * overdue. */
int groups_find(uint32_t uid, struct groups *groups);
void groups_free(struct groups *groups);

#endif
