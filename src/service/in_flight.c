/* SPDX-License-Identifier: Apache-2.0 */
/* in_flight - the transfers of sessions: no session ends before them */
#include "service/ending.h"

#include <errno.h>
#include <stdlib.h>

struct in_flight *service_get_in_flight(struct service *s, uint64_t session)
{
    struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    if (in_flight)
        return in_flight;
    in_flight = calloc(1, sizeof *in_flight);
    if (!in_flight)
        return NULL;
    in_flight->id = session;
    if (idvec_insert(&s->in_flights, in_flight)) {
        free(in_flight);
        return NULL;
    }
    return in_flight;
}

bool service_is_closing(const struct service *s, uint64_t session)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    return (held && held->ending) || (in_flight && in_flight->closing);
}

static bool ends_surely(const struct ending *ending)
{
    return ending->type == ENDING_ABORT || ending->type == ENDING_CLOSE ||
           ending->type == ENDING_REVOKE || ending->type == ENDING_EXIT;
}

bool service_is_leaving(const struct service *s, uint64_t session)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    const struct ending *ending = in_flight ? in_flight->endings : NULL;
    while (ending && !ends_surely(ending))
        ending = ending->next;
    return !held || held->ending || ending;
}

int service_begin_use_while_closing(struct service *s, uint64_t session)
{
    if (!core_find_session(s->core, session))
        return -ESTALE;
    struct in_flight *in_flight = service_get_in_flight(s, session);
    if (!in_flight)
        return -ENOMEM;
    in_flight->running++;
    in_flight->flushed = false;
    return 0;
}

int service_begin_use(struct service *s, uint64_t session)
{
    if (service_is_closing(s, session))
        return -ESTALE;
    return service_begin_use_while_closing(s, session);
}

void service_end_use(struct service *s, uint64_t session)
{
    struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    if (!in_flight || in_flight->running == 0)
        return;
    in_flight->running--;
    if (in_flight->running == 0 && (in_flight->endings || !core_find_session(s->core, session)))
        in_flight->is_due = s->step.has_endings = s->step.is_unsettled = true;
}

void service_on_seal_failed(struct service *s, uint64_t session, int error)
{
    struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    if (in_flight && in_flight->endings && in_flight->endings->state != ENDING_WAITS &&
        !in_flight->endings->error)
        in_flight->endings->error = error;
}
