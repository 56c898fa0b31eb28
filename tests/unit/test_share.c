/* SPDX-License-Identifier: Apache-2.0 */
#include "base/share.h"
#include "tap.h"

#include <errno.h>

#define HOG  1000u
#define POOR 1001u

static struct share share;

static void start(uint64_t limit)
{
    share_free(&share);
    share_init(&share, limit);
}

/* Takes one at a time until it is refused. */
static uint64_t fill(uint32_t uid, enum share_rank rank)
{
    uint64_t count = 0;

    while (share_check(&share, uid, rank, 1) == 0) {
        require(share_take(&share, uid, 1) == 0);
        count++;
    }
    return count;
}

TAP_TEST(one_user_takes_half_of_what_is_free_and_the_next_half_of_the_rest)
{
    start(1600);
    check_int(fill(HOG, SHARE_USER), 750);
    check_int(share_check(&share, HOG, SHARE_USER, 1), -EDQUOT);
    check_int(fill(POOR, SHARE_USER), 375);
    check_int(share_check(&share, POOR, SHARE_USER, 1), -EDQUOT);
}

TAP_TEST(many_users_together_leave_a_sixteenth_to_owners_and_administrators)
{
    start(1600);
    for (uint32_t uid = 1; uid < 100; uid++)
        fill(uid, SHARE_USER);
    check_int(share.taken, 1500);
    check_int(share_check(&share, 500, SHARE_USER, 1), -ENOSPC);
    check_int(fill(500, SHARE_OWNER), 25);
    for (uint32_t uid = 501; uid < 600; uid++)
        fill(uid, SHARE_OWNER);
    check_int(share.taken, 1550);
    check_int(share_check(&share, 501, SHARE_OWNER, 1), -ENOSPC);
    check_int(fill(0, SHARE_ADMIN), 50);
    check_int(share_check(&share, 0, SHARE_ADMIN, 1), -ENOSPC);
}

TAP_TEST(an_administrator_has_the_whole_bound)
{
    start(64);
    check_int(fill(0, SHARE_ADMIN), 64);
}

TAP_TEST(much_at_once_counts_as_the_same_one_by_one)
{
    start(1600);
    check_int(share_check(&share, HOG, SHARE_USER, 750), 0);
    check_int(share_check(&share, HOG, SHARE_USER, 751), -EDQUOT);
    check_int(share_check(&share, HOG, SHARE_USER, 1501), -ENOSPC);
    check_int(share_check(&share, HOG, SHARE_USER, UINT64_MAX), -ENOSPC);
    check_int(share_check(&share, 0, SHARE_ADMIN, 1601), -ENOSPC);
}

TAP_TEST(shares_given_back_are_there_for_others)
{
    start(1600);
    fill(HOG, SHARE_USER);
    share_give(&share, HOG, 700);
    check_int(share_get_taken(&share, HOG), 50);
    check_int(fill(POOR, SHARE_USER), 725);
    share_give(&share, HOG, 50);
    share_give(&share, POOR, 725);
    check_int(share.taken, 0);
    check_int(share.users.count, 0);
}

TAP_TEST(with_ample_room_no_user_is_refused)
{
    start(1600);
    while (share_is_ample(&share)) {
        check_int(share_check(&share, HOG, SHARE_USER, 1), 0);
        check_int(share_check(&share, POOR, SHARE_USER, 1), 0);
        require(share_take(&share, HOG, 1) == 0);
    }
    check_int(share.taken, 750);
}

TAP_TEST(a_pinned_user_is_remembered_without_having_anything)
{
    start(16);
    check_int(share_pin(&share, HOG), 0);
    check_int(share_take(&share, HOG, 3), 0);
    share_give(&share, HOG, 3);
    check_int(share.users.count, 1);
    share_unpin(&share, HOG);
    check_int(share.users.count, 0);
}

TAP_TEST(small_bounds_are_shared_too)
{
    start(2);
    check_int(fill(HOG, SHARE_USER), 1);
    check_int(share_check(&share, POOR, SHARE_USER, 1), -ENOSPC);
    check_int(share_check(&share, 0, SHARE_ADMIN, 1), 0);
    start(1);
    check_int(fill(HOG, SHARE_USER), 1);
    start(0);
    check_int(fill(0, SHARE_ADMIN), 0);
}
