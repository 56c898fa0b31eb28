/* SPDX-License-Identifier: Apache-2.0 */
/*
 * order - the last orders to move stores, and their obstacles
 *
 * For `info`, which shows a store's obstacle. At most FS_ORDERS are remembered, each for another
 * store, for as long as the worker lives. If all places are taken, a user's order replaces its own
 * oldest; only the order of a user without any replaces another user's.
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
    uint64_t event;                /* number of the next event when the order came */
    uint64_t move;                 /* id of the move that the order began; 0: it was refused */
    struct move_obstacle obstacle; /* "": the move has begun */
    uint32_t owner, group, mode;   /* of the store at that time: the obstacle is for its readers */
};

struct fs_orders {
    struct fs_order list[FS_ORDERS];
    uint64_t changes; /* counts changes of the list */
};

/* Notes the service's answer to service_order_move() on this file of the caller. In the same
 * step. */
void fs_order_note(struct fs *fs, uint64_t file, const struct service_caller *caller,
                   const struct service_move_order *order, int error);
/* Finds the obstacle between the store and `to`, the target of its last order. "": none is
 * known. */
void fs_order_find_obstacle(const struct fs *fs, const struct core_store *store,
                            enum core_place *to, struct move_obstacle *out);

#endif
