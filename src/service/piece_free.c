/* SPDX-License-Identifier: Apache-2.0 */
/*
 * piece_free - frees memory
 *
 * A job frees a piece that nothing refers to any more, when the last transfer that uses it has
 * ended. Its bytes stay charged until then, but count as being freed from the start. Many small
 * pieces share a job, and so a round trip to the keeper.
 *
 * A mapping outlives the open file and its lock, and the kernel tells no end of it. So immutable
 * memory stays charged, and with the keeper, until no process has it open or mapped. A job looks,
 * after a pause that doubles while nothing changes. The bytes do not count as being freed: nothing
 * tells when they come.
 */
#include "service/account.h"

#include <errno.h>
#include <stdlib.h>

void piece_shrink(struct service *s, struct piece *piece, uint64_t reserved_bytes)
{
    piece_count_spooled(s, piece, reserved_bytes);
    uint64_t excess_bytes = piece->reserved_bytes - reserved_bytes;
    if (piece->counted)
        s->numbers.freeing_bytes -= excess_bytes;
    service_unreserve(s, piece->store, excess_bytes);
    piece->reserved_bytes = reserved_bytes;
}

/* Limits of one job: pieces, and bytes after which no further piece is added. So there is work for
 * several threads, and waiters for memory hear of it soon. */
#define FREE_BATCH       64u
#define FREE_BATCH_BYTES (UINT64_C(256) << 20)
/* Jobs of a pool beyond which doomed pieces wait for the end of a job, so that no step is long.
 * Hanging jobs of SERVICE_POOL_FREE delay no piece if a client waits for its memory. */
#define FREE_MOST_JOBS 8u

struct free_job {
    struct task task; /* first */
    enum service_pool pool;
    uint64_t bytes;
    size_t count;
    struct piece *pieces[FREE_BATCH];
};

void piece_look(const struct service_host *host, struct piece *piece)
{
    /* Fails while a new worker has no mount yet; the next look ends the registration. */
    int error = piece->may_be_backed && host->back ? host->back(host->context, piece->id, NULL) : 0;
    piece->may_be_backed = error && error != -ENOENT;
    piece->is_mapped = vmm_is_held(&piece->memory);
}

static void run_free(struct job *job)
{
    struct free_job *freeing = (struct free_job *)job;
    const struct service_host *host = &freeing->task.service->host;
    uint64_t memories[FREE_BATCH];
    size_t count = 0;
    for (size_t i = 0; i < freeing->count; i++) {
        struct piece *piece = freeing->pieces[i];
        piece_look(host, piece);
        if (!piece->is_mapped)
            memories[count++] = piece->id;
    }
    if (count > 0)
        host->drop(host->context, memories, count);
    for (size_t i = 0; i < freeing->count; i++)
        if (!freeing->pieces[i]->is_mapped)
            vmm_destroy(freeing->task.service->vmm, &freeing->pieces[i]->memory);
}

/* Counts the piece as being freed no more. */
static void uncount(struct service *s, struct piece *piece)
{
    if (piece->tier != VMM_TIER_DEVICE) {
        s->pieces.freeing_beside_bytes[piece->tier] -= piece->reserved_bytes;
        return;
    }
    s->numbers.freeing_bytes -= piece->reserved_bytes;
    *piece->link_freeing = piece->next_freeing;
    if (piece->next_freeing)
        piece->next_freeing->link_freeing = piece->link_freeing;
}

static void discharge(struct service *s, const struct piece *piece)
{
    if (piece->tier == VMM_TIER_DEVICE)
        service_unreserve(s, piece->store, piece->reserved_bytes);
    else
        vmm_unreserve_in(s->vmm, piece->tier, piece->reserved_bytes);
}

/* ---- memory that processes still map ------------------------------------------------------ */

#define FIRST_PAUSE_MS 100u
#define LAST_PAUSE_MS  5000u

struct look {
    struct task task; /* first */
    size_t count;
    struct piece *pieces[];
};

static void look_later(struct service *s, uint64_t pause_ms)
{
    s->pieces.pause_ms = pause_ms < LAST_PAUSE_MS ? pause_ms : LAST_PAUSE_MS;
    deadline_set(s, &s->pieces.look, service_now(s) + s->pieces.pause_ms);
}

static void run_look(struct job *job)
{
    struct look *look = (struct look *)job;

    for (size_t i = 0; i < look->count; i++)
        piece_look(&look->task.service->host, look->pieces[i]);
}

/* Pieces that became mapped meanwhile are behind those that the job looked at. */
static void end_look(struct service *s, struct task *task)
{
    struct look *look = (struct look *)task;
    size_t before = s->pieces.mapped_count;

    for (size_t i = 0; i < look->count; i++) {
        struct piece *piece = look->pieces[i];
        if (piece->is_mapped)
            continue;
        *piece->link_freeing = piece->next_freeing;
        if (piece->next_freeing)
            piece->next_freeing->link_freeing = piece->link_freeing;
        s->pieces.mapped_count--;
        s->numbers.mapped_bytes -= piece->reserved_bytes;
        piece->counted = false;
        piece_free(s, piece);
    }
    piece_free_gathered(s);
    s->pieces.is_looking = false;
    if (s->pieces.mapped_count > 0)
        look_later(s, s->pieces.mapped_count < before ? FIRST_PAUSE_MS : 2 * s->pieces.pause_ms);
    free(look);
}

static void begin_look(struct service *s, struct deadline *deadline)
{
    struct look *look = calloc(1, sizeof *look + s->pieces.mapped_count * sizeof look->pieces[0]);
    (void)deadline;

    if (look) {
        look->task = (struct task){.job.run = run_look, .end = end_look, .service = s};
        for (struct piece *piece = s->pieces.mapped; piece; piece = piece->next_freeing)
            look->pieces[look->count++] = piece;
        s->pieces.is_looking = service_submit(s, SERVICE_POOL_FREE, &look->task) == 0;
    }
    if (s->pieces.is_looking)
        return;
    free(look);
    look_later(s, LAST_PAUSE_MS);
}

void piece_stays_mapped(struct service *s, struct piece *piece)
{
    piece->next_freeing = s->pieces.mapped;
    piece->link_freeing = &s->pieces.mapped;
    if (s->pieces.mapped)
        s->pieces.mapped->link_freeing = &piece->next_freeing;
    s->pieces.mapped = piece;
    s->pieces.mapped_count++;
    s->numbers.mapped_bytes += piece->reserved_bytes;
    s->pieces.look.pass = begin_look;
    if (!s->pieces.is_looking)
        look_later(s, FIRST_PAUSE_MS);
}

/* ---- freeing ------------------------------------------------------------------------------ */

static void finish_free(struct service *s, struct free_job *freeing)
{
    for (size_t i = 0; i < freeing->count; i++) {
        struct piece *piece = freeing->pieces[i];
        uncount(s, piece);
        if (piece->is_mapped) {
            piece_stays_mapped(s, piece);
            continue;
        }
        discharge(s, piece);
        free(piece);
    }
    service_note_memory(s);
}

static void end_free(struct service *s, struct task *task)
{
    struct free_job *freeing = (struct free_job *)task;

    s->pieces.free_jobs[freeing->pool]--;
    finish_free(s, freeing);
    free(freeing);
}

/* Returns true if a client may be waiting for memory: then freeing is as urgent as the request. */
static bool may_be_urgent(const struct service *s)
{
    return s->core->index.waited.count > 0 || s->alloc_queue || s->spools.waiting || s->moves.all ||
           s->brief.freeing;
}

static enum service_pool choose_pool(const struct service *s)
{
    return may_be_urgent(s) ? SERVICE_POOL_MEMORY : SERVICE_POOL_FREE;
}

void piece_free_gathered(struct service *s)
{
    struct free_job *freeing = s->pieces.gathered;
    if (!freeing)
        return;
    s->pieces.gathered = NULL;
    freeing->pool = choose_pool(s);
    s->pieces.free_jobs[freeing->pool]++;
    service_submit_or_run(s, freeing->pool, &freeing->task);
}

void piece_free(struct service *s, struct piece *piece)
{
    struct free_job *freeing = s->pieces.gathered;
    piece_count_spooled(s, piece, 0);
    piece_count_freeing(s, piece);
    if (!freeing) {
        freeing = calloc(1, sizeof *freeing);
        if (!freeing) {
            struct free_job alone = {.task.service = s, .count = 1, .pieces = {piece}};
            s->host.publish(s->host.context);
            run_free(&alone.task.job);
            finish_free(s, &alone);
            return;
        }
        freeing->task = (struct task){.job.run = run_free, .end = end_free, .service = s};
        s->pieces.gathered = freeing;
    }
    freeing->pieces[freeing->count++] = piece;
    freeing->bytes += piece->reserved_bytes;
    if (freeing->count == FREE_BATCH || freeing->bytes >= FREE_BATCH_BYTES)
        piece_free_gathered(s);
}

static bool take_doomed(void *item, void *context)
{
    struct piece *piece = item;
    struct piece_table *pieces = context;
    if (!piece->doomed || piece->running > 0)
        return false;
    piece->next_leaving = NULL;
    *(pieces->leaving ? &pieces->last_leaving->next_leaving : &pieces->leaving) = piece;
    pieces->last_leaving = piece;
    return true;
}

void piece_free_doomed(struct service *s)
{
    struct piece_table *pieces = &s->pieces;
    struct piece *piece;
    if (pieces->doomed > 0)
        idvec_remove_if(&pieces->all, take_doomed, pieces);
    pieces->doomed = 0;
    while (pieces->free_jobs[choose_pool(s)] < FREE_MOST_JOBS && (piece = pieces->leaving)) {
        pieces->leaving = piece->next_leaving;
        piece_free(s, piece);
    }
    piece_free_gathered(s);
}

void piece_end(struct service *s, struct piece *piece)
{
    piece->running--;
    if (piece->running == 0)
        vmm_drop_former(&piece->memory);
    if (piece->running == 0 && piece->doomed) {
        idvec_remove(&s->pieces.all, piece->id);
        piece_free(s, piece);
        piece_free_gathered(s);
    }
}

void piece_drop_mapped(struct service *s)
{
    for (struct piece *next, *piece = s->pieces.mapped; piece; piece = next) {
        next = piece->next_freeing;
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
    }
    s->pieces.mapped = NULL;
    deadline_clear(s, &s->pieces.look);
}
