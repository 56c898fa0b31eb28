/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_obstacle - why a store does not move, and the way out
 *
 * For front ends, which ask in the step in which an order is refused, or after the end of a move.
 * Pure: reads the state and the account, changes nothing.
 */
#ifndef GMSFS_SERVICE_MOVE_OBSTACLE_H
#define GMSFS_SERVICE_MOVE_OBSTACLE_H

#include "service/service.h"

/* Room for three stores with the longest names. */
#define MOVE_OBSTACLE_BYTES 2048u

struct move_obstacle {
    char text[MOVE_OBSTACLE_BYTES]; /* as "it never fits: ..."; "": none is known */
};

/* Tells why service_order_move() of the store to `to` has answered `error`. The text is for all
 * readers of the store: it names the processes and pools of another store only if each of them may
 * read that store. */
void service_find_obstacle(const struct service *s, const struct core_store *store,
                           enum core_place to, int error, struct move_obstacle *out);
/* Tells why a move to `to` that was under way when the next event had the number `event` did not
 * bring the store there. "": it did, it has not ended, or its end is not remembered. */
void service_find_move_end(const struct service *s, const struct core_store *store,
                           enum core_place to, uint64_t event, struct move_obstacle *out);

#endif
