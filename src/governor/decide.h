/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - what the governor would do now, and why
 *
 * One pure function: what was seen and what was configured in, deeds in their order out. No clock,
 * no file, no memory of the rounds before: what has to outlive a round are the moments in the
 * snapshot (moved_ms, done_ms, failed_ms, idle_since_ms, changed_ms), which observe and act fill
 * in.
 *
 * The rules, in the order of their weight:
 *  - A model whose metrics are unknown is frozen: nothing is done for it or with its store. So is
 *    one that moved, was put to sleep, woken, or failed to be, less than a cooldown ago.
 *  - Whoever has demand and is not on the device is brought there, the most important first. If it
 *    does not fit, less important ones go, as few as make room; of the same class only who is idle.
 *    Of those in use one goes a round. Never one that is pinned, suspect, moving or draining, nor
 *    one that somebody holds who is no model.
 *  - An engine is woken once. Only where nobody holds its store long after that, it is woken again.
 *  - What cannot fit is reported, and nothing is done for it.
 *  - A model that had no demand for its idle= is put to sleep. It stays on the device until anybody
 *    wants its room, however important it is.
 *  - Above `high` idle ones go, longest unused first, down to `low`; below it nothing does.
 *  - When nobody has to move: spares are made, adapters brought ahead up to `low`.
 *  - Scratch has no spare, and who leaves with it gives it up: never anything else.
 *  - A pool's max is raised only by what no other pool may have or uses; others are lowered first.
 */
#ifndef GMSFS_GOVERNOR_DECIDE_H
#define GMSFS_GOVERNOR_DECIDE_H

#include "governor/config.h"

/* Tiers, as bits; and where scratch goes, which is given up. */
#define GOVERNOR_DEVICE 1u
#define GOVERNOR_HOST   2u
#define GOVERNOR_DISK   4u
#define GOVERNOR_NONE   8u

#define GOVERNOR_MAX_STORES 4096u /* a mount has no more */
#define GOVERNOR_MAX_DEEDS  512u

/* So long after its wake nobody holds its store: the wake was lost. */
#define GOVERNOR_WAKING_MS 60000u

/* A store, as its files tell. */
struct governor_store {
    const char *name, *pool;
    uint64_t bytes;
    bool committed, pinned, draining, suspect;
    bool scratch;     /* of graph pools: it is never copied, and leaves by being given up */
    uint64_t held;    /* sessions */
    uint64_t waiting; /* who waits for its lock */
    unsigned places;  /* GOVERNOR_… that have a whole copy; 0: none */
    bool moving;
    uint64_t last_used_ms; /* of the end of its last hold; 0: never */
    uint64_t moved_ms;     /* when it last came to the device, or left it; 0: never. Not a spare */
    uint64_t failed_ms;    /* when a deed with it that is of no model failed; 0: none did */
    uint64_t grants;       /* within the window of late */
};

/* What a model's engine says. By the index of the model in the config. */
struct governor_demand {
    bool is_known; /* false: its metrics could not be had, or are stale. Without metrics=: true */
    uint64_t waiting; /* requests in its queue */
    uint64_t running;
    uint64_t ttft_ms;   /* of late; 0: none came */
    uint64_t failed_ms; /* when the last deed for it, or with its store, failed; 0: none did */
    uint64_t done_ms;   /* when its sleep or wake was last run with success; 0: never */
    uint64_t woken_ms;  /* when its wake was last run with success; 0: it was seen to serve, to have
                           nothing to serve, or off the device since, or put to sleep */
    uint64_t idle_since_ms; /* since when there was no demand; 0: there is */
};

struct governor_pool {
    const char *name;
    enum pool_class class;
    uint64_t min_bytes, max_bytes, used_bytes; /* max: UINT64_MAX: none */
    uint64_t slots, resident;                  /* 0: no limit; stores of it that use memory */
    uint64_t changed_ms;                       /* when we last changed its max; 0: never */
};

/* Stores and pools may come in any order. */
struct governor_snapshot {
    uint64_t now_ms;
    uint64_t device_bytes, device_free; /* free: of the account, and not used by others */
    uint64_t host_bytes, host_free;     /* 0, 0: no such tier */
    uint64_t disk_bytes, disk_free;
    const struct governor_store *stores;
    size_t store_count; /* at most GOVERNOR_MAX_STORES */
    const struct governor_pool *pools;
    size_t pool_count;                    /* at most EVICT_MAX_POOLS */
    const struct governor_demand *demand; /* one for each model of the config */
};

enum governor_deed_kind {
    GOVERNOR_SLEEP,    /* run the model's hook, after which it lets go of the store */
    GOVERNOR_WAKE,     /* run the model's hook; the store is on the device */
    GOVERNOR_DRAIN,    /* drain, then demote to `tier`: holders are told to leave, waited for */
    GOVERNOR_DEMOTE,   /* to `tier`; nobody holds it */
    GOVERNOR_PROMOTE,  /* to the device */
    GOVERNOR_SPARE,    /* a spare in `tier` */
    GOVERNOR_POOL_MAX, /* max= of the pool is to be `bytes` */
    GOVERNOR_REPORT,   /* nothing is done: the reason is for people */
};

struct governor_deed {
    enum governor_deed_kind kind;
    size_t model;      /* whose cooldown a failure begins; SIZE_MAX: of no model */
    const char *store; /* or the pool of GOVERNOR_POOL_MAX; the snapshot's or the config's text */
    uint64_t bytes;    /* GOVERNOR_POOL_MAX: the new max; else of the store */
    unsigned tier;     /* GOVERNOR_HOST, _DISK or _NONE of DRAIN, DEMOTE and SPARE; else 0 */
    bool follows;      /* only if the deed before was done (which itself may follow another) */
    char reason[256];  /* one line for people, and nothing that a terminal obeys */
};

/* Returns how many of `deeds` (GOVERNOR_MAX_DEEDS) were filled; more is for the next round. It is
 * the same for the same input, whatever the order of stores and pools. */
size_t governor_decide(const struct governor_snapshot *now, const struct governor_config *config,
                       struct governor_deed *deeds);

#endif
