/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan - the decisions that the service makes by itself, one deed at a time
 *
 * Planners look at the service and change nothing: each returns the next deed, or false. The end of
 * a step (settle.c) carries the deed out (deeds.c) and asks again. A deed that failed is not named
 * again in the same step: planners go through a list or look once, and heal.c, which begins anew
 * each time, heeds the table of back-offs.
 */
#ifndef GMSFS_SERVICE_PLAN_H
#define GMSFS_SERVICE_PLAN_H

#include "service/service_internal.h"

enum deed_type {
    DEED_HEAL,            /* reads the copy on the disk, to replace suspect memory */
    DEED_PROMOTE,         /* moves the store to the device */
    DEED_REFUSE,          /* refuses the waiters of a store that never fits */
    DEED_MAKE_ROOM,       /* has others leave the device so that `bytes` more of this store fit */
    DEED_COVER_SHORTFALL, /* the same where the account has the bytes and the device has not */
    DEED_DROP_SPARE,      /* drops its spare in `place` */
    DEED_MOVE_DOWN,       /* moves it down to `place`, where it has a spare */
};

struct deed {
    enum deed_type type;
    uint64_t store;
    enum core_place place;
    uint64_t bytes;
    uint64_t move; /* MAKE_ROOM: the waiting move that needs the room; 0 if none */
};

/* State of the planners in one step; {0} at first. */
struct plan {
    bool comes; /* true if the room for which the last deed was done is there or on its way */
    /* Waiters newer than this one queue behind it for the device's memory. */
    uint64_t short_turn;
    struct place_turn *queue; /* stores with waiters, in order of the age of the waiters; owned */
    size_t queue_count, queue_at;
    bool is_short; /* true if the device, not the pool, has no room for the store at queue_at - 1 */
    uint64_t writer; /* the last waiter for a lock with a reservation that was looked at */
    bool has_alloc;  /* true once plan_alloc has looked at the queue */
    enum core_place tier;
    struct evict_spare *spares; /* copies in that tier to drop; owned */
    size_t spare_count, spare_at;
};

typedef bool service_planner(const struct service *s, struct plan *plan, struct deed *deed);

/* heal.c: heals suspect stores without sessions from their copies on the disk: first stores with
 * waiters, then the others one by one. */
service_planner plan_heal;

/* promote.c: brings stores with waiters to the device, as far as there is memory. plan_take_queue
 * returns false if it had no memory of its own. */
bool plan_take_queue(const struct service *s, struct plan *plan);
service_planner plan_promotion;

/* claims.c */
/* Covers the last shortfall that was noted; once, for its operation is tried again. */
service_planner plan_shortfall;
service_planner plan_writer; /* makes room for the first waiter for a lock with a reservation that
                                does not fit */
service_planner plan_alloc;  /* makes room for the first waiting ALLOC that can use it now */
service_planner plan_move;   /* makes room for moves for which no memory is on its way */

/* spare_plan.c: chooses the spares of the tier that cover the need of its waiters; none if all of
 * them do not */
void plan_take_spares(const struct service *s, struct plan *plan, enum core_place tier);
service_planner plan_spare;

/* deeds.c: carries a deed out. Returns true if the room that it makes is there or on its way. */
bool service_do(struct service *s, const struct deed *deed);

/* evict.c */
/* Has stores leave the device so that `bytes` more of this one fit. Returns true if room is on its
 * way. */
bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes);
/* The same for the last shortfall that was noted, which is this store's. */
bool service_evict_for_shortfall(struct service *s, const struct core_store *store, uint64_t bytes);

/* Returns the first waiter for a lock with a reservation that newer waiters queue behind;
 * UINT64_MAX if there is none. */
uint64_t service_writer_turn(const struct service *s);
/* Returns true if newer waiters queue behind this one for device memory. */
bool service_holds_off(const struct service *s, uint64_t waiter);

#endif
