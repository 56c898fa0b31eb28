/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alloc - memory for allocations: ALLOC, RESERVE and ftruncate, and the wait for memory
 *
 * Order for new memory: the account, the descriptor (jobs), the keeper's duplicate (same jobs), the
 * record, the answer. A failure on the way gives everything back.
 */
#include "service/alloc_op.h"
#include "service/allocations.h"
#include "service/bounds.h"
#include "service/ending.h"
#include "service/parked.h"
#include "service/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Time until the next try where the machine, not the account, was short of memory: no event tells
 * when it has some again. Also how late the service notices that memory has stopped coming. */
#define RETRY_MS 200u

/* Estimates of a request's memory in its front end, with its argument. */
#define REQUEST_BYTES      2048u
#define EACH_REQUEST_BYTES 17408u /* of allocations that differ */

/* ---- ALLOC and resize -------------------------------------------------------------------- */

static void op_free(struct alloc_op *op)
{
    service_give(op->service, SERVICE_BOUND_ALLOCS, op->uid, op->taken_bytes);
    free(op->pieces);
    free(op->items);
    free(op);
}

/* Gives back the memory that a failed operation has made or charged. */
static void op_give_back(struct service *s, struct alloc_op *op)
{
    service_end_making(s, op->session, op->charged_bytes, op->drawn_bytes, op->drawn_bytes);
    op->drawn_bytes = op->charged_bytes = 0;
    for (uint32_t i = 0; i < op->count; i++) {
        if (op->pieces[i])
            piece_free(s, op->pieces[i]);
        op->pieces[i] = NULL;
    }
    piece_free_gathered(s);
}

static void try_again(struct service *s, struct deadline *deadline)
{
    (void)deadline;
    service_note_memory(s);
}

/* Backs off: the machine was short of memory, not the account. */
static void retry_later(struct service *s, struct alloc_op *op)
{
    op->retry.pass = try_again;
    deadline_set(s, &op->retry, service_now(s) + RETRY_MS);
}

static void expire(struct service *s, struct deadline *deadline)
{
    service_cancel_alloc(s, CONTAINER_OF(deadline, struct alloc_op, expiry), -ENOMEM);
}

/* Stores that waited behind it may be promoted. */
static void end_turn(struct service *s, struct deadline *deadline)
{
    (void)deadline;
    alloc_queue_pass_turns(s);
    s->step.is_unsettled = true;
}

static void op_queue(struct service *s, struct alloc_op *op)
{
    if (op->turn == 0) {
        op->turn = s->core->next_waiter;
        op->turn_until_ms = service_now(s) + s->options.alloc_timeout_ms;
    }
    alloc_queue_add(s, op);
    op->request->alloc = op;
    op->expiry.pass = expire;
    op->turn_over.pass = end_turn;
    deadline_set(s, &op->expiry, op->deadline_ms ? op->deadline_ms : UINT64_MAX);
    if (op->turn_until_ms > service_now(s))
        deadline_set(s, &op->turn_over, op->turn_until_ms);
    s->step.is_unsettled = true;
}

/* Does nothing if it is not in the queue. */
static void unqueue(struct service *s, struct alloc_op *op)
{
    if (!op->is_queued)
        return;
    alloc_queue_remove(s, op);
    op->request->alloc = NULL;
    deadline_clear(s, &op->expiry);
    deadline_clear(s, &op->turn_over);
}

static void op_answer(struct alloc_op *op, int error, const struct service_answer *answer)
{
    struct service_request *request = op->request;
    unqueue(op->service, op);
    steps_go(alloc_steps, &op->state, ALLOC_ENDS);
    deadline_clear(op->service, &op->retry);
    op_free(op);
    service_answer(request, error, answer);
}

/* Leaves it in the queue, or puts it there, until memory comes free. */
static void op_wait(struct service *s, struct alloc_op *op)
{
    steps_go(alloc_steps, &op->state, ALLOC_WAITS);
    if (!op->is_queued)
        op_queue(s, op);
}

static void note_shortfall(struct service *s, uint64_t session, uint64_t bytes)
{
    const struct core_session *held = core_find_session(s->core, session);
    if (held)
        service_note_shortfall(s, held->store, bytes);
}

/* Ends the operation's job: its last part has ended. */
static void finish_create(struct alloc_op *op)
{
    struct service *s = op->service;
    uint64_t slots[SERVICE_MAX_ALLOC_ITEMS];
    struct service_answer answer = {.slots = slots};
    uint64_t session = op->session, now_ms = service_now(s);
    int error = op->error;
    uint64_t missing_bytes = piece_count_missing(op->pieces, op->count);
    if (!error && missing_bytes > 0)
        error = -EINTR; /* between two pieces */
    if (!error)
        error = alloc_publish(op, &answer, slots);
    missing_bytes = error == -ENOMEM ? missing_bytes : 0;
    bool gave_up = missing_bytes > 0 && service_give_up(s, session, missing_bytes);
    if (missing_bytes > 0 && !gave_up)
        note_shortfall(s, session, missing_bytes);
    if (error)
        op_give_back(s, op);
    if (error && atomic_load(&op->interrupted))
        error = -EINTR;
    /* The machine or the device is short of memory: try again later. */
    if (error == -ENOMEM && (gave_up || op->deadline_ms > now_ms)) {
        op->error = 0;
        retry_later(s, op);
        op_wait(s, op);
    } else {
        op_answer(op, error, &answer);
    }
    service_end_use(s, session);
}

static int op_reserve(struct service *s, struct alloc_op *op)
{
    const struct core_session *held = core_find_session(s->core, op->session);
    uint64_t left_bytes = op->total_bytes;
    int error = service_reserve(s, op->session, op->total_bytes, &op->drawn_bytes);
    if (error)
        return error;
    op->charged_bytes = op->total_bytes;
    for (uint32_t i = 0; i < op->count; i++) {
        uint64_t bytes = vmm_align(s->vmm, alloc_size_of(op, i));
        op->pieces[i] = piece_new(s, op->session, bytes);
        if (op->pieces[i]) {
            left_bytes -= bytes;
            continue;
        }
        retry_later(s, op);
        op_give_back(s, op);
        service_unreserve(s, held ? held->store : 0, left_bytes);
        return -ENOMEM;
    }
    return 0;
}

static int op_set_aside(struct service *s, struct alloc_op *op)
{
    int error = service_reserve_aside(s, op->session, op->aligned_bytes);
    struct service_answer answer = {.reserved_bytes = op->aligned_bytes,
                                    .reserved_before_bytes = op->before_bytes};
    if (!error)
        op_answer(op, 0, &answer);
    return error;
}

/* Tries once. 0: the job runs, or the request is answered. -EAGAIN, -ENOMEM: not now. Another error
 * is final. */
static int op_try(struct service *s, struct alloc_op *op)
{
    if (op->aside)
        return op_set_aside(s, op);
    int error = op_reserve(s, op);
    if (error)
        return error;
    error = service_begin_use(s, op->session);
    if (error)
        goto give_back;
    error = alloc_make(s, op);
    if (!error) {
        unqueue(s, op);
        steps_go(alloc_steps, &op->state, ALLOC_MAKES);
        op->request->alloc = op;
        return 0;
    }
    service_end_use(s, op->session);
give_back:
    retry_later(s, op);
    op_give_back(s, op);
    return error;
}

static void complain_once(struct service *s, struct alloc_op *op)
{
    if (op->complained)
        return;
    op->complained = true;
    service_record(s, .type = RECORD_OUT_OF_MEMORY, .session = op->session);
}

/* Returns true if there may be memory later, and the deadline is not over. */
static bool op_may_wait(struct service *s, const struct alloc_op *op)
{
    const struct core_session *held = core_find_session(s->core, op->session);
    uint64_t now_ms = service_now(s);
    if (!held || op->deadline_ms <= now_ms || !service_can_ever_fit(s, op->total_bytes))
        return false;
    return op->waits_for_decision || alloc_is_backed_off(s, op) ||
           service_can_become_free(s, held, alloc_count_short(op, held));
}

static void wait_or_answer(struct service *s, struct alloc_op *op, int error)
{
    if (error == -EAGAIN || (error == -ENOMEM && op_may_wait(s, op)))
        op_wait(s, op);
    else if (error)
        op_answer(op, error, NULL);
}

static void op_start(struct service *s, struct alloc_op *op)
{
    int error = op_try(s, op);
    if (error == -EAGAIN || error == -ENOMEM)
        complain_once(s, op);
    wait_or_answer(s, op, error);
}

/* Returns the memory of an operation and of its request, which it has for as long as it waits. */
static uint64_t count_op_bytes(uint32_t count, bool has_items)
{
    uint64_t request_bytes = has_items ? EACH_REQUEST_BYTES : REQUEST_BYTES;
    uint64_t item_bytes = has_items ? sizeof(struct service_alloc_item) : 0;
    return request_bytes + sizeof(struct alloc_op) + count * (sizeof(struct piece *) + item_bytes);
}

/* 0, -EDQUOT, -ENOMEM */
static int op_new(struct service *s, uint64_t session, uint32_t count, bool has_items,
                  uint64_t size_bytes, struct service_request *request, struct alloc_op **made)
{
    uint32_t uid = core_find_session(s->core, session)->uid;
    uint64_t taken_bytes = count_op_bytes(count, has_items);
    int error = service_take(s, SERVICE_BOUND_ALLOCS, 0, uid, taken_bytes);
    if (error)
        return error;
    struct alloc_op *op = calloc(1, sizeof *op);
    struct piece **pieces = calloc(count, sizeof *pieces);
    if (!op || !pieces) {
        free(op);
        free(pieces);
        service_give(s, SERVICE_BOUND_ALLOCS, uid, taken_bytes);
        return -ENOMEM;
    }
    op->pieces = pieces;
    op->uid = uid;
    op->taken_bytes = taken_bytes;
    op->service = s;
    op->made = finish_create;
    op->request = request;
    op->works_for = service_works_for(s);
    op->session = session;
    op->count = count;
    op->size_bytes = size_bytes;
    op->aligned_bytes = vmm_align(s->vmm, size_bytes);
    if (__builtin_mul_overflow(op->aligned_bytes, (uint64_t)count, &op->total_bytes))
        op->total_bytes = UINT64_MAX;
    *made = op;
    return 0;
}

static int check_text(const char *text)
{
    return strlen(text) > 255 ? -EINVAL : 0;
}

static int check_alike(const struct service *s, const struct service_alloc *alloc)
{
    if (alloc->size_bytes == 0 || alloc->count == 0 || check_text(alloc->name) ||
        check_text(alloc->tag) || (alloc->wire_id && check_text(alloc->wire_id)))
        return -EINVAL;
    if (alloc->count > LAYOUT_MAX_ALLOCATIONS)
        return -ENOSPC;
    return vmm_align(s->vmm, alloc->size_bytes) == 0 ? -ENOMEM : 0;
}

static int check_items(const struct service *s, const struct service_alloc *alloc,
                       uint64_t *total_bytes)
{
    *total_bytes = 0;
    if (alloc->count == 0 || alloc->count > SERVICE_MAX_ALLOC_ITEMS)
        return -EINVAL;
    for (uint32_t i = 0; i < alloc->count; i++) {
        const struct service_alloc_item *item = &alloc->items[i];
        uint64_t bytes = vmm_align(s->vmm, item->size_bytes);
        if (item->size_bytes == 0 || check_text(item->name) || check_text(item->tag))
            return -EINVAL;
        if (bytes == 0 || __builtin_add_overflow(*total_bytes, bytes, total_bytes))
            return -ENOMEM;
    }
    return 0;
}

static int op_set_items(struct alloc_op *op, const struct service_alloc *alloc,
                        uint64_t total_bytes)
{
    op->items = calloc(alloc->count, sizeof *op->items);
    if (!op->items)
        return -ENOMEM;
    memcpy(op->items, alloc->items, alloc->count * sizeof *op->items);
    op->size_bytes = 0;
    op->total_bytes = op->aligned_bytes = total_bytes;
    return 0;
}

static int op_of_alloc(struct service *s, uint64_t session, const struct service_alloc *alloc,
                       struct service_request *request, struct alloc_op **made)
{
    uint64_t total_bytes = 0;
    int error = alloc->items ? check_items(s, alloc, &total_bytes) : check_alike(s, alloc);
    if (error)
        return error;
    struct alloc_op *op;
    error = op_new(s, session, alloc->count, alloc->items, alloc->items ? 0 : alloc->size_bytes,
                   request, &op);
    if (error)
        return error;
    if (alloc->items) {
        error = op_set_items(op, alloc, total_bytes);
    } else {
        memcpy(op->name, alloc->name, strlen(alloc->name));
        memcpy(op->tag, alloc->tag, strlen(alloc->tag));
        if (alloc->wire_id)
            memcpy(op->wire_id, alloc->wire_id, strlen(alloc->wire_id));
    }
    if (error) {
        op_free(op);
        return error;
    }
    *made = op;
    return 0;
}

/* Returns the end of the wait: at most the mount's limit, and the kernel's, which would end the
 * mount for a later answer. A restart of the worker does not extend it. wished_ms: 0: no other
 * limit. */
static uint64_t alloc_deadline_ms(const struct service *s, uint64_t wished_ms,
                                  const struct service_request *request)
{
    uint64_t since_ms = request->since_ms ? request->since_ms : service_now(s);
    uint64_t timeout_ms = number_smaller(service_wait_max_ms(request), s->options.alloc_timeout_ms);
    return service_deadline_ms(since_ms,
                               wished_ms ? number_smaller(wished_ms, timeout_ms) : timeout_ms);
}

int service_alloc(struct service *s, const struct service_actor *by,
                  const struct service_alloc *alloc, struct service_request *request)
{
    struct alloc_op *op = NULL;
    uint64_t session = 0;
    int error = service_find_writer(s, by, &session);
    if (!error)
        error = op_of_alloc(s, session, alloc, request, &op);
    if (error) {
        service_answer(request, error, NULL);
        return 0;
    }
    op->exact = alloc->exact;
    op->waits_for_decision = alloc->waits_for_decision;
    if (alloc->waits_for_ever)
        op->deadline_ms = UINT64_MAX;
    else if (alloc->wait)
        op->deadline_ms = alloc_deadline_ms(s, alloc->timeout_ms, request);
    op_start(s, op);
    return 0;
}

int service_set_aside(struct service *s, const struct service_actor *by,
                      const struct service_set_aside *wanted, struct service_request *request)
{
    struct service_answer answer = {0};
    uint64_t aligned_bytes = vmm_align(s->vmm, wanted->bytes), session = 0;
    struct alloc_op *op;
    int error = service_find_writer(s, by, &session);
    const struct core_session *held = core_find_session(s->core, session);
    if (error)
        ;
    else if (aligned_bytes < wanted->bytes)
        error = -ENOMEM;
    else if (wanted->at_least && aligned_bytes <= held->reserved_bytes + held->due_bytes) {
        answer.reserved_bytes = answer.reserved_before_bytes =
            held->reserved_bytes + held->due_bytes;
    } else if (wanted->as_acquire) {
        answer.reserved_bytes = aligned_bytes;
        answer.reserved_before_bytes = held->reserved_bytes + held->due_bytes;
        error = service_reserve_as_acquire(s, session, aligned_bytes, wanted->replacing);
    } else if ((error = op_new(s, session, 1, false, wanted->bytes, request, &op)) == 0) {
        op->aside = true;
        op->before_bytes = held->reserved_bytes + held->due_bytes;
        if (wanted->wait)
            op->deadline_ms = alloc_deadline_ms(s, wanted->timeout_ms, request);
        op_start(s, op);
        return 0;
    }
    service_answer(request, error, &answer);
    return 0;
}

int service_resize(struct service *s, const struct service_actor *by, uint64_t serial,
                   uint64_t size_bytes, struct service_request *request)
{
    const struct layout_allocation *allocation = core_find_allocation(s->core, serial, NULL);
    struct alloc_op *op = NULL;
    uint64_t session = 0;
    int error = service_find_writer(s, by, &session);
    if (error)
        ;
    else if (!allocation)
        error = -ESTALE;
    else if (allocation->memory != LAYOUT_NO_MEMORY && !allocation->spool &&
             allocation->size_bytes == size_bytes)
        ; /* nothing to do */
    else if (allocation->spool && size_bytes > allocation->size_bytes) {
        error = service_forget_times(s, session, serial);
        error = error ? error : service_extend(s, session, serial, size_bytes, request);
        if (!error)
            return 0;
    } else if (size_bytes == 0) {
        error =
            service_record(s, .type = RECORD_ALLOC_MEMORY, .session = session, .serial = serial);
        service_answer(request, error, NULL);
        return 0;
    } else if (allocation->memory != LAYOUT_NO_MEMORY && size_bytes != allocation->size_bytes)
        error = -EBUSY;
    else if (allocation->memory == LAYOUT_NO_MEMORY && vmm_align(s->vmm, size_bytes) == 0)
        error = -ENOMEM;
    else if (allocation->memory == LAYOUT_NO_MEMORY)
        error = op_new(s, session, 1, false, size_bytes, request, &op);
    if (!op) {
        service_answer(request, error, NULL);
        return 0;
    }
    op->serial = serial;
    op_start(s, op);
    return 0;
}

/* ---- waiting for memory ------------------------------------------------------------------ */

void service_cancel_alloc(struct service *s, struct alloc_op *op, int error)
{
    /* finish_create answers: the kernel tells only once that the client has gone */
    if (op->state == ALLOC_MAKES) {
        atomic_store(&op->interrupted, true);
        return;
    }
    op_answer(op, error, NULL);
    s->step.is_unsettled = true; /* stores that queued behind it may be promoted */
}

void service_cancel_session_allocs(struct service *s, uint64_t session)
{
    struct alloc_op *op = s->alloc_queue;
    while (op) {
        bool ends = op->session == session;
        if (ends)
            service_cancel_alloc(s, op, -ESTALE);
        op = ends ? s->alloc_queue : op->next; /* answering may have changed the queue */
    }
}

/* Tries every waiter, in order: the large wish of one store does not hold the others up. */
void service_retry_allocs(struct service *s)
{
    s->next_tried = s->alloc_queue;
    while (s->next_tried) {
        struct alloc_op *op = s->next_tried;
        s->next_tried = op->next;
        steps_go(alloc_steps, &op->state, ALLOC_TRIES);
        /* A failed try gives memory back, which would start the next one at once, without end. */
        int error = alloc_is_backed_off(s, op) ? -EAGAIN : op_try(s, op);
        wait_or_answer(s, op, error);
    }
}

void service_retry_allocs_soon(struct service *s)
{
    if (s->alloc_queue && !service_is_backed_off(s, BACKOFF_ALLOCS, 0))
        service_back_off(s, BACKOFF_ALLOCS, 0, RETRY_MS);
}
