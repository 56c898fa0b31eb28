/* SPDX-License-Identifier: Apache-2.0 */
/* settle - the end of a step of the loop: arms the timer if the step changed a deadline */
#include "service/service_internal.h"

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void arm_timer(struct service *s)
{
    uint64_t at = core_next_moment(s->core, service_now(s));
    at = earlier(at, service_parked_moment(s));
    at = earlier(at, service_alloc_moment(s));
    at = earlier(at, service_bulk_moment(s));
    at = earlier(at, service_measure_moment(s));
    at = earlier(at, service_awaiting_moment(s));
    at = earlier(at, service_promotion_moment(s));
    at = earlier(at, service_waiting_moment(s));
    at = earlier(at, service_watch_moment(s));
    s->host.set_timer(s->host.context, at);
}

void service_end_step(struct service *s)
{
    if (!s->is_unsettled)
        return;
    s->is_unsettled = false;
    arm_timer(s);
}
