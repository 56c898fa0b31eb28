/* SPDX-License-Identifier: Apache-2.0 */
/* service - making it, applying records, effects, time, and who hears of what changed */
#include "service/discard.h"
#include "service/turns.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Is there when the mount is, and is whose the options say. */
static int create_first_store(struct service *s, const char *name)
{
    struct record record = {.type = RECORD_STORE_CREATE,
                            .name = name,
                            .name_bytes = strlen(name),
                            .uid = s->options.uid,
                            .gid = s->options.gid,
                            .mode = 0755};
    int error = s->host.get_random(s->host.context, record.bytes16, sizeof record.bytes16);
    return error ? error : service_apply_record(s, &record, NULL);
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
                                        .granularity_bytes = info.granularity_bytes,
                                        .admin_uid = options->admin_uid};
    service_init_bounds(s);
    turns_init(s);
    int error = core_new(&core_options, &s->core);
    if (!error)
        error = create_first_store(s, "weights");
    if (!error && options->has_kv_cache)
        error = create_first_store(s, "kv_cache");
    if (error) {
        service_free(s);
        return error;
    }
    *service = s;
    return 0;
}

void service_stop(struct service *s)
{
    s->ending = true;
}

void service_free(struct service *s)
{
    if (!s)
        return;
    service_stop(s);
    service_drop_parked(s);
    service_drop_allocs(s);
    service_drop_spools(s);
    service_drop_bulks(s);
    service_drop_measuring(s);
    for (size_t i = 0; i < s->pieces.count; i++) {
        struct piece *piece = s->pieces.items[i];
        vmm_destroy(s->vmm, &piece->memory);
        free(piece);
    }
    for (size_t i = 0; i < s->in_flights.count; i++)
        service_drop_in_flight(s, s->in_flights.items[i]);
    idvec_free(&s->pieces);
    idvec_free(&s->in_flights);
    idvec_free(&s->parked);
    service_free_watches(s);
    turns_free(s);
    service_free_bounds(s);
    core_free(s->core);
    free(s);
}

const struct core *service_get_core(const struct service *s)
{
    return s->core;
}

void service_get_device(const struct service *s, struct vmm_info *info)
{
    vmm_get_info(s->vmm, info);
}

uint64_t service_wait_max_ms(const struct service_request *request)
{
    return request->wait_max_ms ? request->wait_max_ms : UINT64_MAX;
}

/* ---- who wants to hear of changes --------------------------------------------------------- */

void service_observe(struct service *s, struct service_observer *observer)
{
    observer->next = s->observers;
    s->observers = observer;
}

void service_unobserve(struct service *s, struct service_observer *observer)
{
    struct service_observer **link = &s->observers;
    while (*link && *link != observer)
        link = &(*link)->next;
    if (*link)
        *link = observer->next;
}

static void tell_state(struct service *s, uint64_t store)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_state)
            at->on_state(at->context, store);
}

static void tell_event(struct service *s)
{
    for (struct service_observer *at = s->observers; at; at = at->next)
        if (at->on_event)
            at->on_event(at->context);
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
        tell_state(s, effect->store);
        break;
    case EFFECT_EVENT:
        tell_event(s);
        break;
    case EFFECT_SESSION_OVER:
        service_on_session_over(s, effect);
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

/* A bound that the record met is told after its effects: telling it is another record. */
static void note_bound(struct service *s, const struct record *record,
                       const struct outcome *outcome, int error)
{
    const struct core_file *file = core_find_file(s->core, record->file);
    uint64_t store = record->store;
    if (!error || outcome->bound == CORE_BOUND_NONE)
        return;
    if (store == 0 && file)
        store = file->store;
    service_note_bound(s, core_bound_name(outcome->bound), store, outcome->bound_uid, error);
}

static void handle_effects(struct service *s)
{
    struct effect effect;
    bool is_freed = settle_account(s);
    /* An effect's answer may apply further records, which take of the queue as well: that is fine,
     * each effect is taken exactly once and in order. */
    while (core_next_effect(s->core, &effect))
        handle_effect(s, &effect);
    piece_free_doomed(s);
    service_discard_garbage(s);
    if (is_freed)
        service_on_memory(s);
    service_arm_timer(s);
}

int service_apply_record(struct service *s, struct record *record, struct outcome *outcome)
{
    struct outcome ignored;
    if (!outcome)
        outcome = &ignored;
    int error = apply(s, record, outcome);
    handle_effects(s);
    note_bound(s, record, outcome, error);
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
    note_bound(s, record, outcome, error);
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
    at = earlier(at, service_measure_moment(s));
    s->host.set_timer(s->host.context, at);
}

void service_on_timer(struct service *s)
{
    uint64_t now_ms = service_now(s);
    struct record record = {.type = RECORD_TIME};
    service_expire_parked(s, now_ms);
    service_expire_allocs(s, now_ms);
    service_expire_measuring(s, now_ms);
    service_wake_bulks(s);
    service_apply_record(s, &record, NULL);
}

void service_on_idle(struct service *s)
{
    service_apply_slices(s);
}

int service_submit(struct service *s, enum service_pool pool, struct job *job)
{
    if (s->ending)
        return -ENOMEM;
    s->numbers.jobs_in_flight++;
    int error = s->host.submit(s->host.context, pool, job);
    if (error)
        s->numbers.jobs_in_flight--;
    return error;
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
