/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - budgets of memory that stores share, and what is remembered of a store's use
 *
 * Included by core.h, for all who include that. Each store is in one pool; `default` is always
 * there and is every new store's. What a store uses is its memory on the device, what is set aside
 * for its writer, and what is being made for it; a pool's use is the sum. max bounds it, and what a
 * pool has not used of its min is no other pool's: EDQUOT. What is on its way to the device counts
 * in both as if it were there. Copies beside the device count in neither: their tiers have bounds
 * of their own, and stores without room on the device are what those tiers are for. Lowering either
 * takes nothing away.
 *
 * Whoever has the lock by `lock`, `auto`, `data` or ACQUIRE, or was handed descriptors, holds the
 * store. So the end of the last hold is when it was last used: exactly, for nothing is sampled.
 */
#ifndef GMSFS_CORE_POOL_H
#define GMSFS_CORE_POOL_H

#include "base/idvec.h"
#include "core/evict.h"

#include <stdbool.h>
#include <stdint.h>

#define CORE_MAX_POOLS         EVICT_MAX_POOLS
#define CORE_POOL_NAME_BYTES   64u
#define CORE_DEFAULT_POOL      1u /* its id */
#define CORE_DEFAULT_POOL_NAME "default"
#define CORE_NO_LIMIT          UINT64_MAX
#define CORE_MOST_SLOTS        (UINT64_C(1) << 32)

struct core_pool {
    uint64_t id;
    char name[CORE_POOL_NAME_BYTES];
    enum pool_class class;
    uint32_t sm_percent;           /* of the device's processors; only handed out */
    uint64_t min_bytes, max_bytes; /* max: CORE_NO_LIMIT: none */
    bool spoken_for;    /* a waiter lacks what its budget has left: found anew for each record */
    uint64_t evictions; /* of its stores, so far */
    uint64_t slots;     /* stores that use memory at most; 0: no limit */
    uint64_t store_count, used_bytes, resident; /* these follow from the stores */
    uint64_t coming, coming_bytes; /* so do these: what moves to the device, and uses none yet */
};

struct core_pools {
    struct idvec items;
    uint64_t next_id;
    uint64_t unfilled_bytes; /* what pools have not used of their min: the sum */
};

/* Of a store. */
struct core_use {
    uint64_t pool;
    bool pinned;           /* it is never evicted */
    uint64_t last_used_ms; /* wall clock: the end of the last hold; 0: it was never held */
    uint64_t holds;        /* sessions that hold it; this and the next follow from others */
    uint64_t used_bytes;
};

#endif
