/* SPDX-License-Identifier: Apache-2.0 */
/*
 * passed_over - stores that could not leave the device, and are not chosen for a while
 *
 * So that one that cannot leave keeps nobody else from it, and is not tried again and again. Beyond
 * so many the oldest is forgotten, and tried again sooner.
 */
#include "service/service_internal.h"

#define PASSED_OVER_MS 500u

void service_pass_over(struct service *s, uint64_t store)
{
    s->passed_over[s->next_passed_over] =
        (struct passed_over){.store = store, .until_ms = service_now(s) + PASSED_OVER_MS};
    s->next_passed_over = (s->next_passed_over + 1) % SERVICE_PASSED_OVER;
}

bool service_is_passed_over(const struct service *s, uint64_t store)
{
    uint64_t now_ms = service_now(s);
    for (unsigned i = 0; i < SERVICE_PASSED_OVER; i++) {
        if (s->passed_over[i].store == store && s->passed_over[i].until_ms > now_ms)
            return true;
    }
    return false;
}

uint64_t service_passed_over_moment(const struct service *s)
{
    uint64_t now_ms = service_now(s), at_ms = UINT64_MAX;
    for (unsigned i = 0; i < SERVICE_PASSED_OVER; i++) {
        uint64_t until_ms = s->passed_over[i].until_ms;
        if (until_ms > now_ms && until_ms < at_ms)
            at_ms = until_ms;
    }
    return at_ms;
}
