/* SPDX-License-Identifier: Apache-2.0 */
/* moves - stores on their way from tier to tier, and what their spares have of each */
#ifndef GMSFS_SERVICE_MOVES_H
#define GMSFS_SERVICE_MOVES_H

#include "service/service_internal.h"

/* move.c */
/* When the machine or the device, not the account, lacked memory, nobody tells when it has some. */
#define SERVICE_PROMOTE_RETRY_MS 200u
#define SERVICE_LEAVE_RETRY_MS   500u /* of a store that could not leave the device */
/* MOVE_BEGIN: with bytes that are copied, or by the record alone. Errors as service_order_move. */
int service_move_store(struct service *s, struct record *record);
#define service_move(s, ...) \
    service_move_store(s, &(struct record){.type = RECORD_MOVE_BEGIN, __VA_ARGS__})
/* For that it has to be copied there. */
bool service_needs_bytes(const struct core_store *store, enum core_place to);
/* Told by a record; 0: it could not begin. */
void service_move_failed(struct service *s, uint64_t store, uint64_t move, int error);
/* Those that the state tells of are there, and wait: before any record. */
void service_restore_moves(struct service *s);
/* They begin, or fail. */
void service_begin_moves_anew(struct service *s);
/* This store leaves the device for that one. Errors as service_order_move. */
int service_evict(struct service *s, uint64_t store, enum core_place to, uint64_t evictor);
void service_on_move_over(struct service *s, const struct effect *effect);

/* move_wait.c */
/* Starts, or fails, the moves that wait for memory. */
void service_resume_moves(struct service *s);
/* The first that waits to come to the device, and nothing is on its way that would do; NULL: none
 */
const struct core_store *service_get_short_move(const struct service *s, uint64_t *move);
/* That move goes on waiting, for others leave; or it ends. */
void service_settle_short_move(struct service *s, uint64_t move, bool comes);

/* spares.c */
extern const enum vmm_tier service_tiers[CORE_TIER_COUNT]; /* of a place */
/* What moves to this tier cost that wait until something there is free. */
uint64_t service_count_waiting_moves(const struct service *s, enum vmm_tier tier);
/* So much may go to this tier: what is free, and what spares would give back that are not needed.
 */
uint64_t service_get_room_beside(const struct service *s, enum core_place tier);
/* What of this tier nobody has been promised yet; negative: more than there is. */
int64_t service_get_free_beside(const struct service *s, enum core_place tier);
/* What a copy of the store takes of this tier, and what its spare there would give back. */
uint64_t service_count_cost(const struct service *s, const struct core_store *store,
                            enum core_place tier);
uint64_t service_count_spare(const struct service *s, const struct core_store *store,
                             enum core_place tier);
/* Bytes of this piece of the store could not be read. A spare that has it is of no use. */
void service_spare_failed(struct service *s, uint64_t store, const struct piece *piece, int error);
/* A copy of the store that its tier can do without. */
bool service_may_drop_copy(const struct service *s, const struct core_store *store,
                           enum core_place tier);
/* This spare goes; error: it could not be read, or 0. */
void service_drop_copy(struct service *s, uint64_t store, enum core_place tier, int error);

#endif
