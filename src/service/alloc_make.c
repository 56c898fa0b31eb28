/* SPDX-License-Identifier: Apache-2.0 */
/* alloc_make - makes memory on several threads, and gives it to the keeper in batches */
#include "service/alloc_op.h"

#include <errno.h>

/* Descriptors that go to the keeper at once. A round trip then costs less than a microsecond a
 * piece, and the last batch of each thread, when nothing else runs, is small. */
#define KEEP_BATCH 128u

/* Makes a piece. Several threads may take the last descriptors before admit_descriptor refuses the
 * first of them. */
static int make_piece(const struct alloc_op *op, struct piece *piece, uint64_t size_bytes)
{
    struct service *s = op->service;
    int error = op->exact ? vmm_create_exact(s->vmm, size_bytes, &piece->memory)
                          : vmm_create(s->vmm, size_bytes, true, &piece->memory);

    if (error == -EMFILE || error == -ENFILE)
        return -ENOSPC;
    return error ? error : s->host.admit_descriptor(s->host.context, piece->memory.fd);
}

/* Takes the next piece; NULL: none is left, or the operation has ended. */
static struct piece *take_piece(struct alloc_op *op, uint64_t *size_bytes)
{
    if (atomic_load(&op->failed) || atomic_load(&op->interrupted))
        return NULL;
    uint64_t index = atomic_fetch_add(&op->taken, 1);
    if (index >= op->count)
        return NULL;
    *size_bytes = alloc_size_of(op, (uint32_t)index);
    return op->pieces[index];
}

static void run_create(struct job *job)
{
    struct alloc_part *part = (struct alloc_part *)job;
    struct alloc_op *op = part->op;
    const struct service_host *host = &op->service->host;
    struct service_memory batch[KEEP_BATCH];
    struct piece *piece;
    uint64_t size_bytes;
    size_t gathered = 0;
    while (!part->error && (piece = take_piece(op, &size_bytes))) {
        part->error = make_piece(op, piece, size_bytes);
        if (part->error)
            break;
        gathered += piece_describe(piece, &piece->memory, batch + gathered);
        if (gathered + PIECE_DESCRIPTORS <= KEEP_BATCH)
            continue;
        part->error = host->keep(host->context, batch, gathered);
        gathered = 0;
    }
    if (!part->error && gathered > 0 && !atomic_load(&op->failed))
        part->error = host->keep(host->context, batch, gathered);
    if (part->error)
        atomic_store(&op->failed, true);
}

static void end_create(struct service *s, struct task *task)
{
    struct alloc_part *part = (struct alloc_part *)task;
    struct alloc_op *op = part->op;
    (void)s;
    if (!op->error)
        op->error = part->error;
    if (--op->parts_running == 0)
        op->made(op);
}

static uint32_t count_parts(const struct service *s, const struct alloc_op *op)
{
    uint32_t threads = s->options.alloc_threads;
    if (threads > SERVICE_MAX_ALLOC_THREADS)
        threads = SERVICE_MAX_ALLOC_THREADS;
    if (threads == 0)
        threads = 1;
    return op->count < threads ? op->count : threads;
}

int alloc_make(struct service *s, struct alloc_op *op)
{
    uint32_t count = count_parts(s, op);
    uint64_t former = service_work_for(s, op->works_for); /* the request may have waited since */
    int error = 0;
    op->parts_running = 0;
    atomic_init(&op->failed, false);
    atomic_init(&op->taken, 0);
    for (uint32_t i = 0; i < count && !error; i++) {
        struct alloc_part *part = &op->parts[i];
        *part = (struct alloc_part){.task = {.job.run = run_create, .end = end_create}, .op = op};
        error = service_submit(s, SERVICE_POOL_MEMORY, &part->task);
        if (!error)
            op->parts_running++;
    }
    service_work_for(s, former);
    return op->parts_running == 0 ? error : 0;
}
