/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share - a bound that several users have in common, so that none of them takes it all
 *
 * For whoever keeps a bound: core, service and front ends. A user takes at most half of what the
 * others leave over. A sixteenth of the bound is kept back from ordinary users: half of that for
 * the owner of the store that it is about, the other half for administrators alone (root and
 * whoever mounted), who have no share, only the bound. So whoever may look, revoke and drain always
 * finds room to do it. Pure. Single-threaded.
 */
#ifndef GMSFS_BASE_SHARE_H
#define GMSFS_BASE_SHARE_H

#include "base/idvec.h"

#include <stdbool.h>
#include <stdint.h>

enum share_rank {
    SHARE_USER,
    SHARE_OWNER, /* of the store that it is about */
    SHARE_ADMIN,
};

struct share_user {
    uint64_t uid; /* first for idvec */
    uint64_t taken;
    uint64_t pins;
};

/* Not copied while anybody has taken some: `users` points into it. */
struct share {
    uint64_t limit;
    uint64_t taken;        /* by all users */
    struct idvec users;    /* who have taken some, by uid */
    struct share_user one; /* mostly there is one: it takes no memory to note it */
    bool has_one;          /* `one` is among `users` */
};

void share_init(struct share *share, uint64_t limit);
void share_free(struct share *share);

/* May this user take `more`? 0; -EDQUOT: beyond its share; -ENOSPC: beyond what there is for such
 * a user at all. */
int share_check(const struct share *share, uint32_t uid, enum share_rank rank, uint64_t more);
/* How much more this user may take. */
uint64_t share_get_room(const struct share *share, uint32_t uid, enum share_rank rank);
/* Whatever a single user takes more, share_check agrees. */
bool share_is_ample(const struct share *share);

/* Room to note what this user takes, until share_unpin. -ENOMEM */
int share_pin(struct share *share, uint32_t uid);
void share_unpin(struct share *share, uint32_t uid);
/* Takes without a check. -ENOMEM: nothing was taken; never where the user is pinned, or has some.
 */
int share_take(struct share *share, uint32_t uid, uint64_t more);
void share_give(struct share *share, uint32_t uid, uint64_t less);

uint64_t share_get_taken(const struct share *share, uint32_t uid);

#endif
