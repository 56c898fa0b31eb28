/* SPDX-License-Identifier: Apache-2.0 */
/* drain - a mount that lets nobody in any more, and in the end holds no memory */
#include "service/service_internal.h"

#include <errno.h>

int service_drain(struct service *s, bool on)
{
    struct record record = {.type = RECORD_DRAIN, .flags = on ? CORE_DRAIN_ON : 0};
    return service_apply_record(s, &record, NULL);
}

const struct core_session *service_find_open_session(const struct service *s)
{
    for (size_t i = 0; i < s->core->sessions.count; i++) {
        const struct core_session *session = s->core->sessions.items[i];
        const struct run *run = idvec_find(&s->runs, session->id);
        if (!run || !run->closing)
            return session;
    }
    return NULL;
}

void service_revoke_all(struct service *s)
{
    const struct core_session *session;
    /* One that has transfers running ends after them, and is closing meanwhile. */
    while ((session = service_find_open_session(s)) != NULL) {
        if (service_revoke(s, session->store, session->id, false))
            return;
    }
}

int service_drain_end(struct service *s, uint64_t *left)
{
    struct record record = {.type = RECORD_DRAIN, .flags = CORE_DRAIN_DROP};
    struct vmm_info info;
    int error = s->core->draining ? service_apply_record(s, &record, NULL) : -ECANCELED;
    vmm_get_info(s->vmm, &info);
    *left = error ? s->core->sessions.count : info.used_bytes;
    return !error && info.used_bytes > 0 ? -EAGAIN : error;
}
