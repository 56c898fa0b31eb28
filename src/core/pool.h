/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool - memory budgets that stores share, and each store's use
 *
 * core.h includes this. Each store is in one pool; `default` always exists, and every new store is
 * in it. A store uses its memory on the device, its writer's reservation, and the memory that is
 * being made for it; a pool's use is the sum. max bounds the use, and no other pool may use the
 * unused part of a pool's min: EDQUOT. A promotion in progress counts in both as if it had ended.
 * Copies in other tiers count in neither: those tiers have bounds of their own, and exist for
 * stores without room on the device. Lowering min or max takes no memory away.
 *
 * A session that took the lock by `lock`, `auto`, `data` or ACQUIRE, or got descriptors, holds the
 * store. A store was last used at the end of its last hold: an exact time, not a sample.
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
    uint32_t sm_percent;           /* share of the device's processors; only reported to clients */
    uint64_t min_bytes, max_bytes; /* max: CORE_NO_LIMIT if none */
    bool is_claimed; /* an older waiter claims the rest of its budget; found again by each record */
    uint64_t evictions;                         /* number of evictions of its stores */
    uint64_t slots;                             /* most stores that may use memory; 0: no limit */
    uint64_t store_count, used_bytes, resident; /* derived from the stores */
    uint64_t coming, coming_bytes; /* derived: promotions in progress, and their bytes */
};

struct core_pools {
    struct idvec items;
    uint64_t next_id;
    uint64_t unfilled_bytes; /* sum of the unused parts of all min_bytes */
};

/* A store's pool and use. */
struct core_use {
    uint64_t pool;
    bool pinned;           /* never evicted */
    uint64_t last_used_ms; /* end of the last hold, wall clock; 0 if never held */
    uint64_t holds;        /* number of sessions that hold it; derived, like used_bytes */
    uint64_t used_bytes;
};

#endif
