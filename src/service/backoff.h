/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backoff - what failed a moment ago and is not tried again for a while: one table
 *
 * A row is for a reason and a store (of BACKOFF_MAKE an ALLOC), or for all of them. When one is
 * over, the operations that waited for it are tried again at the end of the step.
 */
#ifndef GMSFS_SERVICE_BACKOFF_H
#define GMSFS_SERVICE_BACKOFF_H

#include "base/idvec.h"
#include "service/deadline.h"

enum backoff_reason {
    BACKOFF_LEAVE,       /* this store could not leave the device, or give way: others are chosen */
    BACKOFF_STAY,        /* for this store some may leave, but not yet */
    BACKOFF_EVICT,       /* evictions: the last one lacked memory, or there were too many choices */
    BACKOFF_PROMOTE,     /* promotions by themselves: the last one lacked memory */
    BACKOFF_MAKE,        /* this ALLOC: the machine, not the account, lacked memory */
    BACKOFF_ALLOCS,      /* ALLOCs that wait: whether a change helps them is seen this late */
    BACKOFF_MOVES,       /* moves that wait for memory: the same */
    BACKOFF_TELL,        /* events: it was told that a move of this store lacked memory */
    BACKOFF_EVICT_TRIES, /* choices of victims, and looks for what may become free: */
    BACKOFF_FREE_LOOKS,  /* so many within so long */
    BACKOFF_COUNT
};

#define SERVICE_BACKOFFS 48u
#define BACKOFF_FOREVER  UINT64_MAX /* until service_end_backoff */

struct backoff {
    uint64_t id;          /* store * BACKOFF_COUNT + reason; first, for idvec */
    uint64_t until_ms;    /* 0: over */
    struct deadline over; /* not set of TRIES, LOOKS and what holds for ever */
    unsigned tries;       /* of TRIES and LOOKS, since they are counted */
};

/* A choice for this store that found no victims. */
struct failed_choice {
    uint64_t store, bytes, free_bytes, choices; /* what was wanted, what was free, and when */
};

#define SERVICE_FAILED_CHOICES 16u /* beyond so many the oldest is forgotten, and made again */

struct backoffs {
    struct backoff of_all[BACKOFF_COUNT];
    struct backoff rows[SERVICE_BACKOFFS]; /* of stores, but TELL's */
    unsigned used;
    struct idvec told; /* TELL's */
    uint64_t choices;  /* goes up when a choice of victims may be another one */
    struct failed_choice failed[SERVICE_FAILED_CHOICES];
    unsigned next_failed;
};

/* Beyond SERVICE_BACKOFFS the store whose back-off ends first is forgotten, and tried sooner. Only
 * TELL, which is for ever, takes memory; without it the event is told again. */
void service_back_off(struct service *s, enum backoff_reason reason, uint64_t store, uint64_t ms);
void service_end_backoff(struct service *s, enum backoff_reason reason, uint64_t store);
bool service_is_backed_off(const struct service *s, enum backoff_reason reason, uint64_t store);

/* Looks at all stores, on the loop: so many within so long. */
#define SERVICE_TRIES_MAX 64u
#define SERVICE_TRIES_MS  100u
/* 0: this try may be; else in so many milliseconds. */
uint64_t service_count_try(struct service *s, enum backoff_reason reason);

/* Remembers that no eviction could free this many bytes. */
void service_note_no_victims(struct service *s, uint64_t store, uint64_t bytes);
/* Returns true if nothing has changed since (backoffs.choices). Each end of a step looks at the
 * waiters for memory, and a choice looks at every store. */
bool service_had_no_victims(const struct service *s, uint64_t store, uint64_t bytes);

#endif
