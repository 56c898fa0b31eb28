/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restore - makes a service from the state of a process that has ended
 *
 * The records tell the state. The rest is made anew: pieces of the keeper's descriptors, watches of
 * processes. The kernel sends waiting requests again, which find the places of their waiters kept.
 * Moves between tiers begin anew; other operations begin again when their clients ask again.
 */
#include "base/log.h"
#include "service/moves.h"
#include "service/parked.h"
#include "service/sessions.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DROPS_AT_ONCE 64u

struct restoring {
    struct service *service;
    struct service_kept *kept; /* by number */
    size_t count, next;
    size_t next_readonly; /* among the read-only descriptors, which come after the others */
    uint64_t *spools;     /* memory of spools, by number */
    size_t spool_count, next_spool;
    uint64_t drops[DROPS_AT_ONCE];
    size_t drop_count;
};

/* ---- memory ------------------------------------------------------------------------------ */

static void drop_gathered(struct restoring *r)
{
    const struct service_host *host = &r->service->host;
    if (r->drop_count > 0)
        host->drop(host->context, r->drops, r->drop_count);
    r->drop_count = 0;
}

/* Drops memory that was being made, and is in no record. */
static void drop(struct restoring *r, uint64_t memory)
{
    r->drops[r->drop_count++] = memory;
    if (r->drop_count == DROPS_AT_ONCE)
        drop_gathered(r);
}

/* Finds the read-only descriptor; NULL: there is none. */
static struct service_kept *find_kept_readonly(struct restoring *r, uint64_t memory)
{
    uint64_t id = memory | SERVICE_MEMORY_READONLY;
    while (r->next_readonly < r->count && r->kept[r->next_readonly].id < id)
        r->next_readonly++;
    if (r->next_readonly < r->count && r->kept[r->next_readonly].id == id)
        return &r->kept[r->next_readonly++];
    return NULL;
}

/* Returns a piece of memory that no record has, if processes still map it. NULL: they do not, or
 * there is no memory to keep it. */
static struct piece *adopt_mapped(struct restoring *r, struct service_kept *kept)
{
    struct service *s = r->service;
    struct service_kept *readonly = find_kept_readonly(r, kept->id);
    struct piece *piece = readonly ? calloc(1, sizeof *piece) : NULL;
    struct vmm_kept fds = {.fd = kept->fd, .fd_readonly = readonly ? readonly->fd : -1};
    struct stat stat;
    if (!piece || fstat(kept->fd, &stat) != 0 ||
        vmm_adopt(s->vmm, VMM_TIER_DEVICE, &fds, (uint64_t)stat.st_size, (uint64_t)stat.st_size,
                  true, &piece->memory)) {
        free(piece);
        return NULL;
    }
    kept->fd = readonly->fd = -1;
    piece->id = kept->id;
    piece->reserved_bytes = vmm_align(s->vmm, (uint64_t)stat.st_size);
    piece->may_be_backed = true;
    piece_look(&s->host, piece);
    if (piece->is_mapped)
        return piece;
    vmm_destroy(s->vmm, &piece->memory);
    free(piece);
    return NULL;
}

/* Drops memory of a number that no record has, unless processes still map it. */
static void leave(struct restoring *r, struct service_kept *kept)
{
    struct vmm_info info;
    vmm_get_info(r->service->vmm, &info);
    bool is_host = info.memory == VMM_MEMORY_HOST && kept->id < SERVICE_MEMORY_READONLY;
    struct piece *piece = is_host ? adopt_mapped(r, kept) : NULL;
    if (!piece) {
        drop(r, kept->id);
        return;
    }
    int error = vmm_reserve_in(r->service->vmm, VMM_TIER_DEVICE, piece->reserved_bytes);
    if (error) {
        log_warning("%" PRIu64 " bytes of memory that processes still map are not charged: %s",
                    piece->reserved_bytes, strerror(-error));
        piece->reserved_bytes = 0;
    }
    piece_stays_mapped(r->service, piece);
}

/* Finds the descriptor of this number; leaves those before it, which no record has. */
static struct service_kept *find_kept(struct restoring *r, uint64_t memory)
{
    while (r->next < r->count && r->kept[r->next].id < memory)
        leave(r, &r->kept[r->next++]);
    if (r->next < r->count && r->kept[r->next].id == memory)
        return &r->kept[r->next++];
    return NULL;
}

/* Returns the spool of this rank; NULL: it is none, or has no memory yet. */
static const struct layout_allocation *get_spool(const struct core_store *store, size_t rank)
{
    const struct layout_allocation *allocation = layout_at_rank(store->working, rank);
    return allocation->spool && allocation->memory != LAYOUT_NO_MEMORY ? allocation : NULL;
}

static size_t count_working(const struct core_store *store)
{
    return store->working ? layout_count_allocations(store->working) : 0;
}

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* Lists the spools in order of memory number. */
static int find_spools(struct restoring *r)
{
    const struct idvec *stores = &r->service->core->stores;
    size_t room = 0;
    for (size_t i = 0; i < stores->count; i++)
        room += count_working(stores->items[i]);
    r->spools = calloc(room ? room : 1, sizeof *r->spools);
    if (!r->spools)
        return -ENOMEM;
    for (size_t i = 0; i < stores->count; i++) {
        for (size_t rank = 0; rank < count_working(stores->items[i]); rank++) {
            const struct layout_allocation *spool = get_spool(stores->items[i], rank);
            if (spool)
                r->spools[r->spool_count++] = spool->memory;
        }
    }
    qsort(r->spools, r->spool_count, sizeof *r->spools, compare_numbers);
    return 0;
}

static bool is_spool(struct restoring *r, uint64_t memory)
{
    while (r->next_spool < r->spool_count && r->spools[r->next_spool] < memory)
        r->next_spool++;
    return r->next_spool < r->spool_count && r->spools[r->next_spool] == memory;
}

/* Records the sealing of a spool that the last worker could not record any more. */
static int finish_seal(struct service *s, struct piece *piece,
                       const struct layout_allocation *allocation)
{
    const struct core_session *writer = core_get_writer(s->core, piece->store);
    struct record record = {.type = RECORD_ALLOC_MEMORY,
                            .session = writer ? writer->id : 0,
                            .serial = allocation->serial,
                            .memory = piece->id,
                            .size_bytes = allocation->size_bytes,
                            .aligned_bytes = vmm_align(s->vmm, allocation->size_bytes)};
    piece->memory.size_bytes = record.size_bytes;
    piece->memory.aligned_bytes = record.aligned_bytes;
    int error = writer ? service_apply_record(s, &record, NULL) : 0;
    if (!error && record.aligned_bytes < piece->reserved_bytes)
        piece_shrink(s, piece, record.aligned_bytes);
    return error;
}

static int restore_piece(struct restoring *r, const struct core_memory_view *memory)
{
    struct service *s = r->service;
    struct service_kept *kept = find_kept(r, memory->id);
    if (!kept) { /* reads of it fail: EIO */
        log_error("memory %" PRIu64 " (%" PRIu64 " bytes) of store %" PRIu64
                  " has no descriptor: it is lost; load the store anew",
                  memory->id, memory->aligned_bytes, memory->store);
        return 0;
    }
    enum vmm_tier tier = service_tiers[memory->tier];
    struct piece *piece = calloc(1, sizeof *piece);
    if (!piece)
        return -ENOMEM;
    bool spool = is_spool(r, memory->id);
    piece->id = memory->id;
    piece->store = memory->store;
    piece->tier = tier;
    piece->reserved_bytes = vmm_align_in(s->vmm, tier, memory->aligned_bytes);
    /* A writer may share this open file description, with its position and flags. */
    piece->holders[1] = (struct piece_holder){.uid = UINT32_MAX, .any = true};
    struct service_kept *readonly = find_kept_readonly(r, memory->id);
    struct vmm_kept fds = {.fd = kept->fd, .fd_readonly = readonly ? readonly->fd : -1};
    int error = vmm_adopt(s->vmm, tier, &fds, spool ? 0 : memory->aligned_bytes,
                          memory->aligned_bytes, !spool, &piece->memory);
    if (!error)
        kept->fd = -1;
    if (!error && readonly)
        readonly->fd = -1;
    piece->may_be_backed = piece->memory.immutable;
    if (!error)
        error = idvec_insert(&s->pieces.all, piece);
    if (error) {
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
        return error;
    }
    return vmm_reserve_in(s->vmm, tier, piece->reserved_bytes);
}

/* Records the sealing of spools once everything else is restored. */
static int finish_seals(struct service *s, const struct core_store *store)
{
    int error = 0;
    /* Each record makes the layout's objects anew, but not fewer. */
    for (size_t rank = 0; rank < count_working(store) && !error; rank++) {
        const struct layout_allocation *spool = get_spool(store, rank);
        struct piece *piece = spool ? idvec_find(&s->pieces.all, spool->memory) : NULL;
        if (piece && piece->memory.sealed)
            error = finish_seal(s, piece, spool);
    }
    return error;
}

static int restore_pieces(struct restoring *r)
{
    const struct core *core = r->service->core;
    int error = 0;
    for (size_t i = 0; i < core_count_memories(core) && !error; i++) {
        struct core_memory_view memory = core_get_memory(core, i);
        error = restore_piece(r, &memory);
    }
    return error;
}

/* Marks a memory number as used, even if its memory is lost. */
static void mark_used(struct service *s, uint64_t memory)
{
    uint64_t number = memory & ~(SERVICE_REGION_MEMORY | SERVICE_MEMORY_READONLY);
    if (!(number & SERVICE_CONNECTION) && number >= s->next_memory)
        s->next_memory = number + 1;
}

static int restore_memory(struct restoring *r)
{
    struct service *s = r->service;
    int error = find_spools(r);
    if (!error)
        error = restore_pieces(r);
    free(r->spools);
    if (error) /* the next worker finds the rest at the keeper */
        return error;
    find_kept(r, SERVICE_MEMORY_READONLY); /* drops the rest, with its read-only descriptors */
    while (r->next < r->count && r->kept[r->next].id < SERVICE_REGION_MEMORY)
        r->next++;
    for (; r->next < r->count && !error; r->next++) {
        struct service_kept *object = &r->kept[r->next];
        error = service_restore_region(s, object->id, object->fd);
        if (!error)
            object->fd = -1;
        if (error != -ENOENT)
            continue;
        drop(r, object->id); /* of a region that has ended */
        error = 0;
    }
    drop_gathered(r);
    service_tell_lost_regions(s);
    for (size_t i = 0; i < r->count; i++)
        mark_used(s, r->kept[i].id);
    for (size_t i = 0; i < core_count_memories(s->core); i++)
        mark_used(s, core_get_memory(s->core, i).id);
    for (size_t i = 0; i < s->core->regions.items.count; i++)
        mark_used(s, ((const struct region *)s->core->regions.items.items[i])->memory);
    return error;
}

/* ---- connections, the whole --------------------------------------------------------------- */

void service_close_connections(struct service *s, bool (*is_claimed)(void *context, uint64_t file),
                               void *context)
{
    const struct core_file *file;
    for (uint64_t id = 0; (file = idvec_find_after(&s->core->files, id));) {
        id = file->id;
        if (file->flags & CORE_OPEN_CONNECTION && !is_claimed(context, id))
            service_close(s, id);
    }
}

int service_restore(struct vmm *vmm, const struct service_options *options,
                    const struct service_host *host, struct core *core, struct service_kept *kept,
                    size_t count, struct service **service)
{
    struct service *s = service_make(vmm, options, host);
    struct restoring r = {.service = s, .kept = kept, .count = count};

    if (!s) {
        core_free(core);
        return -ENOMEM;
    }
    s->core = core;
    int error = restore_memory(&r);
    if (!error)
        error = vmm_set_aside(vmm, core->reserved_bytes);
    if (!error) {
        service_restore_watches(s);
        service_restore_moves(s);
        error = service_apply_record(s, &(struct record){.type = RECORD_RESUME}, NULL);
    }
    for (size_t i = 0; i < core->stores.count && !error; i++)
        error = finish_seals(s, core->stores.items[i]);
    if (error) {
        service_free(s);
        return error;
    }
    service_settle_watches(s);
    service_begin_moves_anew(s);
    *service = s;
    return 0;
}

void service_end_restore(struct service *s, const char *cause, uint64_t took_us)
{
    service_record(s, .type = RECORD_RESUME, .flags = CORE_RESUME_END, .name = cause,
                   .name_bytes = strlen(cause), .took_us = took_us);
    histogram_add(&s->counts->recoveries, took_us);
}
