/* SPDX-License-Identifier: Apache-2.0 */
/* account - the device's memory, charged, set aside and waited for by ALLOCs */
#ifndef GMSFS_SERVICE_ACCOUNT_H
#define GMSFS_SERVICE_ACCOUNT_H

#include "service/service_internal.h"

struct alloc_op;

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* alloc.c */
void service_retry_allocs(struct service *s);
/* Soon, for those who wait may do so in vain by now. */
void service_retry_allocs_soon(struct service *s);
void service_cancel_alloc(struct service *s, struct alloc_op *op, int error);
void service_cancel_session_allocs(struct service *s, uint64_t session);

/* become_free.c */
/* The account lacks so many bytes for this writer: may others give them back, or those leave the
 * device who can, once nobody uses them? Not: only by what somebody would have to decide. */
bool service_can_become_free(struct service *s, const struct core_session *held, uint64_t bytes);

/* line.c */
/* The last waiter that came before an ALLOC that waits for the device's memory: it keeps that from
 * those behind it, for alloc_timeout at most. UINT64_MAX: none waits */
uint64_t service_alloc_turn(const struct service *s);
/* The store's pool has as much left of its min: it waits behind nobody. */
bool service_is_guaranteed(const struct service *s, const struct core_store *store);
/* Nobody waits in ALLOC who comes before a move that nobody waits for. */
bool service_may_promote(const struct service *s, const struct core_store *store);

/* reserve.c */
/* Charges the device: from what is set aside for the session, then from what is free, after giving
 * up what only a rollback would need. `drawn`: how much of it was set aside. -EAGAIN: memory is
 * coming back, wait; -ENOMEM; -EDQUOT: the store's pool does not allow it. The record that puts it
 * into the layout says so (offset, slot), or service_end_making. */
int service_reserve(struct service *s, uint64_t session, uint64_t bytes, uint64_t *drawn);
/* The device itself lacked `bytes` that the account had. Gives up what only a rollback would need;
 * false: there is nothing, or too little. */
bool service_give_up(struct service *s, uint64_t session, uint64_t bytes);
/* Sets this much aside for a writer's session, which must live. Errors as service_reserve. */
int service_reserve_aside(struct service *s, uint64_t session, uint64_t bytes);
/* The same as if it were asked for with the lock now: -EAGAIN, -ENOMEM; gives nothing up. */
int service_reserve_as_acquire(struct service *s, uint64_t session, uint64_t bytes, bool replacing);

/* reserved.c */
/* The numbers of a session, which are recorded all at once. */
struct service_reserved {
    uint64_t aside_bytes, due_bytes, making_bytes, drawn_bytes;
};
struct service_reserved service_get_reserved(const struct core_session *held);
int service_record_reserved(struct service *s, uint64_t session,
                            const struct service_reserved *reserved);
/* Ends the making of `made` bytes, of which `drawn` came from the session's reservation: memory
 * that no record puts into the layout, or (refund: `drawn`) that was not made. The reservation gets
 * the refund when the memory comes back. */
void service_end_making(struct service *s, uint64_t session, uint64_t made, uint64_t drawn,
                        uint64_t refund);
/* Discharges memory that an allocation of this store had. */
void service_unreserve(struct service *s, uint64_t store, uint64_t bytes);

/* service_free: answered -ENOTCONN. */
void service_drop_allocs(struct service *s);

/* brief_wait.c */
/* When nothing is being given back any more: requests that wait for that. */
void service_answer_freed(struct service *s);
void service_drop_brief_waits(struct service *s); /* service_free */

/* shortfall.c */
/* The account had so many bytes for this store, and the device had not. */
void service_note_shortfall(struct service *s, uint64_t store, uint64_t bytes);

#endif
