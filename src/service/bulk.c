/* SPDX-License-Identifier: Apache-2.0 */
/* bulk - whole documents of metadata, applied in slices */
#include "service/metadata.h"

#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"
#include "service/parked.h"
#include "service/transfers.h"

#include <errno.h>
#include <stdlib.h>

/* A slice that was short of memory is tried again; the first one need not be, for it leaves
 * nothing. */
#define RETRY_MS    200u
#define PATIENCE_MS 20000u

/*
 * Decoding runs on a helper thread, the check against the layout and the slices on the loop. Once
 * the check has passed no slice can fail because of the document: an allocation that another thread
 * of the same writer frees meanwhile takes its rows with it, as if it had been freed afterwards. A
 * later slice that is short of memory waits, and so does the session, which is in use: so half a
 * document is never published. A wait that takes too long ends the session, which leaves nothing of
 * the document.
 */
struct bulk_op {
    struct task task; /* first */
    struct service_request *request;
    uint64_t works_for; /* service_works_for at the time of the request */
    uint64_t session;
    const uint8_t *bytes; /* owned by the caller */
    size_t size;
    struct layout_put
        *puts; /* rows of the document, by key; `serial` is the row's number in the document */
    size_t rows, next_row;
    size_t named_rows; /* rows up to here have slots, the others ranks */
    uint64_t rank_end; /* above all ranks of the document */
    uint64_t *slots;   /* by rank, at the time of the check */
    uint64_t total_bytes;
    struct deadline retry; /* set while a slice waits for memory */
    uint64_t until_ms;     /* end of such waits; 0: no slice has been short of memory */
    enum bulk_state state;
    uint64_t culprit;
    int error;
    struct bulk_op *next;
};

static void bulk_answer(struct bulk_op *op, int error)
{
    struct service_answer answer = {.applied = error ? 0 : op->rows, .culprit = op->culprit};
    struct service_request *request = op->request;
    steps_go(bulk_steps, &op->state, BULK_ENDS);
    deadline_clear(op->task.service, &op->retry);
    service_release_room(op->task.service, op->size);
    service_discard(op->task.service, free, op->puts);
    free(op->slots);
    free(op);
    service_answer(request, error, &answer);
}

static void bulk_finish(struct service *s, struct bulk_op *op, int error)
{
    uint64_t session = op->session;
    bulk_answer(op, error);
    service_end_use(s, session);
}

void service_drop_bulks(struct service *s)
{
    while (s->bulk_queue) {
        struct bulk_op *op = s->bulk_queue;
        s->bulk_queue = op->next;
        bulk_answer(op, -ENOTCONN);
    }
}

/* Measures the rows. The culprit is the first bad row in the order of the document. */
static void measure(struct bulk_op *op)
{
    for (size_t i = 0; i < op->rows; i++) {
        const struct layout_put *put = &op->puts[i];
        if (service_entry_has_stray_offset(put->slot, put->offset) &&
            (!op->error || put->serial < op->culprit)) {
            op->error = -EINVAL;
            op->culprit = put->serial;
        }
        op->total_bytes += put->key_bytes + put->value_bytes;
        if (put->slot != LAYOUT_UNBOUND && put->slot >= op->rank_end)
            op->rank_end = put->slot + 1;
    }
}

static void run_decode(struct job *job)
{
    struct bulk_op *op = (struct bulk_op *)job;
    struct layout_document *document;
    op->error = layout_document_decode(op->bytes, op->size, &document, &op->culprit);
    if (op->error)
        return;
    if (layout_document_has_allocations(document))
        op->error = -EINVAL; /* a document makes no memory */
    else
        op->puts = layout_document_take_puts(document, &op->rows);
    layout_document_free(document);
    measure(op);
}

/* Finds the first row, in the order of the document, with a rank that does not exist. */
static void find_culprit(struct bulk_op *op, size_t ranks)
{
    op->culprit = UINT64_MAX;
    for (size_t i = 0; i < op->rows; i++) {
        const struct layout_put *put = &op->puts[i];
        if (put->slot != LAYOUT_UNBOUND && put->slot >= ranks && put->serial < op->culprit)
            op->culprit = put->serial;
    }
}

/* Checks the ranks that the rows name; the helper has checked the rest. */
static int check_rows(const struct layout *layout, struct bulk_op *op)
{
    size_t ranks = layout_count_allocations(layout);
    if (op->rank_end > ranks) {
        find_culprit(op, ranks);
        return -EINVAL;
    }
    if (op->rows > LAYOUT_MAX_ENTRIES - layout_count_entries(layout) ||
        op->total_bytes > LAYOUT_MAX_ENTRY_BYTES - layout_entry_bytes(layout))
        return -ENOSPC;
    op->slots = malloc((size_t)(op->rank_end + 1) * sizeof *op->slots);
    if (!op->slots)
        return -ENOMEM;
    for (size_t rank = 0; rank < op->rank_end; rank++)
        op->slots[rank] = layout_at_rank(layout, rank)->slot;
    return 0;
}

static int bulk_check(struct service *s, struct bulk_op *op)
{
    const struct core_session *session = core_find_session(s->core, op->session);
    if (!session)
        return -ESTALE;
    return check_rows(core_get_layout(s->core, core_find_store(s->core, session->store)), op);
}

static void end_decode(struct service *s, struct task *task)
{
    struct bulk_op *op = (struct bulk_op *)task;
    int error = op->error ? op->error : bulk_check(s, op);
    if (error || op->rows == 0) {
        bulk_finish(s, op, error);
        return;
    }
    steps_go(bulk_steps, &op->state, BULK_APPLIES);
    LIST_APPEND(s->bulk_queue, op);
    s->host.set_idle(s->host.context);
}

/* The record has the rows themselves, which live longer than it. */
static int apply_slice(struct service *s, struct bulk_op *op)
{
    struct record record = {
        .type = RECORD_ENTRY_PUT_MANY, .session = op->session, .puts = op->puts + op->next_row};
    size_t bytes = 0, at = op->next_row;
    while (at < op->rows && record.put_count < SERVICE_APPLY_SLICE &&
           bytes < SERVICE_APPLY_SLICE_BYTES) {
        struct layout_put *put = &op->puts[at++];
        bytes += put->key_bytes + put->value_bytes;
        record.put_count++;
        if (op->named_rows < at) {
            op->named_rows = at;
            if (put->slot != LAYOUT_UNBOUND)
                put->slot = op->slots[put->slot];
        }
    }
    int error = service_apply_record(s, &record, NULL);
    if (!error)
        op->next_row = at;
    return error;
}

static void retry(struct service *s, struct deadline *deadline)
{
    struct bulk_op *op = CONTAINER_OF(deadline, struct bulk_op, retry);
    steps_go(bulk_steps, &op->state, BULK_APPLIES);
    s->host.set_idle(s->host.context);
}

/* Has the document wait for memory. Returns false if it ends instead, and leaves nothing. */
static bool wait_for_memory(struct service *s, struct bulk_op *op)
{
    struct ending ending = {
        .type = ENDING_REVOKE, .session = op->session, .by_uid = CORE_BY_DAEMON};
    uint64_t now_ms = service_now(s);
    if (op->next_row == 0 || !core_find_session(s->core, op->session))
        return false;
    if (op->until_ms == 0)
        op->until_ms = now_ms + PATIENCE_MS;
    op->retry.pass = retry;
    if (now_ms >= op->until_ms && service_end_session(s, &ending) == 0)
        return false;
    steps_go(bulk_steps, &op->state, BULK_WAITS);
    deadline_set(s, &op->retry, now_ms + RETRY_MS);
    return true;
}

static struct bulk_op *find_ready(const struct service *s)
{
    struct bulk_op *op = s->bulk_queue;
    while (op && op->state == BULK_WAITS)
        op = op->next;
    return op;
}

bool service_has_slices(const struct service *s)
{
    return find_ready(s) != NULL;
}

void service_apply_slices(struct service *s)
{
    struct bulk_op *op = find_ready(s);
    if (!op)
        return;
    LIST_REMOVE(s->bulk_queue, op); /* documents take turns */
    uint64_t former = service_work_for(s, op->works_for);
    int error = apply_slice(s, op);
    if ((!error && op->next_row < op->rows) || (error == -ENOMEM && wait_for_memory(s, op)))
        LIST_APPEND(s->bulk_queue, op);
    else
        bulk_finish(s, op, error);
    service_work_for(s, former);
    if (service_has_slices(s))
        s->host.set_idle(s->host.context);
}

/* Holds room for the document until bulk_answer. */
static int hold_room(struct service *s, uint64_t session, size_t bytes)
{
    const struct core_session *writer = core_find_session(s->core, session);
    uint32_t uid = writer->uid;
    uint64_t store = writer->store;
    int error = service_hold_room(s, uid, bytes);
    if (error) {
        service_note_bound(s, core_bound_name(CORE_BOUND_MEMORY), store, uid, error);
        return error;
    }
    error = service_begin_use(s, session);
    if (error)
        service_release_room(s, bytes);
    return error;
}

int service_apply(struct service *s, const struct service_actor *by, const uint8_t *document,
                  size_t bytes, struct service_request *request)
{
    struct service_answer answer = {.culprit = UINT64_MAX};
    struct bulk_op *op = NULL;
    uint64_t session;
    int error = service_find_writer(s, by, &session);
    if (!error && !(op = calloc(1, sizeof *op)))
        error = -ENOMEM;
    if (!error)
        error = hold_room(s, session, bytes);
    if (error) {
        free(op);
        service_answer(request, error, &answer);
        return 0;
    }
    *op = (struct bulk_op){
        .task = {.job.run = run_decode, .end = end_decode, .service = s},
        .request = request,
        .works_for = service_works_for(s),
        .session = session,
        .bytes = document,
        .size = bytes,
        .culprit = UINT64_MAX,
    };
    error = service_submit(s, SERVICE_POOL_COMPUTE, &op->task);
    if (error)
        bulk_finish(s, op, error);
    return 0;
}
