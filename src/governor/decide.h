/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - which deeds the governor does now, and why
 *
 * One pure function: snapshot and configuration in, an ordered list of deeds out. No clock, no
 * file, no memory of earlier rounds: times that outlive a round are in the snapshot (moved_ms,
 * done_ms, failed_ms, idle_since_ms, changed_ms), filled in by observe and act.
 *
 * The rules, the strongest first:
 *  - A model with unknown metrics is frozen: the governor leaves it and its store alone. So is a
 *    model that moved, went to sleep, woke, or failed to, less than a cooldown ago.
 *  - A model that has demand and is not on the device is brought there, the most important first.
 *    If it does not fit, less important stores leave, as few as make room; of the same class only
 *    idle ones. Of stores in use at most one leaves in a round. A store that is pinned, suspect,
 *    moving or draining never leaves, nor a store without a model while a session holds it.
 *  - An engine is woken once; again only if no session holds its store long after that.
 *  - A store that cannot fit is reported, and left alone.
 *  - A model without demand for its idle= is put to sleep. Its store stays on the device until any
 *    other store, of any class, needs the room.
 *  - Above `high` idle stores leave, the longest unused first, down to `low`; not below.
 *  - If no store has to move: spares are made, and adapters prefetched up to `low`.
 *  - Scratch has no spare; a scratch store leaves by being discarded. No other store is discarded.
 *  - A pool's max is raised only by memory that no other pool may have or uses; if there is too
 *    little, the max of others is lowered first.
 */
#ifndef GMSFS_GOVERNOR_DECIDE_H
#define GMSFS_GOVERNOR_DECIDE_H

#include "governor/config.h"

/* Tiers, as bits; NONE: scratch is discarded. */
#define GOVERNOR_DEVICE 1u
#define GOVERNOR_HOST   2u
#define GOVERNOR_DISK   4u
#define GOVERNOR_NONE   8u

#define GOVERNOR_MAX_STORES 4096u /* a mount has no more */
#define GOVERNOR_MAX_DEEDS  512u

/* If no session holds the store this long after the wake, the wake is assumed lost. */
#define GOVERNOR_WAKING_MS 60000u

/* A store, from its files. */
struct governor_store {
    const char *name, *pool;
    uint64_t bytes;
    bool committed, pinned, draining, suspect;
    bool scratch;     /* in graph pools: never copied, discarded to leave the device */
    uint64_t held;    /* number of sessions */
    uint64_t waiting; /* number of waiters for its lock */
    unsigned places;  /* bits of the tiers with a whole copy; 0: none */
    bool moving;
    uint64_t last_used_ms; /* end of its last hold; 0: never held */
    uint64_t moved_ms;     /* last time it came to the device or left it, spares apart; 0: never */
    uint64_t failed_ms;    /* last failure of a deed on a store without a model; 0: none */
    uint64_t grants;       /* within the last window (grants.h) */
};

/* State of a model's engine, by the index of the model in the config. */
struct governor_demand {
    bool is_known;    /* false: its metrics are missing or stale. Without metrics=: true */
    uint64_t waiting; /* requests in its queue */
    uint64_t running;
    uint64_t ttft_ms;   /* recent mean; 0: no requests */
    uint64_t failed_ms; /* last failed deed on it or its store; 0: none */
    uint64_t done_ms;   /* last successful sleep or wake; 0: never */
    /* Last successful wake; 0: since then it was seen serving, without requests, off the device, or
     * was put to sleep */
    uint64_t woken_ms;
    uint64_t idle_since_ms; /* start of the time without demand; 0: it has demand */
};

struct governor_pool {
    const char *name;
    enum pool_class class;
    uint64_t min_bytes, max_bytes, used_bytes; /* max: UINT64_MAX: none */
    /* slots 0: no limit; resident: number of its stores that use memory */
    uint64_t slots, resident;
    /* Last change of its max by the governor; 0: never */
    uint64_t changed_ms;
};

/* Stores and pools may be in any order. */
struct governor_snapshot {
    uint64_t now_ms;
    uint64_t device_bytes, device_free; /* free in the account, and not used by other programs */
    uint64_t host_bytes, host_free;     /* 0, 0: no such tier */
    uint64_t disk_bytes, disk_free;
    const struct governor_store *stores;
    size_t store_count; /* at most GOVERNOR_MAX_STORES */
    const struct governor_pool *pools;
    size_t pool_count;                    /* at most EVICT_MAX_POOLS */
    const struct governor_demand *demand; /* one for each model of the config */
};

enum governor_deed_kind {
    GOVERNOR_SLEEP,    /* run the model's hook, which makes it release the store */
    GOVERNOR_WAKE,     /* run the model's hook; the store is on the device */
    GOVERNOR_DRAIN,    /* ask holders to leave, wait, then demote to `tier` */
    GOVERNOR_DEMOTE,   /* to `tier`; no session holds it */
    GOVERNOR_PROMOTE,  /* to the device */
    GOVERNOR_SPARE,    /* make a spare in `tier` */
    GOVERNOR_POOL_MAX, /* set max= of the pool to `bytes` */
    GOVERNOR_REPORT,   /* do nothing; the reason is for people */
};

struct governor_deed {
    enum governor_deed_kind kind;
    size_t model;      /* starts its cooldown on failure; SIZE_MAX: no model */
    const char *store; /* or the pool of GOVERNOR_POOL_MAX; owned by snapshot or config */
    uint64_t bytes;    /* GOVERNOR_POOL_MAX: the new max; else the size of the store */
    unsigned tier;     /* GOVERNOR_HOST, _DISK or _NONE of DRAIN, DEMOTE and SPARE; else 0 */
    /* Run only if the deed before it succeeded (which may itself follow one) */
    bool follows;
    char reason[256]; /* one line for people, without bytes that control a terminal */
};

/* Fills in `deeds` (room for GOVERNOR_MAX_DEEDS) and returns their number; further deeds wait for
 * the next round. The result does not depend on the order of stores and pools. */
size_t governor_decide(const struct governor_snapshot *now, const struct governor_config *config,
                       struct governor_deed *deeds);

#endif
