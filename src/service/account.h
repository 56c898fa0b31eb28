/* SPDX-License-Identifier: Apache-2.0 */
/* account - the device's memory: charged, reserved for sessions, and waited for by ALLOCs */
#ifndef GMSFS_SERVICE_ACCOUNT_H
#define GMSFS_SERVICE_ACCOUNT_H

#include "service/service_internal.h"

struct alloc_op;

/* alloc.c */
void service_retry_allocs(struct service *s);
/* Tries the waiting ALLOCs soon: memory may have stopped coming for some of them. */
void service_retry_allocs_soon(struct service *s);
void service_cancel_alloc(struct service *s, struct alloc_op *op, int error);
void service_cancel_session_allocs(struct service *s, uint64_t session);

/* become_free.c */
/* Returns true if `bytes` for this writer may become free: others may give them back, or stores may
 * leave the device once their sessions end. False: only if a client decides to free them. */
bool service_can_become_free(struct service *s, const struct core_session *held, uint64_t bytes);

/* alloc_queue.c */
/* Returns the last waiter that is older than an ALLOC waiting for device memory: newer ones queue
 * behind that ALLOC, for alloc_timeout at most. UINT64_MAX: none waits */
uint64_t service_alloc_turn(const struct service *s);
/* Returns true if the store fits into the guaranteed rest (min=) of its pool: then it queues behind
 * no waiter. */
bool service_is_guaranteed(const struct service *s, const struct core_store *store);

/* reserve.c */
/* Charges the device: first from the session's reservation, then from free memory, after giving up
 * memory that only a rollback would need. `drawn`: bytes that came from the reservation. -EAGAIN:
 * memory is coming back, wait; -ENOMEM; -EDQUOT: the store's pool has no room. The record that puts
 * the memory into the layout ends this (offset, slot), or service_end_making. */
int service_reserve(struct service *s, uint64_t session, uint64_t bytes, uint64_t *drawn);
/* Gives up memory that only a rollback would need, where the device itself was short of `bytes`.
 * Returns false if there is too little of it. */
bool service_give_up(struct service *s, uint64_t session, uint64_t bytes);
/* Reserves this much for a writer's session, which must live. Errors as service_reserve. */
int service_reserve_aside(struct service *s, uint64_t session, uint64_t bytes);
/* The same by the rules of a reservation with the lock: -EAGAIN, -ENOMEM; gives nothing up. */
int service_reserve_as_acquire(struct service *s, uint64_t session, uint64_t bytes, bool replacing);

/* reserved.c */
/* The account of a session, which is recorded as a whole. */
struct service_reserved {
    uint64_t aside_bytes, due_bytes, making_bytes, drawn_bytes;
};
struct service_reserved service_get_reserved(const struct core_session *held);
int service_record_reserved(struct service *s, uint64_t session,
                            const struct service_reserved *reserved);
/* Ends the making of `made` bytes, of which `drawn` came from the session's reservation: memory
 * that no record puts into the layout, or (refund: `drawn`) memory that was not made. The
 * reservation gets the refund when the memory comes back. */
void service_end_making(struct service *s, uint64_t session, uint64_t made, uint64_t drawn,
                        uint64_t refund);
/* Discharges memory of a former allocation of this store. */
void service_unreserve(struct service *s, uint64_t store, uint64_t bytes);

/* brief_wait.c */
/* Answers the requests that wait until no memory is being freed, once that is so. */
void service_answer_freed(struct service *s);
void service_drop_brief_waits(struct service *s); /* for service_free */

/* shortfall.c */
/* Notes that the account had this many bytes for the store, and the device had not. */
void service_note_shortfall(struct service *s, uint64_t store, uint64_t bytes);

#endif
