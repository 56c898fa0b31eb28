/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit - prepares a commit on a helper thread
 *
 * The check, encoding and hash of the largest layouts take seconds: a job makes them while the
 * session counts as in use, and the record takes them over. The same job makes the layout's memory
 * final before it is committed (commit_memory.h). The session is ending meanwhile, so its layout
 * does not change; a change all the same (a spool that ends) has both done again.
 */
#include "service/commit_memory.h"
#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"

#include <errno.h>
#include <stdlib.h>

#define MAX_TRIES 4u /* then the record computes it, however long that takes */

struct commit_job {
    struct task task; /* first */
    uint64_t session;
    struct core_commit *commit;
    struct commit_memory memory;
    struct service_request *request; /* of a check; NULL: an ending waits for it */
    uint32_t flags;
};

static void run_prepare(struct job *job)
{
    struct commit_job *preparing = (struct commit_job *)job;
    core_commit_prepare(preparing->commit);
    if (preparing->commit->error == 0)
        commit_memory_run(&preparing->memory, preparing->task.service->vmm);
}

/* NULL: no memory */
static struct commit_job *job_new(struct service *s, uint64_t session, uint32_t flags,
                                  void (*end)(struct service *s, struct task *task))
{
    struct commit_job *made = calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct commit_job){.task = {.job.run = run_prepare, .end = end},
                                .session = session,
                                .commit = core_commit_new(s->core, session, flags)};
    bool check = (flags & CORE_COMMIT_CHECK) != 0, immutable = (flags & CORE_COMMIT_IMMUTABLE) != 0;
    if (made->commit && (check || commit_memory_begin(&made->memory, s, session, immutable) == 0))
        return made;
    core_commit_free(made->commit);
    free(made);
    return NULL;
}

static void job_free(struct service *s, struct commit_job *unused)
{
    commit_memory_end(&unused->memory, s);
    core_commit_free(unused->commit);
    free(unused);
}

static void free_commit(void *commit)
{
    core_commit_free(commit);
}

void service_drop_prepared(struct service *s, struct ending *ending)
{
    if (ending->prepared)
        service_discard(s, free_commit, ending->prepared);
    ending->prepared = NULL;
}

static void end_prepare(struct service *s, struct task *task)
{
    struct commit_job *preparing = (struct commit_job *)task;
    uint64_t session = preparing->session;
    struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    struct ending *ending = in_flight ? in_flight->endings : NULL;
    if (ending && ending->preparing == preparing) {
        ending->preparing = NULL;
        ending->prepared = preparing->commit;
        ending->error = commit_memory_explain(&preparing->memory, s, session, ending->refusal);
    } else { /* the session was over before */
        service_discard(s, free_commit, preparing->commit);
    }
    commit_memory_end(&preparing->memory, s);
    free(preparing);
    service_end_use(s, session);
}

static bool is_ready(const struct service *s, const struct ending *ending)
{
    bool immutable = (ending->flags & CORE_COMMIT_IMMUTABLE) != 0;
    if (ending->type != ENDING_COMMIT || ending->error ||
        (ending->tries >= MAX_TRIES && !immutable))
        return true;
    if (ending->prepared)
        return core_commit_is_current(s->core, ending->session, ending->prepared);
    return !core_commit_is_slow(s->core, ending->session) &&
           !commit_memory_is_needed(s, ending->session, immutable);
}

/* Takes room for the encoding, which exists beside the one of the committed layout. */
static int take_room(struct service *s, uint64_t session)
{
    const struct core_session *writer = core_find_session(s->core, session);
    if (!writer)
        return 0; /* the record fails */
    uint64_t store = writer->store;
    uint32_t uid = writer->uid;
    const struct layout *layout = core_get_layout(s->core, core_find_store(s->core, store));
    int error = service_take_room(s, uid, false, layout_encoding_bytes(layout));
    if (error)
        service_note_bound(s, core_bound_name(CORE_BOUND_MEMORY), store, uid, error);
    return error;
}

/* The record computes the commit, and memory that is not final yet is made so by the next commit;
 * an immutable layout cannot wait for that. Returns false: no job runs. */
static bool go_without(struct ending *ending)
{
    if (ending->flags & CORE_COMMIT_IMMUTABLE)
        ending->error = -ENOMEM;
    return false;
}

bool service_prepare_commit(struct service *s, struct in_flight *in_flight, struct ending *ending)
{
    struct commit_job *preparing;
    if (is_ready(s, ending))
        return false;
    service_drop_prepared(s, ending);
    ending->error = take_room(s, ending->session);
    if (ending->error)
        return false;
    steps_go(ending_steps, &ending->state, ENDING_PREPARES);
    ending->tries++;
    preparing = job_new(s, ending->session, ending->flags, end_prepare);
    if (!preparing)
        return go_without(ending);
    ending->preparing = preparing;
    in_flight->running++;
    if (service_submit(s, SERVICE_POOL_COMPUTE, &preparing->task) == 0)
        return true;
    ending->preparing = NULL;
    in_flight->running--;
    job_free(s, preparing);
    return go_without(ending);
}

/* ---- CHECK: the session does not end, so changes and transfers go on ------------------------ */

static void answer_check(struct service *s, uint64_t session, uint32_t flags,
                         const struct core_commit *commit, struct service_request *request)
{
    struct service_answer answer = {.session = session, .mode = LOCK_MODE_RW};
    int error = core_find_session(s->core, session)
                    ? service_record(s, .type = RECORD_COMMIT, .session = session, .flags = flags,
                                     .commit = commit)
                    : -ESTALE;
    service_answer(request, error, &answer);
}

static void end_check(struct service *s, struct task *task)
{
    struct commit_job *checking = (struct commit_job *)task;
    uint64_t session = checking->session;
    answer_check(s, session, checking->flags, checking->commit, checking->request);
    service_discard(s, free_commit, checking->commit);
    free(checking);
    service_end_use(s, session);
}

int service_check_commit(struct service *s, uint64_t session, uint32_t flags,
                         struct service_request *request)
{
    struct commit_job *checking = NULL;
    int error = service_begin_use(s, session);
    if (error)
        return error;
    if (core_commit_is_slow(s->core, session))
        checking = job_new(s, session, flags, end_check);
    if (checking) {
        checking->request = request;
        checking->flags = flags;
        if (service_submit(s, SERVICE_POOL_COMPUTE, &checking->task) == 0)
            return 0;
        job_free(s, checking);
    }
    answer_check(s, session, flags, NULL, request);
    service_end_use(s, session);
    return 0;
}
