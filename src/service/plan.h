/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan - what the service decides by itself, one deed at a time
 *
 * Planners look at the service and change nothing: each returns the next deed, or false. The end
 * of a step (settle.c) has it done (deeds.c) and asks again. No deed that failed is named again in
 * that step: planners go through a list or look once, and heal.c, which begins anew each time,
 * heeds the table of back-offs.
 */
#ifndef GMSFS_SERVICE_PLAN_H
#define GMSFS_SERVICE_PLAN_H

#include "service/service_internal.h"

enum deed_type {
    DEED_HEAL,            /* the copy on the disk is read, to take the place of suspect memory */
    DEED_PROMOTE,         /* the store comes to the device */
    DEED_REFUSE,          /* it never can: its waiters are refused */
    DEED_MAKE_ROOM,       /* others leave the device so that `bytes` more of it fit */
    DEED_COVER_SHORTFALL, /* the same where the account has the bytes and the device has not */
    DEED_DROP_SPARE,      /* its spare in `place` goes */
    DEED_MOVE_DOWN,       /* it moves down from its tier to `place`, where it has a spare */
};

struct deed {
    enum deed_type type;
    uint64_t store;
    enum core_place place;
    uint64_t bytes;
    uint64_t move; /* MAKE_ROOM: for this move, which waits; or 0 */
};

/* What the planners of one step have looked at so far; {0} at first. */
struct plan {
    bool comes; /* the room that the last deed was to make is there or on its way */
    /* Waiters newer than this one queue behind it for the device's memory. */
    uint64_t short_turn;
    struct place_turn *line; /* stores with waiters, by age of the waiters; owned */
    size_t line_count, line_at;
    bool is_short;   /* the store at line_at - 1 lacks the device's memory, not its pool's */
    uint64_t writer; /* the last waiter for a lock with memory */
    bool has_alloc;  /* true once plan_alloc has looked at the queue */
    enum core_place tier;
    struct evict_spare *spares; /* copies in that tier that give way; owned */
    size_t spare_count, spare_at;
};

typedef bool service_planner(const struct service *s, struct plan *plan, struct deed *deed);

/* heal.c: suspect stores that no session has go to their spares on the disk, when these were read:
 * first stores with waiters, then the others one by one. */
service_planner plan_heal;

/* promote.c: stores with waiters come to the device, as far as there is memory. False: no memory */
bool plan_take_line(const struct service *s, struct plan *plan);
service_planner plan_promotion;

/* claims.c */
/* For the last shortfall that was noted; once, for it is tried again. */
service_planner plan_shortfall;
service_planner plan_writer; /* for the first waiter for a lock that lacks what it is to reserve */
service_planner plan_alloc;  /* for the first ALLOC that waits and can use it now */
service_planner plan_move;   /* for moves that count on nothing any more */

/* spare_plan.c: as many spares of the tier as its waiters lack; none if that does not do */
void plan_take_spares(const struct service *s, struct plan *plan, enum core_place tier);
service_planner plan_spare;

/* deeds.c: true: the room that it was to make is there or on its way. */
bool service_do(struct service *s, const struct deed *deed);

/* evict.c */
/* Has stores leave the device so that `bytes` more of this one fit. True: room is on its way. */
bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes);
/* The same for the last shortfall that was noted, which is this store's. */
bool service_evict_for_shortfall(struct service *s, const struct core_store *store, uint64_t bytes);

/* The first waiter for a lock with memory that holds newer ones off; UINT64_MAX: none */
uint64_t service_writer_turn(const struct service *s);
/* Does this waiter keep newer ones from the device's memory, if it lacks some? */
bool service_holds_off(const struct service *s, uint64_t waiter);

#endif
