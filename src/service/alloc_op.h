/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc_op - an ALLOC, a resize or a RESERVE under way
 *
 * For alloc.c, whose it is, alloc_make.c, which makes its memory on helper threads, and
 * alloc_publish.c, which makes it known.
 */
#ifndef GMSFS_SERVICE_ALLOC_OP_H
#define GMSFS_SERVICE_ALLOC_OP_H

#include "service/account.h"
#include "service/allocations.h"
#include "service/steps.h"

#include <stdatomic.h>

/* One thread's share of an operation. Drivers take their time, but several calls at a time; so each
 * thread makes whichever piece is next, and they end together. */
struct alloc_part {
    struct task task; /* first */
    struct alloc_op *op;
    int error;
};

struct alloc_op {
    struct alloc_part parts[SERVICE_MAX_ALLOC_THREADS];
    uint32_t parts_running;
    atomic_uint_fast64_t taken; /* pieces that some part makes or has made */
    atomic_bool failed;         /* a part did: the others need not go on */
    atomic_bool interrupted;    /* nobody waits for it: no further piece, and it waits no more */
    void (*made)(struct alloc_op *op); /* all parts are through */
    struct service *service;
    enum alloc_state state;
    struct service_request *request;
    uint64_t works_for; /* service_works_for, when it was asked for */
    uint64_t id;        /* of the operation, for its back-off */
    uint64_t session;
    uint64_t serial; /* resize: of this allocation; 0: new ones */
    bool aside;      /* nothing is made: `size_bytes` are to be set aside for the session */
    uint64_t size_bytes, aligned_bytes; /* of each; of those that differ: 0, and of all together */
    uint64_t total_bytes;               /* aligned; UINT64_MAX: more than there are numbers */
    struct service_alloc_item *items;   /* `count` that differ, or NULL */
    uint64_t drawn_bytes;   /* of what the job's memory costs: this much was set aside */
    uint64_t charged_bytes; /* and this is what it costs */
    uint64_t deadline_ms;   /* of waiting; 0: only for memory that is being freed already */
    uint64_t turn;          /* waiters from this one on came later; 0: it never waited */
    uint64_t turn_until_ms; /* so long they wait behind it */
    struct deadline expiry, turn_over; /* of these two, set while it waits */
    uint32_t count;
    bool waits_for_decision;                /* struct service_alloc */
    bool complained;                        /* the event was written */
    uint64_t before_bytes;                  /* aside: what was set aside when it was asked */
    char name[256], tag[256], wire_id[256]; /* "": none */
    struct piece **pieces;                  /* `count` of them while the job runs */
    int error;                              /* the job's */
    struct alloc_op *next;
};

static inline uint64_t alloc_size_of(const struct alloc_op *op, uint32_t index)
{
    return op->items ? op->items[index].size_bytes : op->size_bytes;
}

/* Returns the bytes that the operation needs beyond what its session has or is due. */
static inline uint64_t alloc_count_short(const struct alloc_op *op, const struct core_session *held)
{
    uint64_t has_bytes = held->reserved_bytes + (op->aside ? held->due_bytes : 0);
    return op->total_bytes > has_bytes ? op->total_bytes - has_bytes : 0;
}

/* Has `count` pieces made and kept; op->made is called on the loop's thread, when op->error says
 * whether they are. Fails only if no part could be started: one makes all the pieces as well, if
 * slowly. */
int alloc_make(struct service *s, struct alloc_op *op);

/* The memory is there and kept: enters it into the tables, then into the state, all or nothing.
 * What was entered is the table's, no longer the operation's. slots: of those that differ. */
int alloc_publish(struct alloc_op *op, struct service_answer *answer, uint64_t *slots);

#endif
