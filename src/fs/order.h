/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - the last orders to move stores, and what was in their way
 *
 * For `info`, which shows that of a store. At most FS_ORDERS are remembered, each of another
 * store, for as long as the worker lives. Where all places are taken a user's order takes that of
 * its own oldest; only the order of a user without any takes the place of another user's.
 */
#ifndef GMSFS_FS_ORDER_H
#define GMSFS_FS_ORDER_H

#include "service/move.h"
#include "service/move_obstacle.h"

#define FS_ORDERS 32u

struct fs;

struct fs_order {
    uint64_t store; /* id; 0: the place is free */
    uint32_t uid;   /* of the process that gave the order */
    enum core_place to;
    uint64_t event;                /* number of the next one, when the order came */
    uint64_t move;                 /* that the order has begun; 0: it was refused */
    struct move_obstacle obstacle; /* "": the move has begun */
    uint32_t owner, group, mode;   /* of the store then: the obstacle is for its readers */
};

struct fs_orders {
    struct fs_order list[FS_ORDERS];
    uint64_t changes; /* counts changes of the list */
};

/* Notes, in the same step, what service_order_move() has answered to this file of the caller. */
void fs_order_note(struct fs *fs, uint64_t file, const struct service_caller *caller,
                   const struct service_move_order *order, int error);
/* Finds what keeps the store from `to`, where the last order wanted it. "": nothing is known. */
void fs_order_find_obstacle(const struct fs *fs, const struct core_store *store,
                            enum core_place *to, struct move_obstacle *out);

#endif
