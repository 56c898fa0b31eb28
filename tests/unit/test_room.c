/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how much the daemon itself may grow: which users are refused when, and how seldom it
 * measures. */
#include "vmm/room.h"

#include "tap.h"

#include <errno.h>

#define KIB      (UINT64_C(1) << 10)
#define MIB      (UINT64_C(1) << 20)
#define RESERVE  (32 * MIB)
#define ASIDE    (6 * MIB)
#define STALE_MS 1000u

static struct room_view there; /* result of a measurement */
static int look_error;
static struct room room;
static uint64_t now_ms;

static int look(void *context, struct room_view *view)
{
    check(context == &room);
    *view = there;
    return look_error;
}

static void begin(uint64_t free_bytes)
{
    there = (struct room_view){
        .free_bytes = free_bytes, .reserve_bytes = RESERVE, .aside_bytes = ASIDE};
    look_error = 0;
    now_ms = 5000;
    room_init(&room, look, &room);
}

/* Takes the granted bytes at once. */
static int take(enum room_rank rank, uint64_t bytes)
{
    int error = room_take(&room, rank, bytes, now_ms);

    if (!error)
        there.free_bytes -= bytes;
    return error;
}

static void give(uint64_t bytes)
{
    there.free_bytes += bytes;
    room_give(&room, bytes);
}

TAP_TEST(without_a_room_no_user_is_refused)
{
    check_int(room_take(NULL, ROOM_USER, UINT64_MAX, 0), 0);
    check_int(room_hold(NULL, ROOM_USER, UINT64_MAX, 0), 0);
    check(room_has_aside(NULL, 0));
    check(!room_is_short(NULL));
}

TAP_TEST(with_unknown_memory_no_user_is_refused)
{
    begin(0);
    look_error = -EIO;
    check_int(room_take(&room, ROOM_USER, 100 * MIB, now_ms), 0);
    check(!room_is_short(&room));
    check(room_has_aside(&room, now_ms));
}

TAP_TEST(each_rank_has_a_floor_of_its_own)
{
    begin(RESERVE / 2 + ASIDE + MIB);
    check_int(take(ROOM_USER, 2 * MIB), -ENOMEM);
    check_int(take(ROOM_USER, MIB), 0);
    check_int(take(ROOM_USER, 1), -ENOMEM);
    check_int(take(ROOM_ADMIN, RESERVE / 4), 0);
    check_int(take(ROOM_ADMIN, 1), -ENOMEM);
    check_int(take(ROOM_LOOK, ASIDE + RESERVE / 8), 0);
    check_int(take(ROOM_LOOK, 1), -ENOMEM);
}

TAP_TEST(allocations_leave_something_for_every_user)
{
    begin(RESERVE + ASIDE);
    check_int(take(ROOM_USER, RESERVE / 2), 0);
    check_int(take(ROOM_USER, 1), -ENOMEM);
}

TAP_TEST(one_look_stands_for_many_requests)
{
    begin(1024 * MIB);
    for (int i = 0; i < 4096; i++)
        check_int(take(ROOM_USER, KIB), 0);
    check_int((long long)room.looks, 1);
    for (int i = 0; i < 4096; i++)
        check_int(take(ROOM_USER, KIB), 0);
    check_int((long long)room.looks, 2);
}

TAP_TEST(no_more_is_granted_by_one_look_than_the_reserve_can_bear)
{
    begin(1024 * MIB);
    check_int(take(ROOM_USER, KIB), 0);
    there.free_bytes = RESERVE / 2 + ASIDE; /* all the rest was taken for allocations */
    uint64_t granted = 0;
    while (take(ROOM_USER, KIB) == 0)
        granted += KIB;
    check(granted <= RESERVE / 8);
}

TAP_TEST(a_look_grows_old)
{
    begin(1024 * MIB);
    check_int(take(ROOM_USER, KIB), 0);
    there.free_bytes = MIB;
    now_ms += STALE_MS - 1;
    check_int(take(ROOM_USER, KIB), 0);
    now_ms++;
    check_int(take(ROOM_USER, KIB), -ENOMEM);
}

TAP_TEST(a_user_refused_again_and_again_causes_no_look_each_time)
{
    begin(0);
    for (int i = 0; i < 1000; i++)
        check_int(take(ROOM_USER, KIB), -ENOMEM);
    check_int((long long)room.looks, 1);
    there.free_bytes = 1024 * MIB;
    now_ms += 20;
    check_int(take(ROOM_USER, KIB), 0);
}

TAP_TEST(a_refused_user_does_not_stop_an_administrator)
{
    begin(RESERVE / 2 + ASIDE);
    check_int(take(ROOM_USER, KIB), -ENOMEM);
    check_int(take(ROOM_ADMIN, KIB), 0);
    check_int(take(ROOM_LOOK, KIB), 0);
}

TAP_TEST(bytes_given_back_can_be_taken_again)
{
    begin(RESERVE / 2 + ASIDE + MIB);
    check_int(take(ROOM_USER, MIB), 0);
    check_int(take(ROOM_USER, 1), -ENOMEM);
    give(MIB);
    check_int(take(ROOM_USER, MIB), 0);
    check_int(take(ROOM_USER, 1), -ENOMEM);
    room_give(&room, 100 * MIB); /* more than was granted since the last measurement */
    check_int(take(ROOM_USER, 2 * MIB), -ENOMEM);
}

TAP_TEST(held_bytes_count_beyond_a_look)
{
    begin(RESERVE / 2 + ASIDE + 4 * MIB);
    check_int(room_hold(&room, ROOM_USER, 3 * MIB, now_ms), 0);
    now_ms += STALE_MS;
    check_int(take(ROOM_USER, 2 * MIB), -ENOMEM);
    check_int(take(ROOM_USER, MIB), 0);
    check_int(take(ROOM_USER, 2 * MIB), -ENOMEM);
    room_release(&room, 3 * MIB);
    check_int(take(ROOM_USER, 2 * MIB), 0);
}

TAP_TEST(bytes_that_are_never_refused_count_as_well)
{
    begin(RESERVE / 2 + ASIDE + MIB);
    check_int(take(ROOM_USER, KIB), 0);
    room_spend(&room, MIB);
    check_int(take(ROOM_USER, KIB), -ENOMEM);
}

TAP_TEST(it_is_short_before_any_user_is_refused)
{
    begin(RESERVE + ASIDE);
    check_int(take(ROOM_USER, RESERVE / 4), 0);
    check(!room_is_short(&room));
    check_int(take(ROOM_USER, KIB), 0);
    check(room_is_short(&room));
}

TAP_TEST(bytes_set_aside_are_there_until_administrators_take_them)
{
    begin(RESERVE / 8 + ASIDE);
    check(room_has_aside(&room, now_ms));
    check_int(take(ROOM_LOOK, RESERVE / 8), 0);
    check_int(take(ROOM_LOOK, KIB), 0);
    check(!room_has_aside(&room, now_ms));
}

TAP_TEST(after_a_worker_that_was_killed_for_it_there_has_to_be_more)
{
    begin(RESERVE / 2 + ASIDE + MIB);
    room.is_strict = true;
    check_int(take(ROOM_USER, KIB), -ENOMEM);
    check_int(take(ROOM_ADMIN, KIB), 0);
    there.free_bytes = RESERVE / 4 * 3 + ASIDE + MIB;
    now_ms += STALE_MS;
    check_int(take(ROOM_USER, KIB), 0);
    there.free_bytes = RESERVE / 2 + ASIDE + MIB;
    now_ms += STALE_MS;
    check_int(take(ROOM_USER, KIB), 0);
}
