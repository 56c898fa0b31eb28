/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room - memory for what the daemon itself needs: heap, journal, texts, snapshots
 *
 * For src/service and src/daemon, on the loop's thread. Whatever grows because of a client asks
 * here first, and is refused while an errno can still be told: beyond a cgroup's limit the kernel
 * kills. A look at the machine and the cgroups (headroom.h) reads a dozen files, so one look stands
 * for many requests: what is granted is subtracted from what the last look found, and the next look
 * comes when a part of that is spent, when it is old, or when somebody would be refused. So
 * estimates need not be exact, and nobody has to give back what was granted.
 *
 * What was found free is given out down to a floor, which is another one for each rank:
 *   ROOM_USER   half of the reserve, and what is aside
 *   ROOM_ADMIN  a quarter of it, and what is aside
 *   ROOM_LOOK   an eighth of it: administrators who look, revoke and drain
 * Aside is what a replay and a snapshot of the present state take, and the eighth is for what is
 * never refused: ends of sessions, closes, events. Allocations of device memory on the host leave
 * over all of the reserve and what is aside: so where they have taken the rest, each rank still has
 * what is above its floor.
 */
#ifndef GMSFS_VMM_ROOM_H
#define GMSFS_VMM_ROOM_H

#include <stdbool.h>
#include <stdint.h>

enum room_rank {
    ROOM_USER,
    ROOM_ADMIN,
    ROOM_LOOK,
};

struct room_view {
    uint64_t free_bytes;    /* until the kernel kills */
    uint64_t reserve_bytes; /* of these, what allocations leave over */
    uint64_t aside_bytes;   /* for a replay and a snapshot of the present state */
};

struct room {
    /* What there is now. A negative errno: it cannot be told, and nobody is refused. */
    int (*look)(void *context, struct room_view *view);
    void *context;
    struct room_view seen; /* by the last look */
    uint64_t spent_bytes;  /* granted since then */
    uint64_t held_bytes;   /* granted, and not taken yet, however long that takes */
    uint64_t credit_bytes; /* with so much spent it is time for another look */
    uint64_t looked_ms;
    bool has_looked, is_blind; /* the last look failed */
    bool is_strict; /* until a quarter of the reserve is there for everybody: a worker before this
                       one was killed for want of memory */
    uint64_t looks;
};

void room_init(struct room *room, int (*look)(void *context, struct room_view *view),
               void *context);
/* May such a user have `bytes` more? -ENOMEM. NULL: there is no bound. */
int room_take(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms);
/* The same, for what will be had little by little: until room_release. */
int room_hold(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms);
void room_release(struct room *room, uint64_t bytes);
/* It is had in any case, and counted. */
void room_spend(struct room *room, uint64_t bytes);
/* It is free again. */
void room_give(struct room *room, uint64_t bytes);
/* What is left for ROOM_USER; UINT64_MAX: it cannot be told. */
uint64_t room_get_left(const struct room *room);
/* Little is left for ROOM_USER: it is time to give back what can be had again. */
bool room_is_short(const struct room *room);
/* Is what was set aside for a snapshot there? */
bool room_has_aside(struct room *room, uint64_t now_ms);
/* As of the last look, which is no older than a second. */
struct room_view room_get_view(struct room *room, uint64_t now_ms);

#endif
