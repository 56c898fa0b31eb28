/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide - what the governor would do now, and why
 *
 * One pure function: what was seen and what was configured in, deeds in their order out. No clock,
 * no file, no memory of the rounds before: a cooldown is told by the stores' own `moved_ms`, and
 * what else has to outlive a round by struct governor_past, which observe fills from what it saw.
 */
#ifndef GMSFS_GOVERNOR_DECIDE_H
#define GMSFS_GOVERNOR_DECIDE_H

#include "governor/config.h"

/* Tiers, as bits. */
#define GOVERNOR_DEVICE 1u
#define GOVERNOR_HOST 2u
#define GOVERNOR_DISK 4u

/* A store, as its files tell. Sorted by name. */
struct governor_store {
    const char *name, *pool;
    uint64_t bytes;
    bool committed, pinned, draining, suspect;
    uint64_t held;    /* sessions */
    uint64_t waiting; /* who waits for its lock */
    unsigned places;  /* GOVERNOR_… that have a whole copy; 0: none */
    bool moving;
    uint64_t last_used_ms; /* of the end of its last hold; 0: never */
    uint64_t moved_ms;     /* the end of its last move; 0: never */
    uint64_t grants;       /* within the window of late */
};

/* What a model's engine says. By the index of the model in the config. */
struct governor_demand {
    bool is_known;      /* false: its metrics could not be had, or are stale: it is left alone */
    uint64_t waiting;   /* requests in its queue */
    uint64_t running;
    uint64_t ttft_ms;   /* of late; 0: none came */
    uint64_t failed_ms; /* when the last deed for it failed; 0: none did */
    uint64_t idle_since_ms; /* since when there was no demand; 0: there is */
};

struct governor_pool {
    const char *name;
    enum pool_class class;
    uint64_t min_bytes, max_bytes, used_bytes;
};

struct governor_snapshot {
    uint64_t now_ms;
    uint64_t device_bytes, device_free;
    uint64_t host_bytes, host_free; /* 0, 0: no such tier */
    uint64_t disk_bytes, disk_free;
    const struct governor_store *stores;
    size_t store_count;
    const struct governor_pool *pools;
    size_t pool_count;
    const struct governor_demand *demand; /* one for each model of the config */
};

enum governor_deed_kind {
    GOVERNOR_SLEEP,   /* the model's hook; the store is let go of */
    GOVERNOR_WAKE,    /* the model's hook */
    GOVERNOR_DRAIN,   /* drain --then demote: readers are told to leave */
    GOVERNOR_DEMOTE,  /* to the fastest tier below the device that has room */
    GOVERNOR_PROMOTE,
    GOVERNOR_SPARE,   /* +host */
    GOVERNOR_POOL_MAX,
};

struct governor_deed {
    enum governor_deed_kind kind;
    size_t model;      /* SIZE_MAX: of no model */
    const char *store; /* or the pool of GOVERNOR_POOL_MAX; the snapshot's or the config's text */
    uint64_t bytes;    /* GOVERNOR_POOL_MAX: the new max; else of the store */
    bool follows;      /* only if the deed before was done */
    char reason[160];  /* for people */
};

#define GOVERNOR_MAX_DEEDS 512u

/* Returns how many of `deeds` (GOVERNOR_MAX_DEEDS) were filled. Ends and is the same for the same
 * input whatever the order of stores and pools. */
size_t governor_decide(const struct governor_snapshot *now, const struct governor_config *config,
                       struct governor_deed *deeds);

#endif
