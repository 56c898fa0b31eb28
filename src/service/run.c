/* SPDX-License-Identifier: Apache-2.0 */
/* run - what sessions have in flight: no session ends before it */
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>

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

bool service_is_closing(const struct service *s, uint64_t session)
{
    const struct core_session *held = core_find_session(s->core, session);
    const struct run *run = idvec_find(&s->runs, session);
    return (held && held->ending) || (run && run->closing);
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
    if (service_is_closing(s, session))
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
