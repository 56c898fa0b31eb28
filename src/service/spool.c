/* SPDX-License-Identifier: Apache-2.0 */
/* spool - memory that grows as it is written */
#include "base/log.h"
#include "service/account.h"
#include "service/ending.h"
#include "service/transfers.h"

#include <errno.h>
#include <stdlib.h>

/* Records that bytes of a committed layout change: no rollback from here on. Sealed bytes may
 * change. */
static int touch(struct service *s, const struct core_store *store, uint64_t session,
                 uint64_t memory)
{
    const struct core_session *held = core_find_session(s->core, session);
    if (held->touched || held->mode != LOCK_MODE_RW ||
        !core_is_fixed_memory(s->core, store, memory))
        return 0;
    return service_record(s, .type = RECORD_TOUCH, .session = session);
}

static void spool_start(struct service *s, struct spool_op *op);

/* Starts operations that have waited. */
static void start_all(struct service *s, struct spool_op *op)
{
    while (op) {
        struct spool_op *next = op->next;
        op->next = NULL;
        steps_go(spool_steps, &op->state, SPOOL_BEGINS);
        spool_start(s, op);
        op = next;
    }
}

static void spool_answer(struct service *s, struct spool_op *op, int error)
{
    struct service_request *request = op->request;
    struct service_answer answer = {.bytes = op->bytes};
    uint64_t session = op->session;
    steps_go(spool_steps, &op->state, SPOOL_ENDS);
    free(op);
    service_answer(request, error, &answer);
    service_end_use(s, session);
}

/* Seals. Sealed memory may have another descriptor, which the keeper gets in place of the old one;
 * if that failed, it is done with the next attempt. */
static int run_seal(const struct spool_op *op, struct vmm_piece *memory)
{
    const struct service_host *host = &op->turn.task.service->host;
    struct service_memory kept[PIECE_DESCRIPTORS];
    int fd = memory->fd;
    int error = memory->sealed ? 0 : vmm_seal(op->turn.task.service->vmm, memory, op->size_bytes);
    if (memory->fd != fd)
        op->piece->moved = true;
    if (error || !op->piece->moved)
        return error;
    error = host->keep(host->context, kept, piece_describe(op->piece, memory, kept));
    if (!error)
        op->piece->moved = false;
    return error;
}

/* Clears the gap before a write. New memory is clear; older memory may have bytes of a failed
 * write. */
static int clear_gap(struct vmm *vmm, struct spool_op *op)
{
    static const uint8_t zeros[65536];
    uint64_t end = op->offset < op->reserved_bytes ? op->offset : op->reserved_bytes;
    int error = 0;
    for (uint64_t at = op->gap_bytes; !error && at < end; at += sizeof zeros) {
        size_t bytes = end - at < sizeof zeros ? (size_t)(end - at) : sizeof zeros;
        error = vmm_write(vmm, &op->memory, zeros, bytes, at);
    }
    return error;
}

static void run_spool(struct job *job)
{
    struct spool_op *op = (struct spool_op *)job;
    const struct service_host *host = &op->turn.task.service->host;
    struct vmm *vmm = op->turn.task.service->vmm;
    struct vmm_piece *memory = &op->memory;
    if (op->kind == SPOOL_SETTLE) {
        op->error = memory->sealed ? 0 : vmm_settle(vmm, memory, op->size_bytes);
        return;
    }
    if (op->kind == SPOOL_SEAL) {
        op->error = run_seal(op, memory);
        return;
    }
    if (memory->fd < 0) {
        op->error = vmm_create(vmm, 0, false, memory);
        if (!op->error)
            op->error = host->admit_descriptor(host->context, memory->fd);
        struct service_memory kept[PIECE_DESCRIPTORS];
        if (!op->error)
            op->error = host->keep(host->context, kept, piece_describe(op->piece, memory, kept));
    }
    if (!op->error)
        op->error = vmm_grow(vmm, memory, op->piece->reserved_bytes);
    if (!op->error)
        op->error = clear_gap(vmm, op);
    if (!op->error && op->bytes > 0)
        op->error = vmm_write(vmm, memory, op->from, op->bytes, op->offset);
}

static int record_spool(struct service *s, const struct spool_op *op)
{
    return service_record(s, .type = RECORD_ALLOC_MEMORY, .session = op->session,
                          .serial = op->serial, .memory = op->piece->id,
                          .size_bytes = op->size_bytes, .aligned_bytes = op->piece->reserved_bytes,
                          .flags = op->kind == SPOOL_WRITE ? CORE_MEMORY_SPOOL : 0,
                          .offset = op->charged_bytes, .slot = op->drawn_bytes);
}

/* Undoes a failed write: the spool stays as it was; a new one is freed. */
static void undo_spool(struct service *s, struct spool_op *op)
{
    struct piece *piece = op->piece;
    if (op->kind != SPOOL_WRITE)
        return;
    service_end_making(s, op->session, op->charged_bytes, op->drawn_bytes, op->drawn_bytes);
    if (piece->new_serial) {
        piece->doomed = true; /* freed by piece_end */
        return;
    }
    /* Memory that was made beyond the account stays charged, until the spool ends. */
    uint64_t committed = piece->memory.aligned_bytes;
    uint64_t keep = committed > op->reserved_bytes ? committed : op->reserved_bytes;
    piece_shrink(s, piece, keep);
}

/* Frees memory beyond the size of a spool that has ended. */
static void give_back_excess(struct service *s, struct piece *piece)
{
    piece_count_spooled(s, piece, 0);
    if (piece->memory.aligned_bytes < piece->reserved_bytes)
        piece_shrink(s, piece, piece->memory.aligned_bytes);
}

static void finish_spool(struct service *s, struct spool_op *op, int error)
{
    struct piece *piece = op->piece;
    struct spool_op *queue = piece->queue;
    piece->memory = op->memory;
    if (op->kind == SPOOL_WRITE)
        s->numbers.transfers_in_flight--;
    if (!error && op->kind == SPOOL_SEAL)
        give_back_excess(s, piece);
    /* A spool that was truncated or removed meanwhile: the write counts as older, and must not be
     * undone. */
    if (!error && !piece->doomed && op->kind != SPOOL_SETTLE)
        error = record_spool(s, op);
    else if (!error)
        service_end_making(s, op->session, op->charged_bytes, op->drawn_bytes, 0);
    if (error && op->kind == SPOOL_SEAL)
        service_on_seal_failed(s, op->session, error);
    if (error)
        undo_spool(s, op);
    else
        piece->new_serial = 0;
    if (!error && op->kind == SPOOL_WRITE) {
        s->counts->transfers++;
        s->counts->written_bytes += op->bytes;
    }
    piece->queue = NULL;
    piece->exclusive = false;
    piece_end(s, piece);
    spool_answer(s, op, error);
    if (error) /* its charged bytes are free again */
        service_note_memory(s);
    start_all(s, queue); /* the first takes the piece for itself, the others queue there again */
}

static void end_spool(struct service *s, struct task *task)
{
    struct spool_op *op = (struct spool_op *)task;
    turn_end(s, &op->turn);
    finish_spool(s, op, op->turn.error ? op->turn.error : op->error);
}

static struct piece *find_spool_piece(struct service *s, const struct layout_allocation *allocation)
{
    if (allocation->memory != LAYOUT_NO_MEMORY)
        return idvec_find(&s->pieces.all, allocation->memory);
    for (size_t i = s->pieces.all.count; i > 0; i--) { /* new ones are at the end */
        struct piece *piece = s->pieces.all.items[i - 1];
        if (piece->new_serial == allocation->serial && !piece->doomed)
            return piece;
    }
    return NULL;
}

/* Charges a spool that is still in host memory, which has a bound of its own, to the user that
 * began it. */
static int take_spooled(struct service *s, struct piece *piece, const struct spool_op *op,
                        uint64_t bytes)
{
    if (!vmm_can_settle(s->vmm) || bytes <= piece->spooled_bytes)
        return 0;
    if (piece->spooled_bytes == 0)
        piece->uid = op->turn.uid;
    int error = service_take(s, SERVICE_BOUND_SPOOLS, op->turn.store, piece->uid,
                             bytes - piece->spooled_bytes);
    if (!error)
        piece->spooled_bytes = bytes;
    return error;
}

/* Charges the bytes that a write needs; on a full device shortens the write to the bytes that fit.
 * -EAGAIN: memory is coming back just now. */
static int spool_reserve(struct service *s, struct piece *piece, struct spool_op *op)
{
    uint64_t end = op->offset + op->bytes;
    op->reserved_bytes = piece->reserved_bytes;
    op->drawn_bytes = op->charged_bytes = 0;
    if (end <= piece->reserved_bytes)
        return 0;
    uint64_t need = vmm_align(s->vmm, end), before = piece->reserved_bytes;
    if (need == 0)
        return -ENOMEM;
    int error = take_spooled(s, piece, op, need);
    if (!error)
        error = service_reserve(s, op->session, need - before, &op->drawn_bytes);
    if (!error) {
        op->charged_bytes = need - before;
        piece->reserved_bytes = need;
        return 0;
    }
    piece_count_spooled(s, piece, before);
    if (error == -EAGAIN)
        return error;
    if (before <= op->offset)
        return error;
    op->bytes = before - op->offset;
    return 0;
}

/* Warns once: writers write again and again. */
static void tell_spool_bound(struct service *s)
{
    if (!s->spools.told_bound)
        log_warning("an allocation that is written to without a size is bounded by spool_max= "
                    "(%llu bytes): give it its size first (truncate -s SIZE FILE), then write "
                    "without truncating (dd conv=notrunc), or mount with a greater spool_max=",
                    (unsigned long long)s->options.spool_max_bytes);
    s->spools.told_bound = true;
}

static int spool_prepare_write(struct service *s, const struct layout_allocation *allocation,
                               struct spool_op *op)
{
    uint64_t size_bytes = allocation->memory == LAYOUT_NO_MEMORY ? 0 : allocation->size_bytes;
    if (op->offset >= s->options.spool_max_bytes &&
        !(op->bytes == 0 && op->offset == s->options.spool_max_bytes)) {
        tell_spool_bound(s);
        return -EFBIG;
    }
    if (op->bytes > s->options.spool_max_bytes - op->offset)
        op->bytes = s->options.spool_max_bytes - op->offset;
    if (!op->piece) {
        op->piece = piece_new(s, op->session, 0);
        if (!op->piece)
            return -ENOMEM;
        op->piece->new_serial = op->serial;
        if (idvec_insert(&s->pieces.all, op->piece)) {
            free(op->piece);
            op->piece = NULL;
            return -ENOMEM;
        }
    }
    int error = spool_reserve(s, op->piece, op);
    uint64_t end = op->offset + op->bytes;
    op->gap_bytes = size_bytes;
    op->size_bytes = end > size_bytes ? end : size_bytes;
    if (error && op->piece->new_serial && op->piece->running == 0) {
        free(idvec_remove(&s->pieces.all, op->piece->id));
        op->piece = NULL;
    }
    return error;
}

static int write_sized(struct service *s, struct spool_op *op, const struct core_store *store,
                       const struct layout_allocation *allocation)
{
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    struct service_transfer wanted = {.piece = piece,
                                      .session = op->session,
                                      .store = store->id,
                                      .uid = op->turn.uid,
                                      .from = op->from,
                                      .span = {.offset = op->offset, .bytes = op->bytes}};
    if (op->offset >= allocation->size_bytes)
        return -ENOSPC; /* as at the end of a block device */
    if (op->bytes > allocation->size_bytes - op->offset)
        wanted.span.bytes = allocation->size_bytes - op->offset;
    if (!piece)
        return -EIO;
    if (piece->tier != VMM_TIER_DEVICE)
        return -EAGAIN; /* of a store in another tier, to be replaced as a whole */
    int error = touch(s, store, op->session, allocation->memory);
    if (!error)
        error = service_start_transfer(s, &wanted, op->request);
    return error;
}

void service_drop_spools(struct service *s)
{
    while (s->spools.waiting) {
        struct spool_op *op = s->spools.waiting;
        struct service_request *request = op->request;
        s->spools.waiting = op->next;
        free(op);
        service_answer(request, -ENOTCONN, NULL);
    }
}

void service_retry_spools(struct service *s)
{
    struct spool_op *waiting = s->spools.waiting;
    s->spools.waiting = NULL;
    start_all(s, waiting);
}

/* Runs an operation, or queues it behind the one that has the spool. The session is in use. */
static void spool_start(struct service *s, struct spool_op *op)
{
    const struct core_store *store = NULL;
    const struct layout_allocation *allocation = core_find_allocation(s->core, op->serial, &store);
    int error = allocation ? 0 : -ESTALE;
    bool sized = allocation && allocation->memory != LAYOUT_NO_MEMORY && !allocation->spool;
    op->piece = NULL;
    if (!error && sized && op->kind == SPOOL_WRITE) {
        error = write_sized(s, op, store, allocation);
        if (!error) {
            steps_go(spool_steps, &op->state, SPOOL_ENDS);
            free(op); /* a plain transfer takes over the request and its use of the session */
            return;
        }
    } else if (!error && !sized) {
        op->piece = find_spool_piece(s, allocation);
        if (op->piece && op->piece->exclusive) {
            steps_go(spool_steps, &op->state, SPOOL_QUEUES);
            LIST_APPEND(op->piece->queue, op);
            return;
        }
        if (op->kind == SPOOL_WRITE)
            error = spool_prepare_write(s, allocation, op);
        else if (op->piece)
            op->size_bytes = allocation->size_bytes;
    }
    /* Memory freed or given up for it is not back yet: a matter of milliseconds. */
    if (error == -EAGAIN) {
        steps_go(spool_steps, &op->state, SPOOL_WAITS);
        LIST_APPEND(s->spools.waiting, op);
        return;
    }
    if (error || !op->piece) {
        spool_answer(s, op, error);
        return;
    }
    op->turn.task = (struct task){.job.run = run_spool, .end = end_spool};
    op->error = 0;
    op->memory = op->piece->memory;
    op->piece->exclusive = true;
    steps_go(spool_steps, &op->state, SPOOL_RUNS);
    piece_begin(op->piece);
    if (op->kind == SPOOL_WRITE)
        s->numbers.transfers_in_flight++;
    error = turn_begin(s, &op->turn, op->kind != SPOOL_WRITE);
    if (error)
        finish_spool(s, op, error);
}

int spool_begin(struct service *s, const struct spool_op *wanted, bool closing)
{
    struct spool_op *op = malloc(sizeof *op);
    if (!op)
        return -ENOMEM;
    *op = *wanted;
    int error = closing ? service_begin_use_while_closing(s, op->session)
                        : service_begin_use(s, op->session);
    if (error) {
        free(op);
        return error;
    }
    spool_start(s, op);
    return 0;
}
