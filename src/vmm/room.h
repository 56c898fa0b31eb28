/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room - memory for the daemon itself: heap, journal, texts, snapshots
 *
 * For src/service and src/daemon, on the loop's thread. Everything that grows because of a client
 * asks here first, and is refused while an errno can still be returned: beyond a cgroup's limit the
 * kernel kills. A look at the machine and the cgroups (headroom.h) reads a dozen files, so one look
 * serves many requests: granted bytes are subtracted from the result of the last look, and the next
 * look comes when a part of that is spent, when it is old, or when a request would be refused. So
 * estimates need not be exact, and granted bytes need not be given back.
 *
 * Free bytes are granted down to a floor for each rank:
 *   ROOM_USER   half of the reserve, and the aside bytes
 *   ROOM_ADMIN  a quarter of it, and the aside bytes
 *   ROOM_LOOK   an eighth of it: administrators who look, revoke and drain
 * The aside bytes are for a replay and a snapshot of the present state, and the eighth is for work
 * that is never refused: ends of sessions, closes, events. Allocations of device memory on the host
 * leave the whole reserve and the aside bytes: so if they have taken all else, each rank still has
 * the bytes above its floor.
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
    uint64_t reserve_bytes; /* of these, bytes that allocations leave */
    uint64_t aside_bytes;   /* for a replay and a snapshot of the present state */
};

struct room {
    /* Measures the free bytes now. A negative errno: it failed, and nothing is refused. */
    int (*look)(void *context, struct room_view *view);
    void *context;
    struct room_view seen; /* by the last look */
    uint64_t spent_bytes;  /* granted since then */
    uint64_t held_bytes;   /* granted, and not taken yet, for any time */
    uint64_t credit_bytes; /* spent bytes that cause another look */
    uint64_t looked_ms;
    bool has_looked, is_blind; /* is_blind: the last look failed */
    bool is_strict; /* a worker before this one was killed because memory ran out: stricter until a
                       quarter of the reserve is free for users */
    uint64_t looks;
};

void room_init(struct room *room, int (*look)(void *context, struct room_view *view),
               void *context);
/* Grants a user of this rank `bytes` more, or -ENOMEM. room NULL: no bound. */
int room_take(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms);
/* The same for bytes that are taken little by little: until room_release. */
int room_hold(struct room *room, enum room_rank rank, uint64_t bytes, uint64_t now_ms);
void room_release(struct room *room, uint64_t bytes);
/* Counts bytes that are taken in any case. */
void room_spend(struct room *room, uint64_t bytes);
/* Counts bytes that are free again. */
void room_give(struct room *room, uint64_t bytes);
/* Returns the bytes left for ROOM_USER; UINT64_MAX: unknown. */
uint64_t room_get_left(const struct room *room);
/* Returns true if little is left for ROOM_USER: caches should be freed. */
bool room_is_short(const struct room *room);
/* Returns true if the aside bytes for a snapshot are free. */
bool room_has_aside(struct room *room, uint64_t now_ms);
/* Returns the last look, which is no older than a second. */
struct room_view room_get_view(struct room *room, uint64_t now_ms);

#endif
