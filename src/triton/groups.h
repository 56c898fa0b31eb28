/* SPDX-License-Identifier: Apache-2.0 */
/*
 * groups - which groups a user is in, as the machine has it, without waiting for long
 *
 * For the opener, which serves all users and asks for one of them: a directory of users over a
 * network may take its time, or not answer at all. A thread asks it then, and what it says is kept
 * for a while. Called by one thread.
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
    gid_t *list; /* malloc'ed; NULL: there are none */
    size_t count;
};

/* 0; -ENOENT: nobody has this number; -ETIMEDOUT: it is not known yet, a later call may find it; or
 * another negative errno. At most GROUPS_WAIT_MS, and while somebody's are overdue at once. */
int groups_find(uint32_t uid, struct groups *groups);
void groups_free(struct groups *groups);

#endif
