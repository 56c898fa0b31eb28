/* SPDX-License-Identifier: Apache-2.0 */
/* service - making it, applying records, effects, time, and what sessions have in flight */
#include "service/service_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int create_first_store(struct service *s)
{
    struct service_caller owner = {.uid = s->options.uid, .gid = s->options.gid};
    uint64_t id;
    return service_store_create(s, "weights", &owner, 0755, &id);
}

int service_new(struct vmm *vmm, const struct service_options *options,
                const struct service_host *host, struct service **service)
{
    struct service *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->vmm = vmm;
    s->options = *options;
    s->host = *host;
    s->next_memory = 1;
    s->alloc_retry_ms = UINT64_MAX;
    struct vmm_info info;
    vmm_get_info(vmm, &info);
    struct core_options core_options = {.patience_ms = options->patience_ms,
                                        .granularity_bytes = info.granularity_bytes};
    int error = core_new(&core_options, &s->core);
    if (!error)
        error = create_first_store(s);
    if (error) {
        service_free(s);
        return error;
    }
    *service = s;
    return 0;
}

void service_free(struct service *s)
{
    if (!s)
        return;
    s->ending = true;
    service_drop_parked(s);
    service_drop_allocs(s);
    service_drop_spools(s);
    service_drop_bulks(s);
    for (size_t i = 0; i < s->pieces.count; i++) {
        struct piece *piece = s->pieces.items[i];
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
    }
    for (size_t i = 0; i < s->runs.count; i++)
        service_drop_run(s->runs.items[i]);
    idvec_free(&s->pieces);
    idvec_free(&s->runs);
    idvec_free(&s->parked);
    core_free(s->core);
    free(s);
}

const struct core *service_get_core(const struct service *s)
{
    return s->core;
}

struct vmm *service_get_vmm(const struct service *s)
{
    return s->vmm;
}

uint64_t service_now(const struct service *s)
{
    return s->host.now_ms(s->host.context);
}

void service_answer(struct service_request *request, int error, const struct service_answer *answer)
{
    static const struct service_answer nothing;
    if (!request)
        return;
    request->parked = NULL;
    request->alloc = NULL;
    request->done(request, error, answer ? answer : &nothing);
}

/* ---- records and effects ------------------------------------------------------------------- */

static void handle_effect(struct service *s, const struct effect *effect)
{
    switch (effect->type) {
    case EFFECT_GRANTED:
        service_on_granted(s, effect);
        break;
    case EFFECT_REFUSED:
        service_on_refused(s, effect);
        break;
    case EFFECT_FREE_MEMORY:
        service_on_free_memory(s, effect->memory);
        break;
    case EFFECT_STATE:
        s->host.on_state(s->host.context, effect->store);
        break;
    case EFFECT_EVENT:
        s->host.on_event(s->host.context);
        break;
    case EFFECT_SESSION_OVER:
        service_on_session_over(s, effect->session);
        break;
    }
}

/* The device's account follows what the core has set aside, before anybody else asks for memory.
 * Whether some of it is free again. */
static bool settle_account(struct service *s)
{
    struct vmm_info info;
    vmm_get_info(s->vmm, &info);
    if (s->core->reserved_bytes == info.aside_bytes)
        return false;
    int error = vmm_set_aside(s->vmm, s->core->reserved_bytes);
    assert(!error); /* the record said how much is free, and nobody has asked since */
    (void)error;
    return s->core->reserved_bytes < info.aside_bytes;
}

static int apply(struct service *s, struct record *record, struct outcome *outcome)
{
    record->free_bytes = vmm_get_free(s->vmm);
    record->now_ms = service_now(s);
    record->wall_ms = s->host.wall_ms(s->host.context);
    memset(outcome, 0, sizeof *outcome);
    return core_apply(s->core, record, outcome);
}

static void handle_effects(struct service *s)
{
    struct effect effect;
    bool is_freed = settle_account(s);
    /* An effect's answer may apply further records, which drain the queue as well: that is fine,
     * each effect is taken exactly once and in order. */
    while (core_next_effect(s->core, &effect))
        handle_effect(s, &effect);
    piece_free_gathered(s);
    if (is_freed)
        service_on_memory(s);
    service_arm_timer(s);
}

int service_apply_record(struct service *s, struct record *record, struct outcome *outcome)
{
    struct outcome ignored;
    int error = apply(s, record, outcome ? outcome : &ignored);
    handle_effects(s);
    return error;
}

int service_apply_asking(struct service *s, struct record *record, struct outcome *outcome,
                         struct parked *parked, uint64_t *waiter)
{
    int error = apply(s, record, outcome);
    *waiter = error ? 0 : outcome->waiter;
    if (*waiter)
        error = service_park(s, parked, *waiter);
    handle_effects(s);
    return error;
}

void service_on_memory(struct service *s)
{
    struct record record = {.type = RECORD_TIME};
    service_retry_spools(s);
    service_retry_allocs(s);
    if (s->core->reserving > 0)
        service_apply_record(s, &record, NULL);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void service_arm_timer(struct service *s)
{
    uint64_t at = core_next_moment(s->core, service_now(s));
    at = earlier(at, service_parked_moment(s));
    at = earlier(at, service_alloc_moment(s));
    at = earlier(at, service_bulk_moment(s));
    s->host.set_timer(s->host.context, at);
}

void service_on_timer(struct service *s)
{
    uint64_t now_ms = service_now(s);
    struct record record = {.type = RECORD_TIME};
    service_expire_parked(s, now_ms);
    service_expire_allocs(s, now_ms);
    service_wake_bulks(s);
    service_apply_record(s, &record, NULL);
}

void service_on_idle(struct service *s)
{
    service_apply_slices(s);
}

/* A pool that cannot start a thread does not lose the work: the loop does it, slowly but surely. */
int service_submit(struct service *s, enum service_pool pool, struct job *job)
{
    s->numbers.jobs_in_flight++;
    int error = s->host.submit(s->host.context, pool, job);
    if (error)
        s->numbers.jobs_in_flight--;
    return error;
}

/* ---- what sessions have in flight ------------------------------------------------------------ */

struct run *service_get_run(struct service *s, uint64_t session)
{
    struct run *run = idvec_find(&s->runs, session);
    if (run)
        return run;
    run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->id = session;
    if (idvec_insert(&s->runs, run)) {
        free(run);
        return NULL;
    }
    return run;
}

int service_begin_use_while_closing(struct service *s, uint64_t session)
{
    if (!core_find_session(s->core, session))
        return -ESTALE;
    struct run *run = service_get_run(s, session);
    if (!run)
        return -ENOMEM;
    run->running++;
    run->flushed = false;
    return 0;
}

int service_begin_use(struct service *s, uint64_t session)
{
    const struct run *run = idvec_find(&s->runs, session);
    if (run && run->closing)
        return -ESTALE;
    return service_begin_use_while_closing(s, session);
}

void service_end_use(struct service *s, uint64_t session)
{
    struct run *run = idvec_find(&s->runs, session);
    if (!run || run->running == 0)
        return;
    run->running--;
    if (run->running == 0)
        service_run_endings(s, run);
}

/* ---- stores ------------------------------------------------------------------------------ */

int service_store_create(struct service *s, const char *name, const struct service_caller *caller,
                         uint32_t mode, uint64_t *id)
{
    struct record record = {.type = RECORD_STORE_CREATE,
                            .name = name,
                            .name_bytes = strlen(name),
                            .uid = caller->uid,
                            .gid = caller->gid,
                            .mode = mode & 07777};
    struct outcome outcome;
    int error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
    if (!error)
        error = service_apply_record(s, &record, &outcome);
    if (!error)
        *id = outcome.id;
    return error;
}

int service_store_remove(struct service *s, uint64_t store)
{
    struct record record = {.type = RECORD_STORE_REMOVE, .store = store};
    return service_apply_record(s, &record, NULL);
}

int service_store_rename(struct service *s, uint64_t store, const char *name, uint32_t flags)
{
    struct record record = {.type = RECORD_STORE_RENAME,
                            .store = store,
                            .name = name,
                            .name_bytes = strlen(name),
                            .flags = flags};
    return service_apply_record(s, &record, NULL);
}

int service_store_set_attr(struct service *s, uint64_t store, uint32_t which, uint32_t uid,
                           uint32_t gid, uint32_t mode)
{
    struct record record = {.type = RECORD_STORE_ATTR,
                            .store = store,
                            .flags = which,
                            .uid = uid,
                            .gid = gid,
                            .mode = mode & 07777};
    return service_apply_record(s, &record, NULL);
}

/* ---- numbers ----------------------------------------------------------------------------- */

void service_get_numbers(const struct service *s, struct service_numbers *numbers)
{
    *numbers = s->numbers;
}

uint64_t service_count_open_files(const struct service *s)
{
    return s->core->files.count;
}
