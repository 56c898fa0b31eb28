/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move - the tiers that hold the bytes of a committed layout, and moves between them
 *
 * core.h includes this. A committed layout does not change, so its bytes can be in several tiers at
 * once: each full set is a copy. The fastest copy is the store's place, and the memories of the
 * committed layout are that copy's; the others are spares, complete and of the same generation. A
 * move makes one more copy, and one record ends it: either all memories of the layout are replaced
 * or none. Hash, generation, slots and serials stay.
 *
 * Only committed stores without a writer move. A session that took the lock by `lock`, `auto` or
 * ACQUIRE, or got descriptors, holds the store: the store moves to no slower tier meanwhile.
 */
#ifndef GMSFS_CORE_MOVE_H
#define GMSFS_CORE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

/* Tiers, from the fastest to the slowest, or none. */
enum core_place {
    CORE_PLACE_DEVICE = 0, /* the mount's own memory; also of a store without a committed layout */
    CORE_PLACE_HOST,
    CORE_PLACE_DISK,
    CORE_PLACE_NONE, /* the layout was kept, its bytes were dropped */
    CORE_PLACE_COUNT,
};

#define CORE_TIER_COUNT ((unsigned)CORE_PLACE_NONE)

struct layout;

struct core_move { /* a move in progress */
    uint64_t id;   /* 0 if none */
    enum core_place to;
    bool spare; /* true if it makes a spare in a slower tier and the place stays */
    uint64_t since_ms;
    uint64_t evictor; /* the store that it makes room for; 0 if none */
};

struct core_places {
    enum core_place place;
    /* By tier, the committed layout with the memories of that copy; NULL if none. */
    struct layout *spares[CORE_TIER_COUNT];
    struct core_move move;
    uint64_t moves;       /* number of changes of the place */
    uint64_t moved_ms;    /* last change of the place, wall clock; 0 if never */
    uint64_t promote_ms;  /* duration of the last promotion */
    uint64_t promoted_ms; /* time of the last promotion (record.now_ms); 0 if never */
    uint64_t version; /* number of changes of the file `residency`, except the bytes of a move */
};

#endif
