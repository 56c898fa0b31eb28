/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move_step - the steps of a move on helper threads
 *
 * First they make its memory, then copy its bytes, then sync them to the disk if that is the
 * target, or make the memory immutable if the layout is. Where the store has a copy in the tier
 * already, they verify that copy instead.
 */
#include "service/client_error.h"
#include "service/move_op.h"

#include <errno.h>

/* ---- memory -------------------------------------------------------------------------------- */

static int make_memory(struct move_part *part, struct piece *piece)
{
    struct service *s = part->op->service;
    bool is_final = piece->tier == VMM_TIER_DEVICE && !part->op->seals;
    int error = part->op->seals
                    ? vmm_create_untrimmed(s->vmm, piece->moving_bytes, &piece->memory)
                    : vmm_create_in(s->vmm, piece->tier, piece->moving_bytes, &piece->memory);
    if (!error && is_final)
        error = vmm_finish(s->vmm, &piece->memory);
    if (!error && s->host.admit_descriptor(s->host.context, piece->memory.fd) != 0)
        error = -ENFILE;
    if (error)
        return service_error_for_client(error);
    piece->memory.final = is_final;
    part->described += piece_describe(piece, &piece->memory, part->batch + part->described);
    part->made++;
    return 0;
}

static void run_make(struct job *job)
{
    struct move_part *part = (struct move_part *)job;
    struct move_op *op = part->op;
    const struct service_host *host = &op->service->host;
    part->error = 0;
    part->made = 0;
    part->described = 0;
    while (!part->error && part->made < MOVE_STEP_COUNT) {
        uint32_t index = (uint32_t)atomic_fetch_add(&op->taken, 1);
        part->is_over = index >= op->count;
        if (part->is_over)
            break;
        part->error = make_memory(part, op->pieces[index]);
    }
    /* The keeper gets the pieces of a failed step as well: they are freed as all others are. */
    if (part->made > 0) {
        int error = host->keep(host->context, part->batch, part->described);
        if (!part->error)
            part->error = service_error_for_client(error);
    }
}

/* ---- bytes --------------------------------------------------------------------------------- */

static uint64_t count_span_bytes(const struct move_op *op, uint32_t index)
{
    return move_op_verifies(op) ? op->sources[index]->memory.aligned_bytes
                                : op->pieces[index]->moving_bytes;
}

/* Takes the next free bytes, by turns out of a few pieces: threads that make the pages of one
 * piece, or write to it, wait for each other in the kernel. */
static bool take_span(struct move_op *op, struct move_span *span)
{
    for (uint32_t tries = 0; tries < MOVE_OPEN_PIECES; tries++) {
        struct move_cursor *cursor = &op->cursors[op->turn];
        op->turn = (op->turn + 1) % MOVE_OPEN_PIECES;
        if (cursor->index >= op->count) {
            if (op->begun == op->count)
                continue;
            *cursor = (struct move_cursor){.index = op->begun++};
        }
        uint64_t left = count_span_bytes(op, cursor->index) - cursor->offset;
        *span = (struct move_span){.index = cursor->index,
                                   .offset = cursor->offset,
                                   .bytes = number_smaller(left, VMM_MOVE_STEP_BYTES)};
        cursor->offset += span->bytes;
        if (span->bytes == left)
            cursor->index = op->count;
        return true;
    }
    return false;
}

static bool take(struct move_part *part)
{
    struct move_op *op = part->op;
    pthread_mutex_lock(&op->mutex);
    part->is_over = !take_span(op, &part->span);
    pthread_mutex_unlock(&op->mutex);
    return !part->is_over;
}

static int copy(struct move_part *part)
{
    struct move_op *op = part->op;
    struct vmm *vmm = op->service->vmm;
    const struct move_span *span = &part->span;
    if (move_op_verifies(op))
        return vmm_probe(vmm, &op->sources[span->index]->memory, span->offset, span->bytes);
    const struct vmm_piece *from = &op->sources[span->index]->memory;
    struct vmm_piece *to = &op->pieces[span->index]->memory;
    int error = vmm_populate(vmm, to, span->offset, span->bytes);
    if (error || span->offset >= from->aligned_bytes)
        return error; /* behind the end of exact memory: zeros, as the copy has there */
    uint64_t bytes = number_smaller(span->bytes, from->aligned_bytes - span->offset);
    return vmm_move(vmm, from, to, span->offset, bytes);
}

/* A part that failed and is tried again still has the span that failed. */
static void run_copy(struct job *job)
{
    struct move_part *part = (struct move_part *)job;
    part->error = 0;
    while (part->step_bytes < VMM_MOVE_STEP_BYTES) {
        if (part->span.bytes == 0 && !take(part))
            break;
        part->error = copy(part);
        if (part->error)
            break;
        part->step_bytes += part->span.bytes;
        part->span.bytes = 0;
    }
}

/* ---- the disk, immutable memory ------------------------------------------------------------ */

static int probe_ends(struct vmm *vmm, const struct vmm_piece *piece)
{
    int error = vmm_probe(vmm, piece, 0, VMM_PROBE_BYTES);
    return error ? error
                 : vmm_probe(vmm, piece, piece->aligned_bytes - VMM_PROBE_BYTES, VMM_PROBE_BYTES);
}

static int settle(struct move_op *op, uint32_t index)
{
    struct vmm *vmm = op->service->vmm;
    if (move_op_verifies(op))
        return probe_ends(vmm, &op->sources[index]->memory);
    struct vmm_piece *made = &op->pieces[index]->memory;
    int error = vmm_sync(vmm, made);
    if (error || !op->seals)
        return error;
    error = vmm_trim(vmm, made, op->pieces[index]->size_bytes);
    if (!error)
        error = vmm_make_immutable(vmm, made);
    made->final = made->immutable = error == 0;
    return error;
}

static void run_settle(struct job *job)
{
    struct move_part *part = (struct move_part *)job;
    struct move_op *op = part->op;
    part->error = 0;
    for (unsigned i = 0; i < MOVE_DISK_COUNT && !part->error; i++) {
        uint32_t index = (uint32_t)atomic_fetch_add(&op->taken, 1);
        part->is_over = index >= op->count;
        if (part->is_over)
            break;
        part->error = settle(op, index);
    }
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Returns true for the first transfer that failed: its copier may have died. */
static bool may_retry(struct move_op *op, int error)
{
    bool again = error == -EIO && op->state == MOVE_COPIES;
    if (again)
        move_op_go(op, MOVE_AGAIN);
    return again;
}

static int start_parts(struct move_op *op, uint64_t count, void (*run)(struct job *job));

static int start_copies(struct move_op *op)
{
    return start_parts(op, op->count + op->all_bytes / VMM_MOVE_STEP_BYTES, run_copy);
}

/* Starts the next phase. Returns false if there is none, or no part could start. */
static bool begin_next_phase(struct move_op *op)
{
    bool copies = op->state == MOVE_MAKES,
         copied = op->state == MOVE_COPIES || op->state == MOVE_AGAIN;
    if (!copies && (!copied || (op->tier != VMM_TIER_DISK && !op->seals)))
        return false;
    move_op_go(op, copies ? MOVE_COPIES : MOVE_SYNCS);
    atomic_store(&op->taken, 0);
    int error = copies ? start_copies(op) : start_parts(op, op->count, run_settle);
    if (error)
        op->error = error;
    return !error;
}

static void end_phase(struct move_op *op)
{
    if (op->error || op->state == MOVE_CANCELLED || !begin_next_phase(op))
        op->finish(op);
}

static void end_step(struct service *s, struct task *task)
{
    struct move_part *part = (struct move_part *)task;
    struct move_op *op = part->op;
    op->done_bytes += part->step_bytes;
    part->step_bytes = 0;
    if (part->error && may_retry(op, part->error))
        part->error = 0;
    if (!op->error)
        op->error = part->error;
    bool over = op->error || part->is_over || op->state == MOVE_CANCELLED;
    if (!over) {
        int error = service_submit(s, op->pool, &part->task);
        if (!error)
            return;
        op->error = error;
    }
    if (--op->parts_running == 0)
        end_phase(op);
}

/* Fails only if no part could start. */
static int start_parts(struct move_op *op, uint64_t count, void (*run)(struct job *job))
{
    int error = 0;
    op->parts_running = 0;
    for (uint32_t i = 0; i < count && i < MOVE_MAX_PARTS && !error; i++) {
        struct move_part *part = &op->parts[i];
        *part = (struct move_part){.task = {.job.run = run, .end = end_step}, .op = op};
        error = service_submit(op->service, op->pool, &part->task);
        if (!error)
            op->parts_running++;
    }
    return op->parts_running > 0 ? 0 : error;
}

/* A copy that is to heal its store may be damaged as well, so all of it is read. */
int move_op_start(struct move_op *op)
{
    const struct core_store *store = core_find_store(op->service->core, op->store);
    bool verifies = move_op_verifies(op);
    for (uint32_t i = 0; i < MOVE_OPEN_PIECES; i++)
        op->cursors[i].index = op->count;
    move_op_go(op, !verifies                     ? MOVE_MAKES
                   : store && store->suspect > 0 ? MOVE_READS
                                                 : MOVE_VERIFIES);
    if (op->state == MOVE_READS)
        return start_copies(op);
    return start_parts(op, op->count ? op->count : 1, verifies ? run_settle : run_make);
}
