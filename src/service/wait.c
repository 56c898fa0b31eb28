/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wait - requests that wait behind a waiter of the core: parked, granted, refused, interrupted
 *
 * A waiter is part of the state, the request behind it is not: the waiter's number finds it.
 */
#include "service/sessions.h"

#include "service/account.h"
#include "service/parked.h"
#include "service/summing.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void parked_free(struct service *s, struct parked *parked)
{
    if (!parked)
        return;
    deadline_clear(s, &parked->deadline);
    free((char *)parked->create);
    free(parked);
}

/* `how` has the work for the grant: acquire, truncate, create (copied). NULL: no memory */
static struct parked *parked_new(struct service *s, struct service_request *request,
                                 const struct parked *how)
{
    struct parked *parked = malloc(sizeof *parked);
    if (!parked)
        return NULL;
    *parked = *how;
    parked->request = request;
    parked->create = how->create ? strdup(how->create) : NULL;
    if (!how->create || parked->create)
        return parked;
    parked_free(s, parked);
    return NULL;
}

/* The effect that ends a wait answers its request, if the wait is over already. */
void service_end_wait(struct service *s, struct record *record)
{
    struct effect refused = {
        .type = EFFECT_REFUSED, .waiter = record->waiter, .error = -(int)record->refusal};
    if (!core_find_waiter(s->core, record->waiter))
        return;
    record->type = RECORD_WAIT_END;
    service_apply_record(s, record, NULL);
    service_on_refused(s, &refused);
}

static void end_wait(struct service *s, uint64_t waiter, int error, uint32_t flags)
{
    struct record record = {.waiter = waiter, .refusal = (uint64_t)-error, .flags = flags};
    service_end_wait(s, &record);
}

static void expire(struct service *s, struct deadline *deadline)
{
    const struct parked *parked = CONTAINER_OF(deadline, struct parked, deadline);
    /* The kernel would end the mount for a request that waits longer. The library asks again. */
    end_wait(s, parked->id, parked->acquire ? -EINTR : -ETIMEDOUT, CORE_WAIT_KEEP);
}

/* -ENOMEM */
static int park(struct service *s, struct parked *parked, uint64_t waiter)
{
    parked->id = waiter;
    parked->since_wall_ms = core_find_waiter(s->core, waiter)->since_wall_ms;
    int error = idvec_insert(&s->parked, parked);
    if (error)
        return error;
    parked->request->parked = parked;
    parked->deadline.pass = expire;
    deadline_set(s, &parked->deadline,
                 service_deadline_ms(service_now(s), service_wait_max_ms(parked->request)));
    return 0;
}

static void count_wait(struct service *s, enum lock_mode mode, uint64_t waited_ms)
{
    struct service_counts *counts = s->counts;
    histogram_add(mode == LOCK_MODE_RO ? &counts->read_waits : &counts->write_waits,
                  waited_ms * 1000);
}

bool service_ask(struct service *s, struct record *record, const struct parked *how,
                 struct service_request *request, struct outcome *outcome, int *error)
{
    struct parked *parked = parked_new(s, request, how);
    uint64_t waiter = 0;
    *error = parked ? s->host.get_random(s->host.context, record->bytes16, sizeof record->bytes16)
                    : -ENOMEM;
    if (!*error)
        *error = service_apply_record(s, record, outcome);
    if (!*error && outcome->session)
        count_wait(s, outcome->mode, 0);
    if (!*error && outcome->waiter) {
        waiter = outcome->waiter;
        *error = park(s, parked, waiter);
    }
    if (waiter == 0) {
        parked_free(s, parked);
        return true;
    }
    if (!*error)
        return false;
    end_wait(s, waiter, *error, 0);
    parked_free(s, parked);
    return true;
}

void service_on_refused(struct service *s, const struct effect *effect)
{
    struct parked *parked = idvec_remove(&s->parked, effect->waiter);
    if (!parked)
        return;
    struct service_request *request = parked->request;
    service_unwatch(s, parked->watched);
    parked_free(s, parked);
    service_answer(request, effect->error, NULL);
}

void service_on_granted(struct service *s, const struct effect *effect)
{
    struct parked *parked = idvec_remove(&s->parked, effect->waiter);
    if (!parked) { /* no request: the core grants no place that is only kept, so this is a bug */
        service_close(s, effect->file);
        return;
    }
    struct service_request *request = parked->request;
    struct service_answer answer = {0};
    int error = 0;
    uint64_t now_ms = s->host.wall_ms(s->host.context);
    service_fill_granted(s, effect->file, effect->session, &answer);
    if (answer.mode != LOCK_MODE_NONE)
        count_wait(s, answer.mode, number_subtract(now_ms, parked->since_wall_ms));
    if (parked->acquire)
        service_check_owner(s, effect->session);
    const struct core_file *file = core_find_file(s->core, effect->file);
    if (parked->truncate && file)
        error = service_truncate_opened(s, file);
    if (error)
        service_close(s, effect->file);
    else if (parked->create)
        error = service_create_granted(s, parked->create, &answer);
    parked_free(s, parked);
    service_answer(request, error, &answer);
}

void service_drop_parked(struct service *s)
{
    while (s->parked.count > 0) {
        struct parked *parked = s->parked.items[s->parked.count - 1];
        struct service_request *request = parked->request;
        idvec_remove(&s->parked, parked->id);
        parked_free(s, parked);
        service_answer(request, -ENOTCONN, NULL);
    }
}

int service_cancel_wait(struct service *s, uint64_t file)
{
    for (size_t i = 0; i < s->core->waiters.count; i++) {
        const struct core_waiter *waiter = s->core->waiters.items[i];
        if (waiter->file != file)
            continue;
        end_wait(s, waiter->id, -ECANCELED, 0);
        return 0;
    }
    return -ENOENT;
}

void service_interrupt(struct service *s, struct service_request *request)
{
    if (request->alloc) {
        service_cancel_alloc(s, request->alloc, -EINTR);
        return;
    }
    if (request->sums) {
        service_cancel_sum(s, request, -EINTR);
        return;
    }
    const struct parked *parked = request->parked;
    if (!parked)
        return;
    const struct core_waiter *waiter = core_find_waiter(s->core, parked->id);
    /* A grace period is too short to keep a place for. */
    uint32_t keep = waiter && (waiter->flags & CORE_OPEN_GRACE) ? 0 : CORE_WAIT_KEEP;
    end_wait(s, parked->id, -EINTR, keep);
}
