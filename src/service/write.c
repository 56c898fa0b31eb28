/* SPDX-License-Identifier: Apache-2.0 */
/*
 * write - writes of clients, and spools that become memory of a size
 *
 * An allocation without a size is written to a spool. Bytes that are left out in between are zeros.
 */
#include "service/allocations.h"

#include "service/transfers.h"

#include <errno.h>

/* Returns an operation on the allocation of this open file. */
static struct spool_op make_op(const struct core_file *file, enum spool_kind kind,
                               struct service_request *request)
{
    return (struct spool_op){.turn = {.store = file->store, .uid = file->uid},
                             .kind = kind,
                             .request = request,
                             .session = file->session,
                             .serial = file->serial};
}

int service_write(struct service *s, uint64_t file, const void *from, size_t bytes, uint64_t offset,
                  struct service_request *request)
{
    const struct core_file *opened;
    const struct layout_allocation *allocation;
    const struct core_store *store;
    int error = service_find_open_allocation(s, file, &opened, &allocation, &store);
    if (!error && !(opened->flags & CORE_OPEN_WRITE))
        error = -EBADF;
    if (!error && core_find_session(s->core, opened->session)->mode == LOCK_MODE_RO)
        error = -ENOLCK;
    if (!error && offset > UINT64_MAX - bytes)
        error = -EFBIG;
    if (!error && bytes > 0)
        error = service_forget_times(s, opened->session, opened->serial);
    if (!error && bytes > 0) {
        struct spool_op op = make_op(opened, SPOOL_WRITE, request);
        op.from = from;
        op.bytes = bytes;
        op.offset = offset;
        error = spool_begin(s, &op, false);
        if (!error)
            return 0;
    }
    service_answer(request, error, NULL);
    return 0;
}

/* The smallest piece of a write that is admitted when the user has much under way. */
#define LEAST_BYTES 4096u

int service_admit_write(struct service *s, uint64_t file, size_t bytes,
                        struct service_admitted *admitted)
{
    const struct core_file *opened = core_find_file(s->core, file);
    *admitted = (struct service_admitted){0};
    if (!opened)
        return -EBADF;
    admitted->uid = opened->uid;
    return service_take_some(s, SERVICE_BOUND_QUEUED, opened->store, opened->uid, bytes,
                             LEAST_BYTES, &admitted->bytes);
}

void service_forget_write(struct service *s, const struct service_admitted *admitted)
{
    service_give(s, SERVICE_BOUND_QUEUED, admitted->uid, admitted->bytes);
}

int service_append(struct service *s, uint64_t file, const void *from, size_t bytes,
                   struct service_request *request)
{
    const struct core_file *opened;
    const struct layout_allocation *allocation;
    const struct core_store *store;
    uint64_t end = 0;
    if (service_find_open_allocation(s, file, &opened, &allocation, &store) == 0)
        end = allocation->size_bytes;
    return service_write(s, file, from, bytes, end, request);
}

int service_extend(struct service *s, uint64_t session, uint64_t serial, uint64_t size_bytes,
                   struct service_request *request)
{
    const struct core_session *held = core_find_session(s->core, session);
    struct spool_op op = {.turn = {.store = held->store, .uid = held->uid},
                          .kind = SPOOL_WRITE,
                          .request = request,
                          .session = session,
                          .serial = serial,
                          .from = "",
                          .offset = size_bytes};
    return spool_begin(s, &op, false);
}

int service_settle(struct service *s, uint64_t file, struct service_request *request)
{
    const struct core_file *opened;
    const struct layout_allocation *allocation;
    const struct core_store *store;
    if (vmm_can_settle(s->vmm) &&
        service_find_open_allocation(s, file, &opened, &allocation, &store) == 0 &&
        allocation->spool && (opened->flags & CORE_OPEN_WRITE)) {
        struct spool_op op = make_op(opened, SPOOL_SETTLE, request);
        if (spool_begin(s, &op, false) == 0)
            return 0;
    }
    service_answer(request, 0, NULL);
    return 0;
}

int service_sync(struct service *s, uint64_t file, struct service_request *request)
{
    const struct core_file *opened;
    const struct layout_allocation *allocation;
    const struct core_store *store;
    int error = service_find_open_allocation(s, file, &opened, &allocation, &store);
    /* A handle that cannot write does not end the spools of others. */
    if (!error && allocation->spool && (opened->flags & CORE_OPEN_WRITE)) {
        struct spool_op op = make_op(opened, SPOOL_SEAL, request);
        error = spool_begin(s, &op, false);
        if (!error)
            return 0;
    }
    service_answer(request, error, NULL);
    return 0;
}

void service_seal_file(struct service *s, const struct core_file *file)
{
    if (file->kind != CORE_KIND_ALLOCATION || !(file->flags & CORE_OPEN_WRITE))
        return;
    const struct layout_allocation *allocation = core_find_allocation(s->core, file->serial, NULL);
    if (!allocation || !allocation->spool)
        return;
    struct spool_op op = make_op(file, SPOOL_SEAL, NULL);
    spool_begin(s, &op, true);
}

int service_seal_spools(struct service *s, uint64_t session, uint64_t first, uint64_t count)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct core_store *store = held ? core_find_store(s->core, held->store) : NULL;
    if (!store)
        return -ESTALE;
    const struct layout *layout = core_get_layout(s->core, store);
    uint64_t total = layout_count_allocations(layout), started = 0;
    uint64_t end = count == 0 || count > total - first ? total : first + count;
    /* Starting one may end it at once and change the layout's objects, not their number. */
    for (uint64_t rank = first; rank < end; rank++) {
        const struct layout_allocation *allocation =
            layout_at_rank(core_get_layout(s->core, store), rank);
        if (!allocation->spool)
            continue;
        struct spool_op op = {.turn = {.store = store->id, .uid = held->uid},
                              .kind = SPOOL_SEAL,
                              .session = session,
                              .serial = allocation->serial};
        int error = spool_begin(s, &op, true);
        if (error)
            return error;
        started++;
    }
    return (int)started;
}
