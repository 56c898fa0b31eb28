/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share - a bound shared between users, so that no user can take all of it
 *
 * For core, service and front ends. A user may take at most half of the part that the other users
 * have left. A sixteenth of the bound is reserved: half of it for the owner of the store concerned,
 * the other half for administrators (root and the user that mounted), for which only the whole
 * bound counts. So administrators always have room to look, revoke and drain. Pure.
 * Single-threaded.
 */
#ifndef GMSFS_BASE_SHARE_H
#define GMSFS_BASE_SHARE_H

#include "base/idvec.h"

#include <stdbool.h>
#include <stdint.h>

enum share_rank {
    SHARE_USER,
    SHARE_OWNER, /* of the store concerned */
    SHARE_ADMIN,
};

struct share_user {
    uint64_t uid; /* first member, for idvec */
    uint64_t taken;
    uint64_t pins;
};

/* Do not copy while a user has taken some: `users` points into it. */
struct share {
    uint64_t limit;
    uint64_t taken;        /* taken by all users */
    struct idvec users;    /* users that have taken some, by uid */
    struct share_user one; /* the first user, without an allocation: often there is only one */
    bool has_one;          /* `one` is among `users` */
};

void share_init(struct share *share, uint64_t limit);
void share_free(struct share *share);

/* Checks if this user may take `more`. 0; -EDQUOT: beyond the user's share; -ENOSPC: beyond the
 * bound for users of this rank. */
int share_check(const struct share *share, uint32_t uid, enum share_rank rank, uint64_t more);
/* Returns the amount that this user may still take. */
uint64_t share_get_room(const struct share *share, uint32_t uid, enum share_rank rank);
/* True while so little is taken that share_check lets every user take one more. */
bool share_is_ample(const struct share *share);

/* Keeps an entry for this user until share_unpin, so that share_take cannot fail. -ENOMEM */
int share_pin(struct share *share, uint32_t uid);
void share_unpin(struct share *share, uint32_t uid);
/* Takes without a check. -ENOMEM: nothing was taken; never for a user that is pinned or has taken
 * some. */
int share_take(struct share *share, uint32_t uid, uint64_t more);
void share_give(struct share *share, uint32_t uid, uint64_t less);

uint64_t share_get_taken(const struct share *share, uint32_t uid);

#endif
