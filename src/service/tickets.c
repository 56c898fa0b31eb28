/* SPDX-License-Identifier: Apache-2.0 */
#include "service/tickets.h"

#include "service/allocations.h"
#include "service/parked.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct export_scope { /* found by the file, valid until the next record */
    const struct core_file *file;
    const struct core_session *session;
    const struct core_store *store;
    const struct layout *layout;
    uint64_t first, count;
    uint64_t serial; /* one allocation; 0: ranks */
};

/* Limits the scope to one allocation; its rank may change until the ticket is used. */
static void scope_one(struct export_scope *scope, const struct layout_allocation *allocation)
{
    size_t rank;
    layout_find_slot(scope->layout, allocation->slot, &rank);
    scope->serial = allocation->serial;
    scope->first = rank;
    scope->count = 1;
}

/* Finds the memory that this handle may export: its allocation, or one or a range of its session's
 * layout. */
static int find_scope(const struct service *s, uint64_t file, const struct service_export *export,
                      struct export_scope *scope)
{
    *scope = (struct export_scope){0};
    int error = service_find_reader(s, file, &scope->file);
    if (error)
        return error;
    if (scope->file->session == 0)
        return -ENOLCK;
    scope->session = core_find_session(s->core, scope->file->session);
    if (!scope->session)
        return -ESTALE;
    if (export->writable && !(scope->file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (export->writable && scope->session->mode == LOCK_MODE_RO)
        return -ENOLCK;
    scope->store = core_find_store(s->core, scope->session->store);
    scope->layout = core_get_layout(s->core, scope->store);
    if (scope->file->kind == CORE_KIND_ALLOCATION) {
        const struct layout_allocation *allocation =
            layout_find_serial(scope->layout, scope->file->serial);
        if (!allocation)
            return -ESTALE;
        scope_one(scope, allocation);
        return 0;
    }
    if (export->by_slot) {
        size_t rank;
        if (!layout_find_slot(scope->layout, export->first, &rank))
            return -ENOENT;
        scope_one(scope, layout_at_rank(scope->layout, rank));
        return 0;
    }
    uint64_t total = layout_count_allocations(scope->layout);
    if (export->first > total || export->count > total - export->first)
        return -EINVAL;
    scope->first = export->first;
    scope->count = export->count ? export->count : total - export->first;
    return 0;
}

/* Checks that all of it has final memory, on the device unless the session reads in any tier.
 * -EINVAL: one has none; -ENODATA: its bytes were given up; -EAGAIN: it is in another tier;
 * -EINPROGRESS: it is a spool. */
static int check_memory(const struct service *s, const struct export_scope *scope,
                        uint64_t *total_bytes)
{
    bool anywhere = scope->session->any || scope->store->places.place == CORE_PLACE_DEVICE;
    *total_bytes = 0;
    for (uint64_t rank = scope->first; rank < scope->first + scope->count; rank++) {
        const struct layout_allocation *allocation = layout_at_rank(scope->layout, rank);
        if (allocation->spool)
            return -EINPROGRESS;
        if (allocation->memory == LAYOUT_NO_MEMORY)
            return scope->store->lock.bare && allocation->size_bytes > 0 ? -ENODATA : -EINVAL;
        if (!anywhere && core_get_tier(s->core, allocation->memory) != CORE_PLACE_DEVICE)
            return -EAGAIN;
        *total_bytes += allocation->aligned_bytes;
    }
    return 0;
}

/* Forgets the times: writes through a mapping are not visible here, so the bytes count as written
 * now. */
static int forget_times(struct service *s, const struct export_scope *scope)
{
    int error = 0;
    for (uint64_t rank = scope->first; rank < scope->first + scope->count && !error; rank++)
        error = service_forget_times(
            s, scope->session->id,
            layout_at_rank(core_get_layout(s->core, scope->store), rank)->serial);
    return error;
}

static int make_ticket(struct service *s, uint64_t file, struct service_export *export)
{
    struct export_scope scope;
    int error = find_scope(s, file, export, &scope);
    if (!error)
        error = check_memory(s, &scope, &export->total_bytes);
    if (!error && export->writable)
        error = forget_times(s, &scope);
    if (error)
        return error;
    export->count = scope.count;
    export->first = scope.first;
    export->generation = scope.store->generation;
    struct record record = {
        .type = RECORD_TICKET_ADD,
        .file = file,
        .offset = scope.first,
        .count = scope.count,
        .serial = scope.serial,
        .uid = export->uid,
        .flags = export->writable ? CORE_TICKET_WRITABLE : 0,
    };
    return service_add_ticket(s, &record, export->ticket);
}

/* ---- spools first ------------------------------------------------------------------------ */

struct export_wait { /* a sync of the spool, then the ticket */
    struct service_request sync;
    struct service *service;
    struct service_request *request;
    struct service_export *export;
    uint64_t file;
};

static void export_after_sync(struct service_request *sync, int error,
                              const struct service_answer *answer)
{
    struct export_wait *wait = (struct export_wait *)sync;
    struct service_request *request = wait->request;
    (void)answer;
    if (!error)
        error = make_ticket(wait->service, wait->file, wait->export);
    if (error == -EINPROGRESS) /* written to again since: the caller races with itself */
        error = -EBUSY;
    free(wait);
    service_answer(request, error, NULL);
}

static int export_spool(struct service *s, uint64_t file, struct service_export *export,
                        struct service_request *request)
{
    const struct core_file *opened = core_find_file(s->core, file);
    if (opened->kind != CORE_KIND_ALLOCATION)
        return -EBUSY; /* another handle still writes it: its close turns it into memory */
    struct export_wait *wait = calloc(1, sizeof *wait);
    if (!wait)
        return -ENOMEM;
    *wait = (struct export_wait){
        .sync = {.done = export_after_sync},
        .service = s,
        .request = request,
        .export = export,
        .file = file,
    };
    return service_sync(s, file, &wait->sync);
}

int service_export(struct service *s, uint64_t file, struct service_export *export,
                   struct service_request *request)
{
    int error = make_ticket(s, file, export);
    if (error == -EINPROGRESS) {
        error = export_spool(s, file, export, request);
        if (!error)
            return 0;
    }
    service_answer(request, error, NULL);
    return 0;
}

/* ---- redeeming --------------------------------------------------------------------------- */

int service_redeem(struct service *s, const uint8_t ticket[16], const struct service_peer *peer,
                   struct service_redeemed *out)
{
    struct record record = {.type = RECORD_TICKET_USE, .uid = peer->uid};
    struct outcome outcome;
    memcpy(record.bytes16, ticket, sizeof record.bytes16);
    int error = service_apply_record(s, &record, &outcome);
    if (!error && outcome.ticket.writable)
        error = service_note_writer(s, outcome.ticket.session, peer->uid, peer->process);
    if (error)
        return error;
    *out = (struct service_redeemed){
        .session = outcome.ticket.session,
        .uid = peer->uid,
        .first = outcome.ticket.first,
        .count = outcome.ticket.count,
        .serial = outcome.ticket.serial,
        .region = outcome.ticket.region,
        .writable = outcome.ticket.writable,
    };
    s->counts->tickets_redeemed++;
    return 0;
}

/* Beside the device memory is a memfd, as on a mount of host memory. */
static enum vmm_memory get_kind(const struct service *s, const struct piece *piece)
{
    struct vmm_info info;
    if (piece->tier != VMM_TIER_DEVICE)
        return VMM_MEMORY_HOST;
    vmm_get_info(s->vmm, &info);
    return info.memory;
}

/* Returns true if the memory is immutable or may become so: piece_free.c counts its users, and
 * cannot see those of the service's own descriptor. */
static bool counts_users(const struct service *s, const struct piece *piece)
{
    return piece->tier == VMM_TIER_DEVICE && vmm_can_finish(s->vmm) &&
           (!piece->memory.final || piece->memory.immutable);
}

/* Lends a descriptor. The first user of a piece gets the service's own, which no other user shares;
 * of memory whose users are counted, each gets another. */
static int lend(struct service *s, struct piece *piece, uint32_t uid, bool writable,
                struct service_descriptor *descriptor)
{
    struct piece_holder *holder = &piece->holders[writable];
    descriptor->is_own = counts_users(s, piece) || (holder->any && holder->uid != uid);
    if (descriptor->is_own)
        return vmm_duplicate(s->vmm, &piece->memory, writable, &descriptor->fd);
    *holder = (struct piece_holder){.uid = uid, .any = true};
    descriptor->fd = writable ? piece->memory.fd : piece->memory.fd_readonly;
    return 0;
}

static void describe(const struct layout *layout, const struct layout_allocation *allocation,
                     struct service_descriptor *descriptor)
{
    size_t rank = 0;
    layout_find_slot(layout, allocation->slot, &rank);
    *descriptor = (struct service_descriptor){
        .rank = rank,
        .slot = allocation->slot,
        .size_bytes = allocation->size_bytes,
        .aligned_bytes = allocation->aligned_bytes,
        .tag = allocation->tag,
    };
}

int service_get_descriptor(struct service *s, const struct service_redeemed *ticket, uint64_t rank,
                           struct service_descriptor *descriptor)
{
    if (ticket->region)
        return service_get_region_descriptor(s, ticket->region, descriptor);
    const struct core_session *session = core_find_session(s->core, ticket->session);
    if (!session || (ticket->writable && session->mode == LOCK_MODE_RO))
        return -ESTALE;
    const struct layout *layout =
        core_get_layout(s->core, core_find_store(s->core, session->store));
    const struct layout_allocation *allocation =
        ticket->serial
            ? layout_find_serial(layout, ticket->serial)
            : (rank < layout_count_allocations(layout) ? layout_at_rank(layout, rank) : NULL);
    struct piece *piece =
        allocation && !allocation->spool ? idvec_find(&s->pieces.all, allocation->memory) : NULL;
    if (!piece)
        return -ESTALE; /* freed since the ticket was made */
    describe(layout, allocation, descriptor);
    descriptor->memory = get_kind(s, piece);
    return lend(s, piece, ticket->uid, ticket->writable, descriptor);
}

/* ---- without a ticket -------------------------------------------------------------------- */

/* Records, before a writable descriptor leaves, that there is no rollback, and which processes have
 * it. */
static int record_writable(struct service *s, const struct export_scope *scope,
                           const struct core_process *processes, size_t count)
{
    uint64_t session = scope->session->id;
    const struct layout_allocation *allocation = layout_at_rank(scope->layout, scope->first);
    bool touches = scope->session->mode == LOCK_MODE_RW && !scope->session->touched &&
                   core_is_fixed_memory(s->core, scope->store, allocation->memory);
    uint32_t uid = scope->file->uid;
    int error = 0;
    for (size_t i = 0; i < count && !error; i++)
        error = service_note_writer(s, session, uid, processes[i]);
    if (!error && touches)
        error = service_record(s, .type = RECORD_TOUCH, .session = session);
    return error ? error : forget_times(s, scope);
}

/* Finds the rank of a slot of the session that this `ctl` has, writable if it writes. */
static int find_slot(const struct service *s, uint64_t file, uint64_t slot, bool *writable,
                     struct export_scope *scope)
{
    struct service_export all = {0};
    uint64_t bytes;
    size_t rank;
    int error = find_scope(s, file, &all, scope);
    if (error)
        return error;
    if (!layout_find_slot(scope->layout, slot, &rank))
        return -ENOENT;
    scope->first = rank;
    scope->count = 1;
    *writable = scope->session->mode != LOCK_MODE_RO;
    if (*writable && !(scope->file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    error = check_memory(s, scope, &bytes);
    return error == -EINPROGRESS ? -EBUSY : error;
}

int service_lend_descriptor(struct service *s, uint64_t file, uint64_t slot,
                            const struct core_process *processes, size_t count,
                            struct service_descriptor *descriptor)
{
    struct export_scope scope;
    bool writable = false;
    int error = find_slot(s, file, slot, &writable, &scope);
    if (!error && writable) {
        error = record_writable(s, &scope, processes, count);
        if (!error) /* the records may have changed the layout */
            error = find_slot(s, file, slot, &writable, &scope);
    }
    if (error)
        return error;
    const struct layout_allocation *allocation = layout_at_rank(scope.layout, scope.first);
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    if (!piece)
        return -ESTALE;
    describe(scope.layout, allocation, descriptor);
    error = lend(s, piece, scope.file->uid, writable, descriptor);
    if (!error)
        s->counts->exports++;
    return error;
}
