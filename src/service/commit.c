/* SPDX-License-Identifier: Apache-2.0 */
/*
 * commit - prepares a commit on a helper thread
 *
 * The check, encoding and hash of the largest layouts take seconds: a job makes them while the
 * session counts as in use, and the record takes them over. The same job makes the layout's memory
 * final before it is committed. The session is ending meanwhile, so its layout does not change; a
 * change all the same (a spool that ends) has both done again.
 */
#include "service/cost.h"
#include "service/discard.h"
#include "service/ending.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * Makes the memory of a layout final before its commit.
 *
 * From then on no process can seal it (fcntl(2)), which would surprise the next writer; that of an
 * immutable layout can be written by no process either. Memory that cannot be sealed so (of a GPU,
 * or committed before) is left as it is: the layout is then immutable by promise.
 *
 * The kernel tells of a writable mapping only by refusing the seal, so no look comes before, and
 * memory that was sealed stays so if the commit fails. Then only an immutable commit takes it: a
 * plain one is refused, because the next writer could not write it in place.
 */
struct commit_memory {
    struct piece **pieces; /* memory to seal or to refuse; in use until commit_memory_end */
    bool *is_immutable;    /* results, by piece */
    uint32_t count, done;
    bool wants_immutable;
    int error; /* of the piece at `done` */
};

#define NAMED_WRITERS 3u

static const struct core_store *find_store(const struct service *s, uint64_t session)
{
    const struct core_session *writer = core_find_session(s->core, session);
    return writer ? core_find_store(s->core, writer->store) : NULL;
}

/* Returns the piece of this allocation if a process can still seal it, or if an immutable commit
 * that failed has sealed it, which a plain one must refuse; else NULL. */
static struct piece *find_piece(const struct service *s, const struct layout_allocation *allocation,
                                bool immutable)
{
    struct piece *piece = idvec_find(&s->pieces.all, allocation->memory);
    if (!piece || !piece->memory.sealed || piece->tier != VMM_TIER_DEVICE)
        return NULL;
    return !piece->memory.final || (piece->memory.immutable && !immutable) ? piece : NULL;
}

/* Returns true if the layout that this session may commit has memory to seal or to refuse. */
static bool commit_memory_is_needed(const struct service *s, uint64_t session, bool immutable)
{
    const struct core_store *store = find_store(s, session);
    if (!store || !vmm_can_finish(s->vmm))
        return false;
    const struct layout *layout = core_get_layout(s->core, store);
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        if (find_piece(s, layout_at_rank(layout, i), immutable))
            return true;
    return false;
}

/* Notes what was made final, and ends the use of all. */
static void commit_memory_end(struct commit_memory *memory, struct service *s)
{
    for (uint32_t i = 0; i < memory->count; i++) {
        struct piece *piece = memory->pieces[i];
        piece->memory.final |= i < memory->done;
        piece->memory.immutable |= i < memory->done && memory->is_immutable[i];
        piece_end(s, piece);
    }
    free(memory->pieces);
    free(memory->is_immutable);
    *memory = (struct commit_memory){0};
}

/* Lists that memory. -ENOMEM */
static int commit_memory_begin(struct commit_memory *memory, struct service *s, uint64_t session,
                               bool immutable)
{
    const struct core_store *store = find_store(s, session);
    *memory = (struct commit_memory){.wants_immutable = immutable};
    if (!store || !vmm_can_finish(s->vmm))
        return 0;
    const struct layout *layout = core_get_layout(s->core, store);
    size_t count = layout_count_allocations(layout);
    memory->pieces = calloc(count ? count : 1, sizeof(struct piece *));
    memory->is_immutable = calloc(count ? count : 1, sizeof(bool));
    if (!memory->pieces || !memory->is_immutable) {
        commit_memory_end(memory, s);
        return -ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        struct piece *piece = find_piece(s, layout_at_rank(layout, i), immutable);
        if (!piece)
            continue;
        piece_begin(piece);
        memory->pieces[memory->count++] = piece;
    }
    return 0;
}

/* Seals the memory, until the first error. On a helper's thread; the other functions are for the
 * loop's. */
static void commit_memory_run(struct commit_memory *memory, struct vmm *vmm)
{
    for (; memory->done < memory->count; memory->done++) {
        const struct vmm_piece *piece = &memory->pieces[memory->done]->memory;
        int error = memory->wants_immutable ? vmm_make_immutable(vmm, piece) : -EOPNOTSUPP;
        memory->is_immutable[memory->done] = error == 0;
        if (error == -EOPNOTSUPP)
            error = vmm_finish(vmm, piece);
        memory->error = error;
        if (error)
            return;
    }
}

/* Writes "process 7 (python3) or 8". Only the session's own process has a known name. */
static void name_writers(const struct service *s, const struct core_store *store, uint64_t session,
                         char *text, size_t bytes)
{
    const struct core_session *own = core_find_session(s->core, session);
    size_t used = 0;
    for (size_t i = 0; i < store->writer_count && i < NAMED_WRITERS && used < bytes; i++) {
        struct core_process writer = store->writers[i];
        bool is_own = core_same_process(own->owner, writer) && own->comm[0];
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRIu64 "%s%s%s",
                                 i == 0 ? "process " : " or ", writer.pid, is_own ? " (" : "",
                                 is_own ? own->comm : "", is_own ? ")" : "");
    }
    if (store->writer_count > NAMED_WRITERS && used < bytes)
        snprintf(text + used, bytes - used, " or another one");
    if (store->writer_count == 0)
        snprintf(text, bytes, "a process that the daemon cannot see");
}

static const char *find_name(const struct layout *layout, uint64_t memory)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        if (layout_at_rank(layout, i)->memory == memory)
            return layout_at_rank(layout, i)->name;
    return "";
}

/* Returns the error of the run, and in `why` the reason for clients, or "" if errno says all:
 * -EBUSY: mapped for writing; -EINVAL: sealed against writes. */
static int commit_memory_explain(const struct commit_memory *memory, const struct service *s,
                                 uint64_t session, char why[256])
{
    const struct core_store *store = find_store(s, session);
    char writers[128] = "";
    why[0] = '\0';
    if (!memory->error || !store)
        return memory->error;
    const char *name = find_name(core_get_layout(s->core, store), memory->pieces[memory->done]->id);
    if (memory->error == -EBUSY) {
        name_writers(s, store, session, writers, sizeof writers);
        snprintf(why, 256,
                 "%s has allocation %.60s mapped for writing: unmap it, then commit again", writers,
                 name);
    } else if (memory->error == -EPERM) {
        snprintf(
            why, 256,
            "allocation %.60s is sealed against writes (F_SEAL_WRITE): commit it as immutable, "
            "or remove it and make it anew",
            name);
        return -EINVAL;
    }
    return memory->error;
}

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
    if (is_ready(s, ending))
        return false;
    service_drop_prepared(s, ending);
    ending->error = take_room(s, ending->session);
    if (ending->error)
        return false;
    steps_go(ending_steps, &ending->state, ENDING_PREPARES);
    ending->tries++;
    struct commit_job *preparing = job_new(s, ending->session, ending->flags, end_prepare);
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
