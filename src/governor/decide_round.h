/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_round - the state of one round, shared by the files of decide
 *
 * Pure. decide_round.c finds facts and records deeds, decide_room.c counts room, decide_leave.c
 * chooses the stores that leave, decide_ahead.c makes spares and prefetches, and decide_pools.c
 * changes budgets; decide.c has the rules.
 */
#ifndef GMSFS_GOVERNOR_DECIDE_ROUND_H
#define GMSFS_GOVERNOR_DECIDE_ROUND_H

#include "base/number.h"
#include "governor/decide.h"

#define NO_INDEX SIZE_MAX /* no model, no store, no pool */

/* Room in each tier after the deeds decided so far. */
struct decide_room {
    uint64_t device_free, host_free, disk_free;
    uint64_t kept_bytes;     /* neither free nor used: kept for stores that return soon */
    uint64_t unfilled_bytes; /* sum of the unused min of all pools */
    uint64_t pool_used[EVICT_MAX_POOLS], pool_resident[EVICT_MAX_POOLS];
};

/* Facts about a store, derived from the snapshot and the config. */
struct decide_fact {
    size_t model, pool;
    enum pool_class class; /* the model's, else the pool's */
    bool goes, comes;      /* decided in this round */
};

/* A store that may have to leave the device, with the keys that it is sorted by. */
struct decide_leaver {
    size_t store;
    enum pool_class class;
    bool in_use, min_one, goes;
    unsigned tier; /* target tier, if `goes` */
    uint64_t last_use_ms;
    const char *name;
};

struct decide_round {
    const struct governor_snapshot *now;
    const struct governor_config *config;
    struct governor_deed *deeds;
    size_t count;
    size_t store_of[GOVERNOR_MAX_MODELS];
    struct decide_fact facts[GOVERNOR_MAX_STORES];
    struct decide_room room;
    struct decide_leaver leavers[GOVERNOR_MAX_STORES];
    size_t leaver_count;
    bool has_preempted; /* a store in use leaves */
    bool has_moved;     /* a store leaves or comes, or an engine wakes */
    size_t kept_for;    /* store for which free memory is kept; NO_INDEX: none */
};

/* ---- facts ---------------------------------------------------------------------------------- */

void decide_begin(struct decide_round *round, const struct governor_snapshot *now,
                  const struct governor_config *config, struct governor_deed *deeds);

/* Returns true if the time is less than a cooldown ago. */
bool decide_is_recent(const struct decide_round *round, uint64_t ms);

/* Returns true if the metrics are unknown, or a deed failed less than a cooldown ago: it is left
 * alone. */
bool decide_is_frozen(const struct decide_round *round, size_t store);

/* Returns true if it moved, or the model went to sleep or woke, less than a cooldown ago. */
bool decide_is_resting(const struct decide_round *round, size_t store);

/* Returns true if requests wait for the engine, or wait too long. */
bool decide_has_requests(const struct decide_round *round, size_t model);
/* Returns true if requests do so, or a client waits for the lock of the model's store. */
bool decide_has_demand(const struct decide_round *round, size_t model);
bool decide_is_idle(const struct decide_round *round, size_t store);

/* Returns true if it has been idle for its idle= time. */
bool decide_is_over(const struct decide_round *round, size_t store);

bool decide_is_on_device(const struct decide_round *round, size_t store);

/* Returns the end of its last use: of the store, or of the model's demand if that is earlier. */
uint64_t decide_last_use(const struct decide_round *round, size_t store);

/* Returns true if it is whole and at rest, and no deed was decided about it so far. */
bool decide_is_free_to_move(const struct decide_round *round, size_t store);

/* The store's model, else "store NAME". */
struct decide_name {
    char text[72];
};
struct decide_name decide_name_of(const struct decide_round *round, size_t store);

/* ---- deeds ---------------------------------------------------------------------------------- */

/* Returns true if so many more deeds fit. */
bool decide_has_room_for(const struct decide_round *round, size_t deeds);

/* Returns a deed about the store, and about its model if the store has a model. */
struct governor_deed decide_deed(const struct decide_round *round, size_t store,
                                 enum governor_deed_kind kind);

/* Records a deed; does nothing without room. */
void decide_add(struct decide_round *round, struct governor_deed deed, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- decide_room.c -------------------------------------------------------------------------- */

void decide_count_room(struct decide_round *round);

/* Returns the tier for the store if it leaves the device; 0: no tier has room. */
unsigned decide_get_tier(const struct decide_round *round, size_t store);

void decide_take_out(struct decide_round *round, size_t store, unsigned tier);
void decide_put_back(struct decide_round *round, size_t store, unsigned tier);
void decide_bring_in(struct decide_round *round, size_t store);

/* As bring_in, but the store does not come in this round. */
void decide_keep_room(struct decide_round *round, size_t store);

bool decide_pool_has_room(const struct decide_round *round, size_t store);
/* Returns the device memory that other pools' min reserves and they do not use. */
uint64_t decide_get_reserved(const struct decide_round *round, size_t store);
bool decide_device_has_room(const struct decide_round *round, size_t store);
uint64_t decide_get_used(const struct decide_round *round); /* of the device, by any program */
uint64_t decide_get_percent(const struct decide_round *round, unsigned percent); /* of its memory */

/* ---- decide_leave.c ------------------------------------------------------------------------- */

/*
 * Chooses the stores that leave so that `store` fits: the leavers with `goes`, in order. With
 * `rested`, ignores cooldowns. false: it cannot fit, and no store leaves. The room counts the
 * leavers as gone.
 */
bool decide_make_room(struct decide_round *round, size_t store, bool rested);

/* Chooses idle stores, the longest unused first, until the device has at most `limit_bytes` in
 * use. */
void decide_lower_use(struct decide_round *round, uint64_t limit_bytes);

/* Returns how many deeds the leaving needs; decide_add_leaver records them. */
size_t decide_count_deeds(const struct decide_round *round, const struct decide_leaver *leaver);
void decide_add_leaver(struct decide_round *round, const struct decide_leaver *leaver, bool follows,
                       const char *why);

/* ---- decide_ahead.c ------------------------------------------------------------------------- */

/* Act before a store is asked for. */
void decide_spares(struct decide_round *round);
void decide_prefetch(struct decide_round *round);

/* ---- decide_pools.c ------------------------------------------------------------------------- */

void decide_pools(struct decide_round *round);

#endif
