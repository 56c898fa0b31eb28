/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict - chooses the stores that have to leave the device so that another one fits
 *
 * Pure functions of their arguments: no state, no clock, no allocation. The service asks again
 * after every record that changed something; tests call them too. Nothing here moves a store.
 */
#ifndef GMSFS_CORE_EVICT_H
#define GMSFS_CORE_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A greater class is more important. */
enum pool_class {
    POOL_CLASS_BATCH,
    POOL_CLASS_STANDARD,
    POOL_CLASS_HIGH,
    POOL_CLASS_CRITICAL,
    POOL_CLASS_COUNT,
};

#define EVICT_MAX_POOLS 256u

/* A pool's budget and its use. */
struct evict_pool {
    enum pool_class class;
    uint64_t min_bytes; /* the unused part of it is reserved for this pool */
    uint64_t max_bytes; /* UINT64_MAX: no limit */
    uint64_t slots;     /* most stores on the device; 0: no limit */
    uint64_t used_bytes, resident;
};

/* A store on the device. */
struct evict_row {
    uint64_t store;
    size_t pool;           /* index in the pools */
    enum pool_class class; /* of its pool */
    uint64_t bytes;        /* bytes that its leaving frees */
    bool pinned;
    bool stuck;      /* it cannot leave: no tier has room, or its last move failed just now */
    bool held;       /* a session holds it */
    bool waited_for; /* its lock has waiters */
    bool moving;
    bool has_spare;        /* its leaving copies no bytes */
    uint64_t last_used_ms; /* end of its last hold */
    uint64_t promoted_ms;  /* when it was promoted; 0: long ago */
    bool goes;             /* result of evict_choose: it is a victim */
};

struct evict_wish {
    uint64_t store; /* the store that needs room, never its own victim; 0 if it is not there yet */
    size_t pool;    /* index of its pool */
    uint64_t bytes;
    bool is_resident; /* the store already has its slot */
    uint64_t free_bytes;
    uint64_t now_ms, min_stay_ms;
};

/* Chooses the victims that make room for the wish. Returns their number and moves them to the front
 * of the rows, in the order in which they have to go; the others follow in no order. No victim is
 * needless: without any of them the wish would not fit. 0: there is room already. -EDQUOT: the
 * pools' budgets leave no room even after every possible eviction; -ENOMEM: nor does the device. No
 * row goes that is pinned, stuck, held, waited for, moving, or came less than min_stay_ms ago. If
 * the pool has no room or no slot, its own stores go. Then, to make room on the device: the least
 * important class first, no class above that of the wish's pool, and no bytes that another pool's
 * min_bytes protect. Within a class, stores with a spare go first, then the least recently used,
 * then the lowest id. The outcome does not depend on the order of the rows. */
long evict_choose(struct evict_row *rows, size_t row_count, const struct evict_pool *pools,
                  size_t pool_count, const struct evict_wish *wish);

/* A copy that may be dropped to make room in its tier: a spare of a store on the device, or the
 * place of a store that has a spare in a slower tier. */
struct evict_spare {
    uint64_t store;
    uint64_t bytes; /* bytes that its tier gets back */
    bool is_place;  /* it is the store's place; the spare becomes the place */
    bool pinned;
    bool doubled;          /* the store has another spare in a slower tier */
    uint64_t last_used_ms; /* UINT64_MAX while a session holds the store */
    bool goes;
};

/* Chooses the spares to drop so that their tier gets `bytes` more. Returns their number and moves
 * them to the front of the rows; 0: all of them are not enough. Spares come first: those of stores
 * that never have to leave the device, then doubled ones, then those of the most recently used
 * store, because a spare serves a store that has to leave; then the highest id. Places follow, the
 * least recently used first. None is needless. The outcome does not depend on the order of the
 * rows. */
size_t evict_choose_spares(struct evict_spare *rows, size_t count, uint64_t bytes);

#endif
