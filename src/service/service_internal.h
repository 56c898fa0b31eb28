/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_internal - the service: the state, its memory, and the data of each part beside them
 *
 * For the files of src/service alone. A part is a header and the files that it names:
 *   step.h       jobs, and the work for the end of a step (settle.c, deeds.c, plan.h)
 *   piece.h      descriptors behind memory handles
 *   parked.h     the lock: openings and requests that wait behind a waiter of the core
 *   ending.h     transfers of sessions in flight, and how sessions end
 *   account.h    the device's memory: charged, reserved, waited for by ALLOCs (alloc_op.h)
 *   transfers.h  bytes and documents of clients (turns.h)
 *   summing.h    sums of stores' contents
 *   moves.h      stores on their way from tier to tier (move_op.h)
 *   backoff.h    operations that failed a moment ago
 *   cost.h       the daemon's own memory, and the users' shares of all bounds
 */
#ifndef GMSFS_SERVICE_SERVICE_INTERNAL_H
#define GMSFS_SERVICE_SERVICE_INTERNAL_H

#include "base/container.h"
#include "base/list.h"
#include "base/number.h"
#include "service/backoff.h"
#include "service/bounds.h"
#include "service/piece.h"
#include "service/step.h"

struct service {
    struct core *core;
    struct vmm *vmm;
    struct service_options options;
    struct service_host host;
    struct service_observer *observers;
    struct service_numbers numbers; /* counts: only if the host keeps none */
    struct service_counts *counts;
    uint64_t changes; /* records applied so far */
    uint64_t next_memory;
    bool ending; /* set by service_stop: effects are dropped, and there are no helpers */
    struct step step;
    struct deadline *deadlines;
    struct backoffs backoffs;
    struct piece_table pieces;
    struct idvec parked, in_flights;
    struct {
        struct idvec processes; /* by pid: their sessions end when they exit */
        struct deadline retry;  /* set while a process could not be watched */
    } watches;
    struct {
        struct share shares[SERVICE_BOUND_COUNT];
        struct bound_note *notes; /* users that met a bound of late */
    } bounds;
    struct {
        struct share slots; /* taken by running transfers */
        struct idvec users; /* users with transfers that wait for a slot */
        uint64_t next_user; /* the next turn is this user's, or a later one's */
    } turns;
    struct {
        struct spool_op *waiting; /* writes that wait for memory that is being freed */
        bool told_bound;
    } spools;
    struct {
        struct brief_wait *measuring; /* requests that wait for a measurement of the device */
        struct brief_wait *freeing;   /* requests that wait for memory that is being freed */
    } brief;
    struct {
        struct move_op *all; /* moves under way */
        bool end;            /* set by service_end_moves */
    } moves;
    struct {
        uint64_t store, bytes; /* the device itself was short of memory for this store; 0: none */
    } shortfall;
    struct alloc_op *alloc_queue; /* waiting for memory; the oldest is tried first */
    struct alloc_op *last_queued; /* its end */
    struct alloc_op *first_turn;  /* the first in it that newer waiters queue behind; or NULL */
    struct alloc_op *next_tried; /* the next of a pass over the queue; NULL: no pass is under way */
    struct bulk_op *bulk_queue;
    struct sums *sums;           /* contents.c's */
    struct idvec known_sums;     /* those with a text, by store */
    struct idvec region_objects; /* descriptors of regions, by memory number */
};

/* service.c: makes a service with neither state nor memory. NULL: no memory */
struct service *service_make(struct vmm *vmm, const struct service_options *options,
                             const struct service_host *host);

/* ledger.c: writes the journal, changes the state, keeps the account; everything else that follows
 * is left to the end of the step (settle.c). outcome: NULL if it does not matter. */
int service_apply_record(struct service *s, struct record *record, struct outcome *outcome);
/* service_record(s, .type = RECORD_..., ...): the same if only the error matters. */
#define service_record(s, ...) service_record_for(s, NULL, __VA_ARGS__)
#define service_record_for(s, outcome, ...) \
    service_apply_record(s, &(struct record){__VA_ARGS__}, outcome)
/* Applies a TICKET_ADD with a new random ticket. */
int service_add_ticket(struct service *s, struct record *record, uint8_t ticket[16]);

/* Has the end of the step try the waiters for memory: some is free again. */
static inline void service_note_memory(struct service *s)
{
    s->step.has_memory = s->step.is_unsettled = true;
}

/* Has the end of the step look at the waiting moves: it drops spares for them where no memory is on
 * its way, starts the moves that can begin, and fails the moves that never can. */
static inline void service_note_moves(struct service *s)
{
    s->step.has_moves = s->step.is_unsettled = true;
}

/* Returns when a wait of `timeout_ms` ends; UINT64_MAX: never. */
static inline uint64_t service_deadline_ms(uint64_t since_ms, uint64_t timeout_ms)
{
    return timeout_ms < UINT64_MAX - since_ms ? since_ms + timeout_ms : UINT64_MAX;
}

/* Returns false if the device has less in all: waiting for memory would not help. */
static inline bool service_can_ever_fit(const struct service *s, uint64_t bytes)
{
    return bytes <= vmm_get_total_in(s->vmm, VMM_TIER_DEVICE);
}

/* requests.c */
void service_answer(struct service_request *request, int error,
                    const struct service_answer *answer);
/* Returns the request that the present work is for (struct service_host); service_work_for sets it,
 * and returns the former one. */
uint64_t service_works_for(struct service *s);
uint64_t service_work_for(struct service *s, uint64_t request);
uint64_t service_now(const struct service *s);
/* Applies the changes by the clock alone. */
void service_pass_time(struct service *s);
/* Returns the time until this request must be answered; UINT64_MAX: no limit. */
uint64_t service_wait_max_ms(const struct service_request *request);

/* regions.c */
void service_on_region_over(struct service *s, const struct effect *effect);
/* -ESTALE: the region has ended. */
struct service_descriptor;
int service_get_region_descriptor(const struct service *s, uint64_t region,
                                  struct service_descriptor *descriptor);
void service_free_region_objects(struct service *s);
/* For service_restore: takes over the descriptor of a region. -ENOENT: no region has this memory */
int service_restore_region(struct service *s, uint64_t memory, int fd);
/* Logs the regions that have lost their descriptors; all else stays as it is. */
void service_tell_lost_regions(const struct service *s);

#endif
