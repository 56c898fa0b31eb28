/* SPDX-License-Identifier: Apache-2.0 */
/*
 * backoff - what failed a moment ago and is not tried again for a while
 *
 * One table for all reasons. Beyond so many rows the store whose back-off ends first is forgotten,
 * and tried again sooner. When one is over the end of a step plans anew.
 */
#include "service/service_internal.h"

/* SERVICE_BACKOFFS: there is none. */
static unsigned find(const struct service *s, enum backoff_reason reason, uint64_t store)
{
    unsigned at = 0;
    while (at < SERVICE_BACKOFFS &&
           (s->backoffs[at].until_ms == 0 || s->backoffs[at].reason != reason ||
            s->backoffs[at].store != store))
        at++;
    return at;
}

/* A row that is over, or else that of the store whose back-off ends first. */
static unsigned choose_row(const struct service *s)
{
    uint64_t now_ms = service_now(s), first_ms = UINT64_MAX;
    unsigned chosen = 0;
    for (unsigned i = 0; i < SERVICE_BACKOFFS; i++) {
        uint64_t until_ms = s->backoffs[i].until_ms;
        if (until_ms >= first_ms || (until_ms > now_ms && s->backoffs[i].store == 0))
            continue;
        first_ms = until_ms;
        chosen = i;
    }
    return chosen;
}

static void plan_again(struct service *s, struct deadline *deadline)
{
    s->is_unsettled = true;
    deadline_set(s, deadline, service_backoff_moment(s));
}

void service_back_off(struct service *s, enum backoff_reason reason, uint64_t store, uint64_t ms)
{
    unsigned at = find(s, reason, store);
    if (at == SERVICE_BACKOFFS)
        at = choose_row(s);
    s->backoffs[at] =
        (struct backoff){.reason = reason, .store = store, .until_ms = service_now(s) + ms};
    s->backoff_over.pass = plan_again;
    deadline_bring_forward(s, &s->backoff_over, s->backoffs[at].until_ms);
}

bool service_is_backed_off(const struct service *s, enum backoff_reason reason, uint64_t store)
{
    unsigned at = find(s, reason, store);
    return at < SERVICE_BACKOFFS && s->backoffs[at].until_ms > service_now(s);
}

uint64_t service_backoff_moment(const struct service *s)
{
    uint64_t now_ms = service_now(s), at_ms = UINT64_MAX;
    for (unsigned i = 0; i < SERVICE_BACKOFFS; i++) {
        uint64_t until_ms = s->backoffs[i].until_ms;
        if (until_ms > now_ms && until_ms < at_ms)
            at_ms = until_ms;
    }
    return at_ms;
}
