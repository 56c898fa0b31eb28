/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backoff - one table of operations that failed a moment ago and are not tried again for a while
 *
 * A row is for a reason and a store, or for all stores. When a back-off is over, the operations
 * that waited for it are tried again at the end of the step. An ALLOC keeps its own: struct
 * alloc_op.
 */
#ifndef GMSFS_SERVICE_BACKOFF_H
#define GMSFS_SERVICE_BACKOFF_H

#include "base/idvec.h"
#include "service/deadline.h"

enum backoff_reason {
    BACKOFF_LEAVE, /* this store could not leave the device, or go down: others are chosen */
    BACKOFF_STAY,  /* stores may leave for this one, but not yet */
    BACKOFF_EVICT, /* evictions: the last one was short of memory, or there were too many choices */
    BACKOFF_PROMOTE, /* promotions by the service: the last one was short of memory */
    BACKOFF_ALLOCS,  /* waiting ALLOCs: how late they notice a change */
    BACKOFF_MOVES,   /* waiting moves: the same */
    BACKOFF_TELL, /* events: the event that a move of this store was short of memory was written */
    BACKOFF_EVICT_TRIES, /* choices of victims, and looks for memory that may become free: */
    BACKOFF_FREE_LOOKS,  /* a limited number within a time */
    BACKOFF_COUNT
};

#define SERVICE_BACKOFFS 48u
#define BACKOFF_FOREVER  UINT64_MAX /* until service_end_backoff */

struct backoff {
    uint64_t id;          /* store * BACKOFF_COUNT + reason; first, for idvec */
    uint64_t until_ms;    /* 0: over */
    struct deadline over; /* not set for TRIES, LOOKS and BACKOFF_FOREVER */
    unsigned tries;       /* of TRIES and LOOKS, within the present time */
};

/* A choice for this store that found no victims. */
struct failed_choice {
    uint64_t store, bytes, free_bytes,
        choices; /* the wish, the free bytes, and backoffs.choices at the time */
};

#define SERVICE_FAILED_CHOICES 16u /* beyond these the oldest is forgotten, and made again */

struct backoffs {
    struct backoff of_all[BACKOFF_COUNT];
    struct backoff rows[SERVICE_BACKOFFS]; /* of single stores, without TELL */
    unsigned used;
    struct idvec told; /* rows of TELL */
    uint64_t choices;  /* counts changes after which a choice of victims may differ */
    struct failed_choice failed[SERVICE_FAILED_CHOICES];
    unsigned next_failed;
};

/* Begins a back-off. With SERVICE_BACKOFFS under way the first of them to end is forgotten, and
 * tried sooner. Only TELL, which lasts for ever, takes memory; without it the event is written
 * again. */
void service_back_off(struct service *s, enum backoff_reason reason, uint64_t store, uint64_t ms);
void service_end_backoff(struct service *s, enum backoff_reason reason, uint64_t store);
bool service_is_backed_off(const struct service *s, enum backoff_reason reason, uint64_t store);

/* Limit on looks at all stores, which run on the loop: this many within this time. */
#define SERVICE_TRIES_MAX 64u
#define SERVICE_TRIES_MS  100u
/* Counts a try. Returns 0 if it may be made now, else the milliseconds until it may. */
uint64_t service_count_try(struct service *s, enum backoff_reason reason);

/* Remembers that no eviction could free this many bytes. */
void service_note_no_victims(struct service *s, uint64_t store, uint64_t bytes);
/* Returns true if nothing has changed since (backoffs.choices). Each end of a step looks at the
 * waiters for memory, and a choice looks at every store. */
bool service_had_no_victims(const struct service *s, uint64_t store, uint64_t bytes);

#endif
