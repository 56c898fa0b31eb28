/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move - where the bytes of a committed layout are, and how they come from one tier to another
 *
 * Included by core.h, for all who include that. A committed layout does not change, so its bytes
 * can be in several tiers at once: each whole set of them is a copy. The fastest copy is the
 * store's place, and the memories of the committed layout are that copy's; the others are spares,
 * whole and of the same generation. A move makes one more copy, and its end is one record: all
 * memories of the layout are others from then on, or none is. Hash, generation, slots and serials
 * stay.
 *
 * Only what is committed, and has no writer, moves. Whoever has the lock by `lock`, `auto` or
 * ACQUIRE, or was handed descriptors, holds the store: its place gets no slower meanwhile.
 */
#ifndef GMSFS_CORE_MOVE_H
#define GMSFS_CORE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* A tier, from the fastest to the slowest, or none. */
enum core_place {
    CORE_PLACE_DEVICE = 0, /* the mount's own memory; also where nothing is committed */
    CORE_PLACE_HOST,
    CORE_PLACE_DISK,
    CORE_PLACE_NONE, /* the bytes were given up, the layout was kept */
    CORE_PLACE_COUNT,
};

#define CORE_TIER_COUNT ((unsigned)CORE_PLACE_NONE)

struct layout;

struct core_move { /* one that is under way */
    uint64_t id;   /* 0: none is */
    enum core_place to;
    bool spare; /* makes a spare in a slower tier, and the place stays */
    uint64_t since_ms;
    uint64_t evictor; /* the store that it leaves the device for; 0: for none */
};

struct core_places {
    enum core_place place;
    /* The committed layout with the memories of another copy; NULL: none in that tier. */
    struct layout *spares[CORE_TIER_COUNT];
    struct core_move move;
    uint64_t moves;       /* how often the place has changed */
    uint64_t moved_ms;    /* when it last did: wall clock; 0: it never did */
    uint64_t promote_ms;  /* how long the last promotion took */
    uint64_t promoted_ms; /* when that was: a record's time; 0: it never was */
    uint64_t version; /* counts changes of what `residency` shows, but for the bytes of a move */
};

#endif
