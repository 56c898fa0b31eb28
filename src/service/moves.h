/* SPDX-License-Identifier: Apache-2.0 */
/* moves - stores on their way from tier to tier, and the room that their spares take in each */
#ifndef GMSFS_SERVICE_MOVES_H
#define GMSFS_SERVICE_MOVES_H

#include "service/service_internal.h"

/* move.c */
/* Time until the next try where the machine or the device, not the account, was short of memory: no
 * event tells when it has some again. */
#define SERVICE_PROMOTE_RETRY_MS 200u
#define SERVICE_LEAVE_RETRY_MS   500u /* the same for a store that could not leave the device */
/* Applies a MOVE_BEGIN, and begins to copy if there are bytes to copy. Errors as
 * service_order_move. */
int service_move_store(struct service *s, struct record *record);
#define service_move(s, ...) \
    service_move_store(s, &(struct record){.type = RECORD_MOVE_BEGIN, __VA_ARGS__})
/* Returns true if a move to this place has to copy bytes. */
bool service_needs_bytes(const struct core_store *store, enum core_place to);
/* Records that a move has failed; move 0: it could not begin. */
void service_move_failed(struct service *s, uint64_t store, uint64_t move, int error);
/* Makes operations for the moves of the former worker; they wait. Called before any record. */
void service_restore_moves(struct service *s);
/* Starts these moves, or records that they have failed. */
void service_begin_moves_anew(struct service *s);
/* Moves this store from the device to `to`. Errors as service_order_move. */
int service_evict(struct service *s, uint64_t store, enum core_place to, uint64_t evictor);
void service_on_move_over(struct service *s, const struct effect *effect);

/* move_wait.c */
/* Starts, or fails, the moves that wait for memory. */
void service_resume_moves(struct service *s);
/* Returns the store of the first move to the device for which no memory is on its way; NULL if
 * there is none. */
const struct core_store *service_get_short_move(const struct service *s, uint64_t *move);
/* Has that move wait on if other stores leave for it (comes); else it fails once no memory is on
 * its way. */
void service_settle_short_move(struct service *s, uint64_t move, bool comes);

/* spares.c */
extern const enum vmm_tier service_tiers[CORE_TIER_COUNT]; /* by place */
/* Returns the bytes that the waiting moves to this tier need. */
uint64_t service_count_waiting_moves(const struct service *s, enum vmm_tier tier);
/* Returns the bytes that a move may bring to this tier: free bytes and those of unneeded spares. */
uint64_t service_get_room_beside(const struct service *s, enum core_place tier);
/* Returns the bytes of this tier that are free or being freed, less the need of waiting moves; may
 * be negative. */
int64_t service_get_free_beside(const struct service *s, enum core_place tier);
/* Returns the bytes that a copy of the store takes in this tier. */
uint64_t service_count_cost(const struct service *s, const struct core_store *store,
                            enum core_place tier);
uint64_t service_count_spare(const struct service *s, const struct core_store *store,
                             enum core_place tier);
/* Drops the spare that has this piece, of which bytes could not be read. */
void service_spare_failed(struct service *s, uint64_t store, const struct piece *piece, int error);
/* Returns true if the store's copy in this tier may be dropped to make room. */
bool service_may_drop_copy(const struct service *s, const struct core_store *store,
                           enum core_place tier);
/* Drops this spare; error: why it could not be read, or 0. */
void service_drop_copy(struct service *s, uint64_t store, enum core_place tier, int error);

#endif
