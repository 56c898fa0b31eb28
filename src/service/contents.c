/* SPDX-License-Identifier: Apache-2.0 */
#include "service/contents.h"

#include "meta/pieces.h"
#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"
#include "service/moves.h"
#include "service/summing.h"
#include "service/turns.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_JOBS  8u    /* at a time for a store; turns.c lets a user have no more */
#define WAIT_BYTES 1024u /* of a request that waits */

enum sums_state {
    SUMS_PLANS,   /* a job lists the pieces */
    SUMS_SUMS,    /* jobs sum them */
    SUMS_ENCODES, /* a job makes the id and the text */
    SUMS_KNOWN,
};

struct sums_wait {
    struct service_request *request;
    uint64_t file;
    struct sums_wait *next;
};

/* The sums of one store's contents. */
struct sums {
    uint64_t store;   /* first: the known ones are in an idvec by it */
    struct task task; /* of a job that plans or encodes */
    uint64_t generation, grants_rw;
    enum sums_state state;
    struct layout *layout; /* NULL once it is planned */
    struct pieces pieces;  /* empty once they are encoded */
    uint8_t id[DIGEST_BYTES];
    uint8_t contents_hash[DIGEST_BYTES];
    size_t started, running; /* pieces begun; jobs that run */
    int error;               /* of a job */
    struct sums_wait *waits;
    char *bytes; /* of a job that encodes */
    size_t byte_count;
    struct blob *text;
    uint32_t uid; /* user that they count for */
    uint64_t counted_bytes;
    bool is_dropped; /* freed after its last job */
    struct sums *next;
};

struct sum_job {
    struct turn turn; /* first */
    struct sums *sums;
    struct piece *piece;
    struct vmm_piece memory;
    uint64_t session;
    size_t index;
    struct piece_place place;
    int error;
};

static void go_on(struct service *s, struct sums *sums);

/* ---- which sums there are ------------------------------------------------------------------- */

/* A move gives the bytes other memory; a writer is counted as soon as it has the lock. */
static bool is_current(const struct service *s, const struct sums *sums)
{
    const struct core_store *store = core_find_store(s->core, sums->store);

    if (sums->state == SUMS_KNOWN && store && store->contents == 0)
        return false; /* the state forgot the id */
    return !sums->is_dropped && store && core_is_settled(store) &&
           store->generation == sums->generation && store->grants_rw == sums->grants_rw;
}

static struct sums *find_sums(const struct service *s, uint64_t store)
{
    struct sums *sums = s->sums;

    while (sums && (sums->store != store || !is_current(s, sums)))
        sums = sums->next;
    return sums;
}

static void free_layout(void *layout)
{
    layout_free(layout);
}

static void free_it(void *object)
{
    struct sums *sums = object;

    layout_free(sums->layout);
    pieces_free(&sums->pieces);
    free(sums->bytes);
    blob_unref(sums->text);
    free(sums);
}

/* Large ones on a helper thread: they have a million entries, 65,536 names, a text of 256 MiB. */
static void free_sums(struct service *s, struct sums *sums)
{
    LIST_REMOVE(s->sums, sums);
    if (sums->state == SUMS_KNOWN)
        idvec_remove(&s->known_sums, sums->store);
    service_give(s, SERVICE_BOUND_SUMS, sums->uid, sums->counted_bytes);
    service_discard(s, free_it, sums);
}

static void drop_sums(struct service *s, struct sums *sums)
{
    sums->is_dropped = true;
    if (sums->running == 0)
        free_sums(s, sums);
}

static void answer_all(struct sums *sums, int error)
{
    struct sums_wait *wait;

    while ((wait = sums->waits)) {
        struct service_request *request = wait->request;
        sums->waits = wait->next;
        free(wait);
        service_answer(request, error, NULL);
    }
}

static void fail(struct service *s, struct sums *sums, int error)
{
    sums->is_dropped = true; /* a request that is answered may ask again */
    answer_all(sums, error);
    drop_sums(s, sums);
}

/* Drops known sums that are no longer current, or (uid) those of a user. Returns true if it dropped
 * any. */
static bool drop_known(struct service *s, const uint32_t *uid)
{
    struct sums *next;
    bool dropped = false;

    for (struct sums *sums = s->sums; sums; sums = next) {
        next = sums->next;
        if (sums->state != SUMS_KNOWN || (uid ? sums->uid != *uid : is_current(s, sums)))
            continue;
        free_sums(s, sums);
        dropped = true;
    }
    return dropped;
}

/* Twice the text: the sums of the pieces, and the text that is made of them. */
static int count_sums(struct service *s, struct sums *sums, const struct core_store *store)
{
    uint64_t bytes = 2 * store->pieces_bytes;
    int error = service_charge(s, SERVICE_BOUND_SUMS, sums->uid, &sums->counted_bytes, bytes);

    if (error && drop_known(s, &sums->uid))
        error = service_charge(s, SERVICE_BOUND_SUMS, sums->uid, &sums->counted_bytes, bytes);
    return error;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static bool begin_job(struct service *s, struct sums *sums, enum sums_state state,
                      void (*run)(struct job *), void (*end)(struct service *, struct task *))
{
    sums->state = state;
    sums->task = (struct task){.job.run = run, .end = end};
    sums->running++;
    int error = service_submit(s, SERVICE_POOL_COMPUTE, &sums->task);
    if (!error)
        return true;
    sums->running--;
    fail(s, sums, error);
    return false;
}

static void run_plan(struct job *job)
{
    struct sums *sums = CONTAINER_OF(job, struct sums, task.job);

    sums->error = pieces_of_layout(sums->layout, &sums->pieces);
    if (!sums->error)
        sums->error = layout_contents_hash(sums->layout, sums->contents_hash);
}

static void end_plan(struct service *s, struct task *task)
{
    struct sums *sums = CONTAINER_OF(task, struct sums, task);

    sums->running--;
    service_discard(s, free_layout, sums->layout); /* the last reference if the store has gone */
    sums->layout = NULL;
    sums->state = SUMS_SUMS;
    go_on(s, sums);
}

static void run_encode(struct job *job)
{
    struct sums *sums = CONTAINER_OF(job, struct sums, task.job);
    struct pieces *pieces = &sums->pieces;

    sums->error = pieces_make_id(sums->contents_hash, (const void *)pieces->sums,
                                 pieces->piece_count, pieces->id);
    if (!sums->error)
        sums->error = pieces_encode(pieces, &sums->bytes, &sums->byte_count);
    memcpy(sums->id, pieces->id, sizeof sums->id);
    pieces_free(pieces);
}

/* Makes the sums the known sums of their store; the sums of former bytes go. */
static int make_known(struct service *s, struct sums *sums)
{
    struct sums *former = idvec_find(&s->known_sums, sums->store);

    if (former)
        free_sums(s, former);
    int error = idvec_insert(&s->known_sums, sums);
    if (!error)
        sums->state = SUMS_KNOWN;
    return error;
}

/* Records the id, and makes the text known. */
static int finish(struct service *s, struct sums *sums)
{
    struct record record = {.type = RECORD_CONTENTS,
                            .store = sums->store,
                            .generation = sums->generation,
                            .grants_rw = sums->grants_rw};
    int error = sums->error;

    memcpy(record.bytes16, sums->id, sizeof record.bytes16);
    if (!error)
        error = service_apply_record(s, &record, NULL);
    if (error)
        return error;
    sums->text = blob_new((uint8_t *)sums->bytes, sums->byte_count);
    if (!sums->text)
        return -ENOMEM;
    sums->bytes = NULL;
    service_charge(s, SERVICE_BOUND_SUMS, sums->uid, &sums->counted_bytes, sums->byte_count);
    return make_known(s, sums);
}

static void end_encode(struct service *s, struct task *task)
{
    struct sums *sums = CONTAINER_OF(task, struct sums, task);

    sums->running--;
    int error = sums->is_dropped ? -ESTALE : finish(s, sums);
    if (error)
        fail(s, sums, error);
    else
        answer_all(sums, 0);
}

static void run_sum(struct job *job)
{
    struct sum_job *of = (struct sum_job *)job;

    of->error = vmm_sum(of->turn.task.service->vmm, &of->memory, of->place.offset_bytes,
                        of->place.size_bytes, of->sums->pieces.sums[of->index]);
}

static void end_sum(struct service *s, struct task *task)
{
    struct sum_job *of = (struct sum_job *)task;
    struct sums *sums = of->sums;
    int error = of->turn.error ? of->turn.error : of->error;

    if (error == -EIO)
        service_spare_failed(s, sums->store, of->piece, error);
    piece_end(s, of->piece);
    turn_end(s, &of->turn);
    service_end_use(s, of->session);
    free(of);
    sums->running--;
    if (error && !sums->error)
        sums->error = error;
    go_on(s, sums);
}

/* Begins the sum of the next piece, in the session of this file. */
static int begin_sum(struct service *s, struct sums *sums, const struct core_file *file)
{
    const struct core_store *store = core_find_store(s->core, sums->store);
    struct piece_place place = pieces_place(&sums->pieces, sums->started);
    const struct layout_allocation *allocation = layout_at_rank(store->fixed, place.rank);
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    struct sum_job *of = piece ? calloc(1, sizeof *of) : NULL;

    if (!of)
        return piece ? -ENOMEM : -EIO;
    *of = (struct sum_job){.turn = {.task = {.job.run = run_sum, .end = end_sum},
                                    .store = sums->store,
                                    .uid = file->uid},
                           .sums = sums,
                           .piece = piece,
                           .memory = piece->memory,
                           .session = file->session,
                           .index = sums->started,
                           .place = place};
    int error = service_begin_use(s, file->session);
    if (!error) {
        piece_begin(piece);
        error = turn_begin(s, &of->turn, false);
        if (!error) {
            sums->started++;
            sums->running++;
            return 0;
        }
        piece_end(s, piece);
        service_end_use(s, file->session);
    }
    free(of);
    return error;
}

/* ---- going on -------------------------------------------------------------------------------- */

static const struct core_file *find_open(const struct service *s, const struct sums_wait *wait)
{
    const struct core_file *file = core_find_file(s->core, wait->file);

    return file && (file->kind != CORE_KIND_ALLOCATION ||
                    (core_find_session(s->core, file->session) &&
                     !service_is_closing(s, file->session)))
               ? file
               : NULL;
}

/* Fails the requests whose sessions have ended. */
static void answer_ended(struct service *s, struct sums *sums)
{
    struct sums_wait *next;

    for (struct sums_wait *wait = sums->waits; wait; wait = next) {
        next = wait->next;
        if (!find_open(s, wait))
            service_cancel_sum(s, wait->request, -ESTALE);
    }
}

/* Two for each processor: one runs while the loop finishes another. */
static size_t count_jobs(void)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    return processors < 1 ? 1 : number_smaller(2 * (uint64_t)processors, MOST_JOBS);
}

static void begin_sums(struct service *s, struct sums *sums)
{
    size_t most = count_jobs();
    int error = 0;

    while (!error && sums->running < most && sums->started < sums->pieces.piece_count)
        error = begin_sum(s, sums, find_open(s, sums->waits));
    if (error && sums->running == 0)
        fail(s, sums, error);
    else if (sums->running == 0)
        begin_job(s, sums, SUMS_ENCODES, run_encode, end_encode);
}

/* Starts the next jobs, or ends the sums. */
static void go_on(struct service *s, struct sums *sums)
{
    sums->running++; /* it is not freed here */
    if (!sums->is_dropped && !sums->error)
        answer_ended(s, sums);
    sums->running--;
    if (sums->is_dropped || sums->error || !is_current(s, sums))
        fail(s, sums, sums->error ? sums->error : -ESTALE);
    else if (!sums->waits)
        drop_sums(s, sums);
    else
        begin_sums(s, sums);
}

void service_cancel_sum(struct service *s, struct service_request *request, int error)
{
    struct sums *sums = request->sums;
    struct sums_wait *wait = sums->waits;

    while (wait->request != request)
        wait = wait->next;
    LIST_REMOVE(sums->waits, wait);
    free(wait);
    service_answer(request, error, NULL);
    if (!sums->waits && sums->state != SUMS_KNOWN && !sums->is_dropped)
        drop_sums(s, sums);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct sums *make_sums(struct service *s, const struct core_store *store, uint32_t uid,
                              int *error)
{
    struct sums *sums = calloc(1, sizeof *sums);

    *error = -ENOMEM;
    if (!sums)
        return NULL;
    *sums = (struct sums){.store = store->id,
                          .generation = store->generation,
                          .grants_rw = store->grants_rw,
                          .uid = uid};
    *error = count_sums(s, sums, store);
    if (*error) {
        free(sums);
        return NULL;
    }
    sums->layout = layout_ref(store->fixed);
    sums->next = s->sums;
    s->sums = sums;
    return sums;
}

static int wait_for(struct service *s, const struct core_store *store, const struct core_file *file,
                    struct service_request *request)
{
    struct sums *sums = find_sums(s, store->id);
    struct sums_wait *wait;
    bool is_new = !sums;
    int error = 0;

    if (sums && sums->state == SUMS_KNOWN) {
        service_answer(request, 0, NULL);
        return 0;
    }
    error = service_take_room(s, file->uid, false, WAIT_BYTES);
    if (error)
        return error;
    wait = malloc(sizeof *wait);
    if (wait && is_new)
        sums = make_sums(s, store, file->uid, &error);
    if (!wait || !sums) {
        free(wait);
        return error ? error : -ENOMEM;
    }
    *wait = (struct sums_wait){.request = request, .file = file->id};
    LIST_APPEND(sums->waits, wait);
    request->sums = sums;
    if (is_new)
        begin_job(s, sums, SUMS_PLANS, run_plan, end_plan);
    return 0;
}

int service_sum(struct service *s, uint64_t file, struct service_request *request)
{
    const struct core_file *opened = core_find_file(s->core, file);
    const struct core_store *store = opened ? core_find_store(s->core, opened->store) : NULL;

    drop_known(s, NULL);
    if (!store ||
        (opened->kind == CORE_KIND_ALLOCATION && !core_find_session(s->core, opened->session)))
        return -ESTALE;
    if (store->lock.committed && (store->lock.bare || store->suspect > 0))
        return -EIO;
    if (opened->kind != CORE_KIND_ALLOCATION && core_is_settled(store) &&
        layout_count_allocations(store->fixed) > 0)
        return -ESTALE; /* there were none when it was opened */
    if (core_is_settled(store))
        return wait_for(s, store, opened, request);
    service_answer(request, 0, NULL);
    return 0;
}

struct blob *service_get_pieces(struct service *s, const struct core_store *store)
{
    const struct sums *sums = find_sums(s, store->id);

    return sums ? sums->text : NULL;
}

uint64_t service_count_pieces_bytes(const struct core_store *store)
{
    const struct lock *lock = &store->lock;
    bool is_shown = lock->committed && !lock->held[LOCK_MODE_RW] && !lock->held[LOCK_MODE_RW_DATA];

    /* Also where the bytes cannot be read: zip(1) ends at an error of a file without a size. */
    return is_shown ? store->pieces_bytes : 0;
}

void service_on_sums_state(struct service *s, uint64_t store)
{
    struct sums *sums = idvec_find(&s->known_sums, store);

    if (sums && !is_current(s, sums))
        free_sums(s, sums);
}

void service_fail_suspect_sums(struct service *s)
{
    struct sums *next;

    for (struct sums *sums = s->sums; sums; sums = next) {
        const struct core_store *store = core_find_store(s->core, sums->store);

        next = sums->next;
        if (store && store->suspect > 0 && !sums->is_dropped)
            fail(s, sums, -EIO);
    }
}

void service_drop_sums(struct service *s)
{
    while (s->sums) {
        s->sums->running = 0;
        fail(s, s->sums, -ENOTCONN);
    }
    idvec_free(&s->known_sums);
}
