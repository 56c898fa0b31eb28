/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transfer - moves bytes of clients to and from memory of a final size
 *
 * A transfer holds its session in use and its piece alive.
 */
#include "service/allocations.h"

#include "service/ending.h"
#include "service/moves.h"
#include "service/transfers.h"
#include "service/turns.h"

#include <errno.h>
#include <stdlib.h>

struct transfer {
    struct turn turn; /* first */
    struct service_request *request;
    struct service_transfer wanted;
    struct vmm_piece memory; /* as of the start: a spool that ends gets another */
    struct vmm_loan loan;    /* of a read */
    int error;
};

static void run_transfer(struct job *job)
{
    struct transfer *t = (struct transfer *)job;
    struct vmm *vmm = t->turn.task.service->vmm;
    struct vmm_piece *memory = &t->memory;
    if (t->wanted.from)
        t->error =
            vmm_write(vmm, memory, t->wanted.from, t->wanted.span.bytes, t->wanted.span.offset);
    else
        t->error = vmm_lend(vmm, memory, &t->wanted.span, &t->loan);
}

static void answer_loan(struct service *s, struct service_request *request, struct vmm_loan *loan)
{
    struct service_answer answer = {.data = loan->parts[0].at, .bytes = loan->parts[0].bytes};
    if (loan->count > 1) {
        answer.rest = loan->parts[1].at;
        answer.rest_bytes = loan->parts[1].bytes;
    }
    s->counts->transfers++;
    s->counts->read_bytes += answer.bytes + answer.rest_bytes;
    service_answer(request, 0, &answer);
    vmm_end_loan(s->vmm, loan);
}

static void end_transfer(struct service *s, struct task *task)
{
    struct transfer *t = (struct transfer *)task;
    struct service_answer written = {.bytes = t->wanted.span.bytes};
    uint64_t session = t->wanted.session;
    int error = t->turn.error ? t->turn.error : t->error;
    s->numbers.transfers_in_flight--;
    if (!error && !t->wanted.from) {
        answer_loan(s, t->request, &t->loan);
    } else {
        s->counts->transfers++;
        if (!error)
            s->counts->written_bytes += t->wanted.span.bytes;
        if (error == -EIO && !t->wanted.from)
            service_spare_failed(s, t->wanted.store, t->wanted.piece, error);
        service_answer(t->request, error, &written);
    }
    piece_end(s, t->wanted.piece);
    turn_end(s, &t->turn);
    free(t);
    service_end_use(s, session);
}

int service_start_transfer(struct service *s, const struct service_transfer *wanted,
                           struct service_request *request)
{
    struct transfer *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    *t = (struct transfer){
        .turn = {.task = {.job.run = run_transfer, .end = end_transfer},
                 .store = wanted->store,
                 .uid = wanted->uid},
        .request = request,
        .wanted = *wanted,
        .memory = wanted->piece->memory,
    };
    piece_begin(wanted->piece);
    s->numbers.transfers_in_flight++;
    int error = turn_begin(s, &t->turn, false);
    if (!error)
        return 0;
    s->numbers.transfers_in_flight--;
    piece_end(s, wanted->piece);
    free(t);
    return error;
}

int service_find_open_allocation(struct service *s, uint64_t file, const struct core_file **opened,
                                 const struct layout_allocation **allocation,
                                 const struct core_store **store)
{
    *opened = core_find_file(s->core, file);
    if (!*opened || (*opened)->kind != CORE_KIND_ALLOCATION)
        return -EBADF;
    if (!core_find_session(s->core, (*opened)->session))
        return -ESTALE;
    *allocation = core_find_allocation(s->core, (*opened)->serial, store);
    return *allocation ? 0 : -ESTALE;
}

/* Reads from memory that is at hand, without a helper thread. */
static int read_now(struct service *s, const struct piece *piece, const struct vmm_span *span,
                    uint64_t session, struct service_request *request)
{
    struct vmm_loan loan;
    int error = vmm_lend_now(s->vmm, &piece->memory, span, &loan);
    if (error)
        return error;
    answer_loan(s, request, &loan);
    service_end_use(s, session);
    return 0;
}

static int start_read(struct service *s, const struct core_file *opened,
                      const struct layout_allocation *allocation, struct vmm_span *span, bool later,
                      struct service_request *request)
{
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    uint64_t session = opened->session;
    if (!piece)
        return -EIO;
    /* A writer sees the writes of its engine at once; committed bytes do not change. */
    if (core_find_session(s->core, session)->mode == LOCK_MODE_RO)
        span->reader = opened->id;
    int error = service_begin_use(s, session);
    if (error)
        return error;
    if (later || read_now(s, piece, span, session, request)) {
        struct service_transfer wanted = {.piece = piece,
                                          .session = session,
                                          .store = opened->store,
                                          .uid = opened->uid,
                                          .span = *span};
        error = service_start_transfer(s, &wanted, request);
    }
    if (error)
        service_end_use(s, session);
    return error;
}

/* Finds the bytes of a file in its allocation: those of its region, or all. */
static int find_bytes(struct service *s, const struct core_file *opened, uint64_t file,
                      const struct layout_allocation **allocation, struct vmm_span *span)
{
    const struct core_store *store;
    if (!opened || opened->kind != CORE_KIND_REGION || !opened->holds) {
        int error = service_find_open_allocation(s, file, &opened, allocation, &store);
        if (error)
            return error;
        if (!(opened->flags & CORE_OPEN_READ))
            return -EBADF;
        span->bytes = (*allocation)->memory == LAYOUT_NO_MEMORY ? 0 : (*allocation)->size_bytes;
        bool given_up = store->lock.bare && span->bytes == 0 && (*allocation)->size_bytes > 0;
        return given_up ? -EIO : 0;
    }
    const struct region *region = core_find_region(s->core, opened->serial);
    *allocation = region ? core_find_region_allocation(s->core, region) : NULL;
    if (!*allocation || !core_find_session(s->core, opened->session))
        return -ESTALE;
    *span = (struct vmm_span){.offset = region->offset, .bytes = region->byte_size};
    return 0;
}

int service_read(struct service *s, uint64_t file, size_t bytes, uint64_t offset,
                 struct service_request *request)
{
    const struct core_file *opened = core_find_file(s->core, file);
    const struct layout_allocation *allocation;
    struct vmm_span span = {0};
    int error = find_bytes(s, opened, file, &allocation, &span);
    if (error || offset >= span.bytes || bytes == 0) {
        service_answer(request, error, NULL);
        return 0;
    }
    span.offset += offset;
    span.bytes = bytes < span.bytes - offset ? bytes : span.bytes - offset;
    span.end = allocation->size_bytes;
    error = start_read(s, opened, allocation, &span, false, request);
    if (error)
        service_answer(request, error, NULL);
    return 0;
}

/* Finds another allocation of the store that an open allocation is of. */
static int find_part(struct service *s, uint64_t file, uint64_t serial,
                     const struct core_file **opened, const struct layout_allocation **allocation)
{
    const struct core_store *store = NULL;
    int error = service_find_open_allocation(s, file, opened, allocation, &store);
    if (!error && !((*opened)->flags & CORE_OPEN_READ))
        error = -EBADF;
    if (error)
        return error;
    *allocation = core_find_allocation(s->core, serial, &store);
    if (!*allocation || store->id != (*opened)->store)
        return -ESTALE;
    return (*allocation)->memory == LAYOUT_NO_MEMORY ? -EIO : 0;
}

int service_read_part(struct service *s, uint64_t file, const struct service_part *part,
                      struct service_request *request)
{
    struct vmm_span span = {.offset = part->offset, .bytes = part->bytes};
    const struct layout_allocation *allocation;
    const struct core_file *opened;
    int error = find_part(s, file, part->serial, &opened, &allocation);
    if (!error && (part->bytes == 0 || part->offset > allocation->aligned_bytes ||
                   part->bytes > allocation->aligned_bytes - part->offset))
        error = -EINVAL;
    if (!error) {
        span.end = allocation->aligned_bytes;
        error = start_read(s, opened, allocation, &span, part->later, request);
    }
    if (error)
        service_answer(request, error, NULL);
    return 0;
}
