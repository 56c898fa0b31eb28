/* SPDX-License-Identifier: Apache-2.0 */
/* move_step - what helper threads do for a move, a little at a time */
#include "service/move_op.h"

#include <errno.h>

/* As alloc_make.c */
static int make_memory(struct move_part *part, struct piece *piece)
{
    struct service *s = part->op->service;
    int error = vmm_create_in(s->vmm, piece->tier, piece->moving_bytes, &piece->memory);
    if (error == -EMFILE || error == -ENFILE)
        return -ENOSPC;
    if (!error)
        error = s->host.admit_descriptor(s->host.context, piece->memory.fd);
    if (error)
        return error;
    part->batch[part->made++] = (struct service_memory){
        .id = piece->id, .fd = piece->memory.fd, .bytes = piece->memory.aligned_bytes};
    return 0;
}

/* The next piece that no part has begun. */
static void take(struct move_part *part)
{
    struct move_op *op = part->op;
    uint32_t index = (uint32_t)atomic_fetch_add(&op->taken, 1);
    part->is_over = index >= op->count;
    part->index = part->is_over ? op->count : index;
    part->offset = 0;
}

/* As much of the piece as the step still has room for. */
static int copy(struct move_part *part)
{
    struct move_op *op = part->op;
    struct piece *piece = op->pieces[part->index];
    uint64_t left = piece->moving_bytes - part->offset;
    uint64_t room = VMM_MOVE_STEP_BYTES - part->step_bytes;
    uint64_t bytes = left < room ? left : room;
    int error = piece->memory.fd < 0 ? make_memory(part, piece) : 0;
    if (!error)
        error = vmm_move(op->service->vmm, &op->sources[part->index]->memory, &piece->memory,
                         part->offset, bytes);
    if (error)
        return error;
    part->offset += bytes;
    part->step_bytes += bytes;
    if (part->offset == piece->moving_bytes)
        part->index = op->count;
    return 0;
}

static void run_step(struct job *job)
{
    struct move_part *part = (struct move_part *)job;
    const struct service_host *host = &part->op->service->host;
    part->error = 0;
    while (!part->error && part->step_bytes < VMM_MOVE_STEP_BYTES && part->made < MOVE_STEP_COUNT &&
           !atomic_load(&part->op->cancelled)) {
        if (part->index == part->op->count)
            take(part);
        if (part->is_over)
            break;
        part->error = copy(part);
    }
    /* Also what a failed step has made: it goes as all that was kept. */
    if (part->made > 0) {
        int error = host->keep(host->context, part->batch, part->made);
        if (!part->error)
            part->error = error;
    }
    part->made = 0;
}

/* A transfer that fails once may have had a copier that died. */
static bool may_retry(struct move_op *op, int error)
{
    bool again = error == -EIO && !op->retried;
    op->retried |= again;
    return again;
}

static void done_step(struct job *job)
{
    struct move_part *part = (struct move_part *)job;
    struct move_op *op = part->op;
    struct service *s = op->service;
    s->numbers.jobs_in_flight--;
    op->done_bytes += part->step_bytes;
    part->step_bytes = 0;
    if (part->error && may_retry(op, part->error))
        part->error = 0;
    if (!op->error)
        op->error = part->error;
    bool over = op->error || part->is_over || atomic_load(&op->cancelled);
    if (!over) {
        int error = service_submit(s, SERVICE_POOL_MOVE, &part->job);
        if (!error)
            return;
        op->error = error;
    }
    if (--op->parts_running == 0)
        op->finish(op);
}

int move_op_start(struct move_op *op)
{
    /* Not as many as make a device's memory best: a demotion makes the pages of the host's. */
    uint32_t count = op->count < MOVE_MAX_PARTS ? op->count : MOVE_MAX_PARTS;
    bool started = false;
    int error = 0;
    if (count == 0)
        count = 1;
    op->parts_running = 1; /* this one: a job may be done before the next one begins */
    for (uint32_t i = 0; i < count && !error; i++) {
        struct move_part *part = &op->parts[i];
        *part = (struct move_part){
            .job = {.run = run_step, .done = done_step}, .op = op, .index = op->count};
        op->parts_running++;
        error = service_submit(op->service, SERVICE_POOL_MOVE, &part->job);
        if (error)
            op->parts_running--;
        else
            started = true;
    }
    if (--op->parts_running == 0 && started)
        op->finish(op);
    return started ? 0 : error;
}
