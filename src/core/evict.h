/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - which stores have to leave the device so that somebody else fits
 *
 * One function of what it is given: no state, no clock, no memory of its own. For the service,
 * which asks anew whenever a record has changed something, and for tests. It never moves anything.
 */
#ifndef GMSFS_CORE_EVICT_H
#define GMSFS_CORE_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The more important, the greater. */
enum pool_class {
    POOL_CLASS_BATCH,
    POOL_CLASS_STANDARD,
    POOL_CLASS_HIGH,
    POOL_CLASS_CRITICAL,
    POOL_CLASS_COUNT,
};

#define EVICT_MAX_POOLS 256u

/* A budget, and how much of it is taken. */
struct evict_pool {
    enum pool_class class;
    uint64_t min_bytes; /* what it has not taken of this is nobody else's */
    uint64_t max_bytes; /* UINT64_MAX: none */
    uint64_t slots;     /* stores on the device at most; 0: as many as one likes */
    uint64_t used_bytes, resident;
};

/* A store on the device. */
struct evict_row {
    uint64_t store;
    size_t pool;           /* index */
    enum pool_class class; /* its pool's */
    uint64_t bytes;        /* that its leaving gives back */
    bool pinned;
    bool stuck;      /* it cannot leave: there is no place for it, or it could not just now */
    bool held;       /* somebody has its lock */
    bool waited_for; /* somebody waits for its lock */
    bool moving;
    bool has_spare;        /* leaving is a drop, not a copy */
    uint64_t last_used_ms; /* the end of its last hold */
    uint64_t promoted_ms;  /* when it came; 0: long ago */
    bool goes;             /* evict_choose: it is a victim */
};

struct evict_wish {
    uint64_t store; /* who wants it: never its own victim; 0: nobody that is there */
    size_t pool;    /* of the wish */
    uint64_t bytes;
    bool is_resident; /* the store has its slot already */
    uint64_t free_bytes;
    uint64_t now_ms, min_stay_ms;
};

/* How much more the pool may have now: of its own budget, and of what is free and not another
 * pool's. */
uint64_t evict_get_available(const struct evict_pool *pools, size_t pool_count, size_t pool,
                             uint64_t free_bytes);

/*
 * Whose leaving makes room for the wish: so many rows, which are put at the beginning in the order
 * in which they are to go; the others follow in no order. None of them could stay. 0: there is room
 * as it is. -EDQUOT: what the pools may have leaves no room, whoever goes; -ENOMEM: nor does the
 * device.
 *
 * Nobody goes who is pinned, stuck, held, waited for, moving, or came less than min_stay_ms ago. If
 * the pool has no room or no slot, its own stores go. Then, for the device's sake: the least
 * important class first, none that is more important than the wish's pool, and of other pools
 * nothing that their min_bytes protect. Of one class those with a spare go first, then who was used
 * longest ago, then the lowest id. The outcome does not depend on the order of the rows.
 */
long evict_choose(struct evict_row *rows, size_t row_count, const struct evict_pool *pools,
                  size_t pool_count, const struct evict_wish *wish);

/* A copy that its tier can do without: a spare of a store that is on the device, or where a store
 * is that has a spare below. */
struct evict_spare {
    uint64_t store;
    uint64_t bytes; /* that its tier gets back */
    bool is_place;  /* the store is there, and will be where its spare is */
    bool pinned;
    bool doubled;          /* one more is below */
    uint64_t last_used_ms; /* UINT64_MAX: somebody holds it */
    bool goes;
};

/*
 * Which spares have to be dropped so that their tier has so much more: so many rows, which are put
 * at the beginning; 0: all of them are not enough. First spares: those of stores that never have to
 * leave the device, then those that are doubled, then of who was used last, for a spare serves who
 * leaves; then the highest id. Then places, of who was used longest ago. None of them could stay.
 * The outcome does not depend on the order of the rows.
 */
size_t evict_choose_spares(struct evict_spare *rows, size_t count, uint64_t bytes);

#endif
