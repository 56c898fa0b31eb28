/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/room.h"

#include "base/number.h"

#include <errno.h>

#define KIB (UINT64_C(1) << 10)

#define CREDIT_MIN_BYTES (256 * KIB)
#define CREDIT_PART      4u /* of the bytes left for users */
/* Of the reserve: allocations may have taken all other memory since the last look. */
#define CREDIT_RESERVE_PART 8u
#define STALE_MS            1000u /* other processes take memory, too */
#define SMALL_BYTES         (64 * KIB)
#define REFUSED_MS          20u /* a user that asks again and again does not cause a look each time */

void room_init(struct room *room, int (*look)(void *context, struct room_view *view), void *context)
{
    *room = (struct room){.look = look, .context = context};
}

static uint64_t floor_of(const struct room *room, enum room_rank rank)
{
    uint64_t eighth = room->seen.reserve_bytes / 8;

    switch (rank) {
    case ROOM_LOOK:
        return eighth;
    case ROOM_ADMIN:
        return 2 * eighth + room->seen.aside_bytes;
    default:
        return (room->is_strict ? 6 : 4) * eighth + room->seen.aside_bytes;
    }
}

static uint64_t count_free(const struct room *room)
{
    return number_subtract(room->seen.free_bytes, room->spent_bytes + room->held_bytes);
}

static uint64_t count_left(const struct room *room, enum room_rank rank)
{
    return number_subtract(count_free(room), floor_of(room, rank));
}

static void look(struct room *room, uint64_t now_ms)
{
    struct room_view view = {0};
    uint64_t credit, most;

    room->is_blind = room->look(room->context, &view) != 0;
    room->has_looked = true;
    room->looked_ms = now_ms;
    room->looks++;
    if (room->is_blind)
        return;
    room->seen = view;
    room->spent_bytes = 0;
    if (count_left(room, ROOM_USER) > 0)
        room->is_strict = false;
    credit = count_left(room, ROOM_USER) / CREDIT_PART;
    most = view.reserve_bytes / CREDIT_RESERVE_PART;
    room->credit_bytes = credit < most ? credit : most;
    if (room->credit_bytes < CREDIT_MIN_BYTES)
        room->credit_bytes = CREDIT_MIN_BYTES;
}

static bool is_old(const struct room *room, uint64_t now_ms)
{
    return !room->has_looked || now_ms - room->looked_ms >= STALE_MS;
}

static int admit(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms)
{
    bool is_spent = bytes > room->credit_bytes || room->spent_bytes > room->credit_bytes - bytes;
    bool is_refused = !room->is_blind && count_left(room, rank) < bytes;
    bool is_fresh = room->has_looked && now_ms - room->looked_ms < REFUSED_MS;

    if (is_refused ? !is_fresh : is_spent || is_old(room, now_ms))
        look(room, now_ms);
    return room->is_blind || count_left(room, rank) >= bytes ? 0 : -ENOMEM;
}

int room_take(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms)
{
    int error = room && bytes > 0 ? admit(room, rank, bytes, now_ms) : 0;

    if (!error)
        room_spend(room, bytes);
    return error;
}

int room_hold(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms)
{
    int error = room && bytes > 0 ? admit(room, rank, bytes, now_ms) : 0;

    if (!error && room)
        room->held_bytes += bytes;
    return error;
}

void room_release(struct room *room, uint64_t bytes)
{
    if (room)
        room->held_bytes = number_subtract(room->held_bytes, bytes);
}

void room_spend(struct room *room, uint64_t bytes)
{
    if (room)
        room->spent_bytes += bytes;
}

void room_give(struct room *room, uint64_t bytes)
{
    if (room)
        room->spent_bytes = number_subtract(room->spent_bytes, bytes);
}

uint64_t room_get_left(const struct room *room)
{
    return room->is_blind ? UINT64_MAX : count_left(room, ROOM_USER);
}

bool room_is_short(const struct room *room)
{
    return room && room->has_looked && !room->is_blind &&
           count_left(room, ROOM_USER) < room->seen.reserve_bytes / 4;
}

bool room_has_aside(struct room *room, uint64_t now_ms)
{
    if (!room)
        return true;
    if (!room->has_looked || now_ms - room->looked_ms >= REFUSED_MS)
        look(room, now_ms);
    return room->is_blind || count_free(room) >= room->seen.aside_bytes;
}

struct room_view room_get_view(struct room *room, uint64_t now_ms)
{
    if (room && is_old(room, now_ms))
        look(room, now_ms);
    return room ? room->seen : (struct room_view){0};
}
