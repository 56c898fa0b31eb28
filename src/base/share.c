/* SPDX-License-Identifier: Apache-2.0 */
#include "base/share.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define KEPT_BACK_PART 16u

void share_init(struct share *share, uint64_t limit)
{
    *share = (struct share){.limit = limit};
}

static struct share_user *new_user(struct share *share)
{
    if (share->has_one)
        return calloc(1, sizeof(struct share_user));
    share->has_one = true;
    share->one = (struct share_user){0};
    return &share->one;
}

static void free_user(struct share *share, struct share_user *user)
{
    if (user == &share->one)
        share->has_one = false;
    else
        free(user);
}

void share_free(struct share *share)
{
    for (size_t i = 0; i < share->users.count; i++)
        free_user(share, share->users.items[i]);
    idvec_free(&share->users);
}

/* Returns the part of the bound for all users of this rank together. */
static uint64_t room_for(const struct share *share, enum share_rank rank)
{
    uint64_t kept_back = share->limit / KEPT_BACK_PART;

    if (rank == SHARE_ADMIN || share->limit < 2)
        return share->limit;
    if (kept_back == 0)
        kept_back = 1;
    return share->limit - (rank == SHARE_OWNER ? kept_back / 2 : kept_back);
}

uint64_t share_get_taken(const struct share *share, uint32_t uid)
{
    const struct share_user *user = idvec_find(&share->users, uid);

    return user ? user->taken : 0;
}

uint64_t share_get_room(const struct share *share, uint32_t uid, enum share_rank rank)
{
    uint64_t room = room_for(share, rank), own, half;

    if (share->taken >= room)
        return 0;
    if (rank == SHARE_ADMIN)
        return room - share->taken;
    own = share_get_taken(share, uid);
    half = (room - (share->taken - own) + 1) / 2;
    if (half <= own)
        return 0;
    return half - own < room - share->taken ? half - own : room - share->taken;
}

int share_check(const struct share *share, uint32_t uid, enum share_rank rank, uint64_t more)
{
    uint64_t room = room_for(share, rank);

    if (more > room || share->taken > room - more)
        return -ENOSPC;
    return more > share_get_room(share, uid, rank) ? -EDQUOT : 0;
}

bool share_is_ample(const struct share *share)
{
    uint64_t room = room_for(share, SHARE_USER);

    return share->taken < room / 2;
}

static struct share_user *find_or_make(struct share *share, uint32_t uid)
{
    struct share_user *user = idvec_find(&share->users, uid);

    if (user)
        return user;
    user = new_user(share);
    if (!user)
        return NULL;
    user->uid = uid;
    if (idvec_insert(&share->users, user) == 0)
        return user;
    free_user(share, user);
    return NULL;
}

static void drop_if_idle(struct share *share, const struct share_user *user)
{
    if (user->taken == 0 && user->pins == 0)
        free_user(share, idvec_remove(&share->users, user->uid));
}

int share_pin(struct share *share, uint32_t uid)
{
    struct share_user *user = find_or_make(share, uid);

    if (!user)
        return -ENOMEM;
    user->pins++;
    return 0;
}

void share_unpin(struct share *share, uint32_t uid)
{
    struct share_user *user = idvec_find(&share->users, uid);

    assert(user && user->pins > 0);
    user->pins--;
    drop_if_idle(share, user);
}

int share_take(struct share *share, uint32_t uid, uint64_t more)
{
    struct share_user *user = more ? find_or_make(share, uid) : NULL;

    if (more == 0)
        return 0;
    if (!user)
        return -ENOMEM;
    user->taken += more;
    share->taken += more;
    return 0;
}

void share_give(struct share *share, uint32_t uid, uint64_t less)
{
    struct share_user *user = less ? idvec_find(&share->users, uid) : NULL;

    if (less == 0)
        return;
    assert(user && user->taken >= less && share->taken >= less);
    user->taken -= less;
    share->taken -= less;
    drop_if_idle(share, user);
}
