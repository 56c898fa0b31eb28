/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move - copies the bytes of a committed layout from one tier to another
 *
 * Order: the account of the target tier, the record that begins the move, memory and bytes by steps
 * on helper threads, the keeper's duplicates, the record that ends the move. Until that last record
 * the source is whole; after it the copy is. A move can end between two steps. Where the tier is
 * short of memory that is being freed just now, the record comes first and the move waits.
 */
#include "service/move.h"

#include "base/timeline.h"
#include "service/account.h"
#include "service/move_op.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- records ----------------------------------------------------------------------------- */

static void count_move(struct service *s, uint64_t store, enum core_place before)
{
    const struct core_store *found = core_find_store(s->core, store);
    if (found && found->places.place != before)
        s->counts->moves[before][found->places.place]++;
}

void service_move_failed(struct service *s, uint64_t store, uint64_t move, int error)
{
    struct record record = {
        .type = RECORD_MOVE_FAIL, .store = store, .move = move, .failure = (uint64_t)-error};
    /* Waiters wait on as long as there can be enough memory, and after a move to another place than
     * the device. */
    const struct core_store *failed = core_find_store(s->core, store);
    bool was_away = failed && move != 0 && failed->places.move.id == move &&
                    failed->places.move.to != CORE_PLACE_DEVICE;
    if ((error != -ENOMEM || move == 0) && !was_away)
        record.flags |= CORE_MOVE_REFUSE;
    else if (failed && !was_away && core_is_awaited(s->core, failed)) {
        if (service_is_backed_off(s, BACKOFF_TELL, store))
            record.flags |= CORE_MOVE_QUIET; /* the move is tried again and again */
        service_back_off(s, BACKOFF_TELL, store, BACKOFF_FOREVER);
    }
    if (error != -ENOMEM)
        service_end_backoff(s, BACKOFF_TELL, store);
    service_apply_record(s, &record, NULL);
}

/* Returns how many clients wait for the store now, and how long they have waited in all. */
static struct service_waits get_waits(const struct service *s, uint64_t id)
{
    const struct core_store *store = core_find_store(s->core, id);
    uint64_t wall_ms = s->host.wall_ms(s->host.context);
    struct service_waits waits = {0};
    for (size_t i = 0; store && i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_find_waiter(s->core, store->lock.waiters[i].id);
        waits.count++;
        waits.ms += wall_ms > waiter->since_wall_ms ? wall_ms - waiter->since_wall_ms : 0;
    }
    return waits;
}

/* Counts the waits for the store that the end of this move has ended. */
static void count_waits(struct service *s, const struct move_op *op, struct service_waits before)
{
    struct service_waits after = get_waits(s, op->store);
    if (op->tier != VMM_TIER_DEVICE || before.count < after.count)
        return;
    s->counts->promote_waits.count += before.count - after.count;
    s->counts->promote_waits.ms += before.ms > after.ms ? before.ms - after.ms : 0;
}

static void count_copy(struct service *s, enum core_place to, uint64_t bytes, uint64_t ms)
{
    s->counts->move_bytes += bytes;
    s->counts->move_ms += ms;
    if (to == CORE_PLACE_DEVICE)
        histogram_add(&s->counts->promotions, ms * 1000);
}

/* Returns how many pieces the move makes: all, or none. */
static uint32_t count_made(const struct move_op *op)
{
    return move_op_verifies(op) ? 0 : op->count;
}

static int record_end(struct service *s, struct move_op *op)
{
    uint64_t *memories = piece_list_ids(op->pieces, count_made(op));
    struct record record = {
        .type = RECORD_MOVE_END,
        .store = op->store,
        .move = op->id,
        .memories = memories,
        .memory_count = count_made(op),
        .flags = s->options.drops_copies || move_op_verifies(op) ? 0 : CORE_MOVE_KEEP};
    if (!memories)
        return -ENOMEM;
    const struct core_store *store = core_find_store(s->core, op->store);
    enum core_place before = store ? store->places.place : CORE_PLACE_DEVICE;
    struct service_waits waits = get_waits(s, op->store);
    int error = service_apply_record(s, &record, NULL);
    free(memories);
    if (!error) {
        count_move(s, op->store, before);
        count_waits(s, op, waits);
    }
    return error;
}

/* Enters the finished pieces into the table, then into the state. */
static int publish(struct service *s, struct move_op *op)
{
    uint32_t count = count_made(op);
    int error = piece_enter_all(s, op->pieces, count);
    if (error)
        return error;
    error = record_end(s, op);
    piece_leave_all(s, op->pieces, count, error);
    return error;
}

/* ---- one move ---------------------------------------------------------------------------- */

static void free_op(struct service *s, struct move_op *op)
{
    for (uint32_t i = 0; i < op->count && op->pieces; i++) {
        if (op->pieces[i])
            piece_free(s, op->pieces[i]);
    }
    piece_free_gathered(s);
    free(op->sources);
    free(op->pieces);
    pthread_mutex_destroy(&op->mutex);
    free(op);
}

static void run_rest(struct job *job)
{
    vmm_rest(((struct task *)job)->service->vmm);
}

/* Has the memory for copies freed, if there is a thread for it: nothing depends on it. */
static void rest(struct service *s)
{
    struct task *made = vmm_can_rest(s->vmm) ? malloc(sizeof *made) : NULL;
    if (!made)
        return;
    *made = (struct task){.job.run = run_rest, .end = service_free_task};
    if (service_submit(s, SERVICE_POOL_FREE, made))
        free(made);
}

/* Notes that the device itself is short of memory, though its account is not. */
static void note_shortfall(struct service *s, const struct move_op *op)
{
    uint64_t bytes = piece_count_missing(op->pieces, count_made(op));
    if (bytes > 0 && op->tier == VMM_TIER_DEVICE)
        service_note_shortfall(s, op->store, bytes);
}

static void leave_op(struct service *s, struct move_op *op)
{
    LIST_REMOVE(s->moves.all, op);
    for (uint32_t i = 0; i < op->count; i++)
        piece_end(s, op->sources[i]);
}

static void trace_move(const struct move_op *op)
{
    const struct core_store *store = core_find_store(op->service->core, op->store);
    char name[TIMELINE_NAME_BYTES];
    snprintf(name, sizeof name, "%s %s", move_op_verifies(op) ? "verify on" : "move to",
             core_place_name(op->to));
    timeline_add("move", name, op->id, op->began_ms * 1000, store ? store->name : NULL);
}

/* Ends the move: all its parts have ended. */
static void finish(struct move_op *op)
{
    struct service *s = op->service;
    uint64_t store = op->store, id = op->id, began_ms = op->began_ms;
    bool cancelled = op->state == MOVE_CANCELLED, verifies = move_op_verifies(op);
    uint64_t bytes = op->all_bytes;
    enum core_place op_to = op->to;
    int error = op->error;
    if (timeline_is_on())
        trace_move(op);
    move_op_go(op, MOVE_ENDS);
    leave_op(s, op);
    if (!error && !cancelled) {
        error = publish(s, op);
        cancelled = error == -ESTALE;
    }
    if (error == -ENOMEM && !cancelled)
        note_shortfall(s, op);
    free_op(s, op);
    s->backoffs.choices++; /* a tier has more room now, or a store is in another place */
    if (!s->moves.all)
        rest(s);
    if (!error && !cancelled) {
        if (!verifies)
            count_copy(s, op_to, bytes, service_now(s) - began_ms);
        service_end_backoff(s, BACKOFF_TELL, store);
    }
    if (error == -ENOMEM)
        service_back_off(s, BACKOFF_PROMOTE, 0, SERVICE_PROMOTE_RETRY_MS);
    if (error && !cancelled) {
        service_back_off(s, BACKOFF_EVICT, 0, SERVICE_PROMOTE_RETRY_MS);
        if (op_to != CORE_PLACE_DEVICE)
            service_back_off(s, BACKOFF_LEAVE, store, SERVICE_LEAVE_RETRY_MS);
        service_move_failed(s, store, id, error);
        if (verifies && error == -EIO) /* drops that copy; the others stay */
            service_drop_copy(s, store, op_to, error);
    }
    service_note_moves(s); /* other moves may have waited for this one's memory */
}

/* Finds the piece of each allocation. -EIO: one was lost with an earlier worker */
static int find_sources(struct service *s, const struct core_store *store, struct move_op *op)
{
    const struct layout *copy = move_op_verifies(op) ? store->places.spares[op->to] : store->fixed;
    for (uint32_t i = 0; i < op->count; i++) {
        const struct layout_allocation *allocation = layout_at_rank(copy, i);
        op->sources[i] = idvec_find(&s->pieces.all, allocation->memory);
        if (!op->sources[i])
            return -EIO;
        op->all_bytes += allocation->aligned_bytes;
        if (!move_op_verifies(op))
            op->cost_bytes += vmm_align_in(s->vmm, op->tier, allocation->aligned_bytes);
    }
    return 0;
}

/* -ENOMEM, also if there is no such tier; -EIO */
static int new_op(struct service *s, const struct core_store *store, enum core_place to,
                  struct move_op **made)
{
    struct move_op *op = NULL;
    size_t count = layout_count_allocations(store->fixed);
    if ((unsigned)to < CORE_TIER_COUNT && vmm_has_tier(s->vmm, service_tiers[to]))
        op = calloc(1, sizeof *op);
    if (!op)
        return -ENOMEM;
    pthread_mutex_init(&op->mutex, NULL);
    op->service = s;
    op->finish = finish;
    op->began_ms = service_now(s);
    op->store = store->id;
    op->to = to;
    op->tier = service_tiers[to];
    op->seals =
        op->tier == VMM_TIER_DEVICE && vmm_can_finish(s->vmm) && layout_is_immutable(store->fixed);
    op->pool = to == CORE_PLACE_DISK || store->places.place == CORE_PLACE_DISK ? SERVICE_POOL_DISK
                                                                               : SERVICE_POOL_MOVE;
    op->sources = calloc(count, sizeof(struct piece *));
    bool verifies = store->places.spares[to] != NULL;
    if (!verifies)
        op->pieces = calloc(count, sizeof(struct piece *));
    op->count = op->sources && (verifies || op->pieces) ? (uint32_t)count : 0;
    int error = op->count > 0 ? find_sources(s, store, op) : -ENOMEM;
    if (error)
        free_op(s, op);
    else
        *made = op;
    return error;
}

/* Adds the move to the list, which is in order of age. */
static void enter_op(struct service *s, struct move_op *op)
{
    struct move_op **link = &s->moves.all;
    while (*link && (*link)->id < op->id)
        link = &(*link)->next;
    op->next = *link;
    *link = op;
    for (uint32_t i = 0; i < op->count; i++)
        piece_begin(op->sources[i]);
}

static int start_op(struct service *s, struct move_op *op)
{
    enter_op(s, op);
    int error = move_op_waits(op) ? 0 : move_op_start(op);
    if (error)
        leave_op(s, op);
    return error;
}

/* ---- beginning --------------------------------------------------------------------------- */

/* Begins to copy, or applies the record alone if there is nothing to copy. */
static int begin(struct service *s, const struct core_store *store, struct record *record)
{
    uint64_t store_id = store->id;
    enum core_place to = (enum core_place)record->kind;
    struct outcome outcome;
    struct move_op *op;
    if (s->moves.end)
        return -EAGAIN;
    int error = new_op(s, store, to, &op);
    if (error)
        return error;
    error = move_op_take_memory(op, service_count_waiting_moves(s, op->tier) == 0);
    if (error) {
        free_op(s, op);
        return error;
    }
    record->flags |= move_op_verifies(op) ? CORE_MOVE_VERIFY : 0;
    error = service_apply_record(s, record, &outcome);
    if (error || !outcome.id) {
        free_op(s, op);
        return error;
    }
    op->id = outcome.id;
    error = start_op(s, op);
    if (error) {
        free_op(s, op);
        service_move_failed(s, store_id, outcome.id, error);
    }
    service_note_moves(s); /* the record may have freed the memory that it waits for */
    return error;
}

bool service_needs_bytes(const struct core_store *store, enum core_place to)
{
    return store->lock.committed && to != CORE_PLACE_NONE && !core_has_copy(store, to) &&
           store->places.place != CORE_PLACE_NONE && store->places.move.id == 0 &&
           layout_count_allocations(store->fixed) > 0;
}

/* Returns true if the move would leave the copy on the disk alone, which has not been read since it
 * was written. */
static bool needs_verification(const struct core_store *store, const struct record *record)
{
    return record->kind == CORE_PLACE_DISK && store->places.place < CORE_PLACE_DISK &&
           store->places.spares[CORE_PLACE_DISK] && !(record->flags & CORE_MOVE_SPARE) &&
           store->places.move.id == 0;
}

int service_move_store(struct service *s, struct record *record)
{
    const struct core_store *store = core_find_store(s->core, record->store);
    enum core_place before = store->places.place;
    int error = service_needs_bytes(store, (enum core_place)record->kind) ||
                        needs_verification(store, record)
                    ? begin(s, store, record)
                    : service_apply_record(s, record, NULL);
    count_move(s, record->store, before);
    return error;
}

int service_evict(struct service *s, uint64_t store, enum core_place to, uint64_t evictor)
{
    int error =
        service_move(s, .store = store, .kind = to, .flags = CORE_MOVE_EVICT, .evictor = evictor);
    if (error == -ENOMEM) /* perhaps the daemon's own memory: the waiters try again */
        service_back_off(s, BACKOFF_EVICT, 0, SERVICE_PROMOTE_RETRY_MS);
    return error;
}

/* ---- moves of the last worker -------------------------------------------------------------- */

static struct move_op *find_op(const struct service *s, const struct core_store *store)
{
    struct move_op *op = s->moves.all;
    while (op && (op->store != store->id || op->id != store->places.move.id))
        op = op->next;
    return op;
}

void service_restore_moves(struct service *s)
{
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        struct move_op *op;
        if (store->places.move.id == 0 || new_op(s, store, store->places.move.to, &op))
            continue;
        op->id = store->places.move.id;
        move_op_go(op, MOVE_WAITS);
        enter_op(s, op);
    }
}

void service_begin_moves_anew(struct service *s)
{
    for (size_t i = 0; i < s->core->stores.count; i++) {
        const struct core_store *store = s->core->stores.items[i];
        struct move_op *op = NULL;
        if (store->places.move.id == 0 || find_op(s, store))
            continue;
        int error =
            new_op(s, store, store->places.move.to, &op); /* repeats the error of restoring it */
        if (!error)
            free_op(s, op);
        service_move_failed(s, store->id, store->places.move.id, error ? error : -ENOMEM);
    }
    service_note_moves(s);
}

/* ---- over -------------------------------------------------------------------------------- */

/* Leaves its parts no further piece or span to take. */
static void cancel(struct move_op *op)
{
    move_op_go(op, MOVE_CANCELLED);
    atomic_store(&op->taken, op->count);
    pthread_mutex_lock(&op->mutex);
    op->begun = op->count;
    for (uint32_t i = 0; i < MOVE_OPEN_PIECES; i++)
        op->cursors[i].index = op->count;
    pthread_mutex_unlock(&op->mutex);
}

void service_on_move_over(struct service *s, const struct effect *effect)
{
    for (struct move_op *op = s->moves.all; op; op = op->next) {
        if (op->store == effect->store && op->id == effect->move)
            cancel(op);
    }
    service_note_moves(s);
}

void service_end_moves(struct service *s)
{
    s->moves.end = true;
    for (struct move_op *op = s->moves.all; op; op = op->next)
        cancel(op);
    service_resume_moves(s);
}

/* ---- views -------------------------------------------------------------------------------- */

bool service_get_moving(const struct service *s, const struct core_store *store,
                        struct service_moving *moving)
{
    const struct core_move *move = &store->places.move;
    const struct move_op *op = find_op(s, store);
    if (move->id == 0)
        return false;
    *moving = (struct service_moving){.to = move->to, .spare = move->spare};
    moving->all_bytes = op ? op->all_bytes : layout_total_bytes(store->fixed);
    moving->done_bytes = op ? op->done_bytes : 0;
    return true;
}
