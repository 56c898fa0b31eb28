/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_op - an ALLOC, a resize or a RESERVE under way
 *
 * For alloc.c, which owns it, alloc_make.c, which makes its memory on helper threads, and
 * alloc_publish.c, which records that memory.
 */
#ifndef GMSFS_SERVICE_ALLOC_OP_H
#define GMSFS_SERVICE_ALLOC_OP_H

#include "service/account.h"
#include "service/allocations.h"
#include "service/steps.h"

#include <stdatomic.h>

/* The share of one thread. Drivers take their time but serve several calls at once; so each thread
 * makes the next piece that is left, and all end together. */
struct alloc_part {
    struct task task; /* first */
    struct alloc_op *op;
    int error;
};

struct alloc_op {
    struct alloc_part parts[SERVICE_MAX_ALLOC_THREADS];
    uint32_t parts_running;
    atomic_uint_fast64_t taken; /* pieces that the parts have taken */
    atomic_bool failed;         /* a part failed: the others stop */
    atomic_bool
        interrupted; /* its client has gone: no further piece is made, and it waits no more */
    void (*made)(struct alloc_op *op); /* called when all parts have ended */
    struct service *service;
    enum alloc_state state;
    struct service_request *request;
    uint64_t works_for; /* service_works_for at the time of the request */
    uint64_t session;
    uint32_t uid;         /* user that it counts for */
    uint64_t taken_bytes; /* within SERVICE_BOUND_ALLOCS */
    uint64_t serial;      /* resize: the allocation; 0: new allocations */
    bool aside;           /* a RESERVE: makes nothing, reserves `size_bytes` for the session */
    uint64_t size_bytes,
        aligned_bytes;                /* of each allocation; with `items` 0, and of all together */
    uint64_t total_bytes;             /* of all, aligned; UINT64_MAX if the sum overflows */
    struct service_alloc_item *items; /* `count` different allocations; NULL: all are alike */
    uint64_t drawn_bytes;   /* part of charged_bytes that came from the session's reservation */
    uint64_t charged_bytes; /* bytes charged for the memory that is being made */
    uint64_t deadline_ms;   /* end of the wait; 0: it waits for memory that is being freed already,
                               and no other */
    uint64_t turn;          /* the first waiter that is newer; 0: it has never waited */
    uint64_t turn_until_ms; /* until when newer waiters queue behind it */
    struct deadline expiry, turn_over; /* for deadline_ms and turn_until_ms, set while it waits */
    struct deadline retry;             /* of the next try, after the machine was short of memory */
    uint32_t count;
    bool exact, waits_for_decision;         /* struct service_alloc */
    bool complained;                        /* the event of the shortage was written */
    uint64_t before_bytes;                  /* aside: the reservation at the time of the request */
    char name[256], tag[256], wire_id[256]; /* "": none */
    struct piece **pieces;                  /* `count` pieces while the job runs */
    int error;                              /* of the job */
    bool is_queued;
    struct alloc_op *next, *prev;
};

static inline uint64_t alloc_size_of(const struct alloc_op *op, uint32_t index)
{
    return op->items ? op->items[index].size_bytes : op->size_bytes;
}

/* Returns true if the operation failed a moment ago and is not tried again yet. */
static inline bool alloc_is_backed_off(const struct service *s, const struct alloc_op *op)
{
    return op->retry.at_ms > 0 && op->retry.at_ms > service_now(s);
}

/* Returns the bytes that the operation needs beyond its session's reservation and refunds. */
static inline uint64_t alloc_count_short(const struct alloc_op *op, const struct core_session *held)
{
    uint64_t has_bytes = held->reserved_bytes + (op->aside ? held->due_bytes : 0);
    return op->total_bytes > has_bytes ? op->total_bytes - has_bytes : 0;
}

/* alloc_queue.c: the queue is in the order of turns. */
void alloc_queue_add(struct service *s, struct alloc_op *op);
void alloc_queue_remove(struct service *s, struct alloc_op *op);
/* Call it when a turn is over. */
void alloc_queue_pass_turns(struct service *s);

/* Makes `count` pieces and gives them to the keeper; op->made is called on the loop's thread, and
 * op->error tells the result. Fails only if no part could start: a single one makes all the pieces
 * as well, slowly. */
int alloc_make(struct service *s, struct alloc_op *op);

/* Enters memory that is made and kept into the tables, then into the state, all or nothing; the
 * table then owns it. slots: of allocations that differ. */
int alloc_publish(struct alloc_op *op, struct service_answer *answer, uint64_t *slots);

#endif
