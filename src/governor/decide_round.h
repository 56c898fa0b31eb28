/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_round - what the files of decide share: one round, as far as it has come
 *
 * Pure. decide_round.c knows facts and writes deeds down, decide_room.c counts what goes and comes,
 * decide_leave.c chooses who goes, decide_ahead.c what is made before it is wanted, and
 * decide_pools.c what budgets become; decide.c has the rules.
 */
#ifndef GMSFS_GOVERNOR_DECIDE_ROUND_H
#define GMSFS_GOVERNOR_DECIDE_ROUND_H

#include "governor/decide.h"

#define NO_INDEX SIZE_MAX /* no model, no store, no pool */

/* What is left of each tier, with what was decided so far. */
struct decide_room {
    uint64_t device_free, host_free, disk_free;
    uint64_t kept_bytes;     /* that are not free and not used either: kept for who comes back */
    uint64_t unfilled_bytes; /* what pools have not used of their min: the sum */
    uint64_t pool_used[EVICT_MAX_POOLS], pool_resident[EVICT_MAX_POOLS];
};

/* What follows about a store from all the rest. */
struct decide_fact {
    size_t model, pool;
    enum pool_class class; /* the model's, else the pool's */
    bool goes, comes;      /* was decided in this round */
};

/* Somebody who may have to leave. Its sort is what it stands in. */
struct decide_leaver {
    size_t store;
    enum pool_class class;
    bool in_use, min_one, goes;
    unsigned tier; /* where to, once it goes */
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
    bool has_preempted; /* somebody in use */
    bool has_moved;     /* somebody goes, comes or wakes */
    size_t kept_for;    /* a store: what is free is kept for it; NO_INDEX: for none */
};

/* ---- facts ---------------------------------------------------------------------------------- */

void decide_begin(struct decide_round *round, const struct governor_snapshot *now,
                  const struct governor_config *config, struct governor_deed *deeds);

/* Whether the moment is less than a cooldown ago. */
bool decide_is_recent(const struct decide_round *round, uint64_t ms);

/* The metrics are unknown, or a deed failed less than a cooldown ago: nothing is done for it. */
bool decide_is_frozen(const struct decide_round *round, size_t store);

/* It moved, or the model was put to sleep or woken, less than a cooldown ago. */
bool decide_is_resting(const struct decide_round *round, size_t store);

bool decide_has_demand(const struct decide_round *round, size_t model);
bool decide_is_idle(const struct decide_round *round, size_t store);

/* It is idle, and was for as long as its idle= says. */
bool decide_is_over(const struct decide_round *round, size_t store);

bool decide_is_on_device(const struct decide_round *round, size_t store);

/* The end of its last use: of the model's demand, if that is longer ago than its store's. */
uint64_t decide_last_use(const struct decide_round *round, size_t store);

/* Whole, at rest, and nothing was decided about it so far. */
bool decide_is_free_to_move(const struct decide_round *round, size_t store);

/* The store's model, else "store NAME". */
struct decide_name {
    char text[72];
};
struct decide_name decide_name_of(const struct decide_round *round, size_t store);

/* ---- deeds ---------------------------------------------------------------------------------- */

/* Whether so many more can be written down. */
bool decide_has_room_for(const struct decide_round *round, size_t deeds);

/* Does nothing when there is no room. */
void decide_add(struct decide_round *round, struct governor_deed deed, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- decide_room.c -------------------------------------------------------------------------- */

void decide_count_room(struct decide_round *round);

/* Where the store would go when it leaves the device; 0: nowhere has room. */
unsigned decide_get_tier(const struct decide_round *round, size_t store);

void decide_take_out(struct decide_round *round, size_t store, unsigned tier);
void decide_put_back(struct decide_round *round, size_t store, unsigned tier);
void decide_bring_in(struct decide_round *round, size_t store);

/* As bring_in, but it does not come in this round. */
void decide_keep_room(struct decide_round *round, size_t store);

bool decide_pool_has_room(const struct decide_round *round, size_t store);
/* What the min of other pools keeps of the device, and they do not use. */
uint64_t decide_get_reserved(const struct decide_round *round, size_t store);
bool decide_device_has_room(const struct decide_round *round, size_t store);
uint64_t decide_get_used(const struct decide_round *round); /* of the device, by whoever */

/* ---- decide_leave.c ------------------------------------------------------------------------- */

/*
 * Chooses who leaves so that `store` fits: fills in the leavers that go, in the order in which they
 * are to. false: it does not fit, whoever goes, and nobody does. With `rested` as if a cooldown
 * were over for all. Room is counted without those who go.
 */
bool decide_make_room(struct decide_round *round, size_t store, bool rested);

/* Who is idle leaves by last use until the device has `limit_bytes` in use at most. */
void decide_lower_use(struct decide_round *round, uint64_t limit_bytes);

/* How many deeds the leaver takes, and these. */
size_t decide_count_deeds(const struct decide_round *round, const struct decide_leaver *leaver);
void decide_add_leaver(struct decide_round *round, const struct decide_leaver *leaver, bool follows,
                       const char *why);

/* ---- decide_ahead.c ------------------------------------------------------------------------- */

/* What nobody waits for yet. */
void decide_spares(struct decide_round *round);
void decide_prefetch(struct decide_round *round);

/* ---- decide_pools.c ------------------------------------------------------------------------- */

void decide_pools(struct decide_round *round);

#endif
