/* SPDX-License-Identifier: Apache-2.0 */
/* reserved - what a session has set aside, as a record says it, and what comes back to it */
#include "service/service_internal.h"

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

int service_record_reserved(struct service *s, const struct core_session *held,
                            uint64_t reserved_bytes, uint64_t due_bytes, uint64_t making_bytes)
{
    struct record record = {.type = RECORD_RESERVE,
                            .session = held->id,
                            .size_bytes = reserved_bytes,
                            .count = due_bytes,
                            .offset = making_bytes};
    return service_apply_record(s, &record, NULL);
}

void service_undraw(struct service *s, uint64_t session, uint64_t drawn, uint64_t made)
{
    const struct core_session *held = core_find_session(s->core, session);
    if (drawn + made > 0 && held && held->mode == LOCK_MODE_RW)
        service_record_reserved(s, held, held->reserved_bytes, held->due_bytes + drawn,
                                held->making_bytes - smaller(made, held->making_bytes));
}

void service_unreserve(struct service *s, uint64_t store, uint64_t bytes)
{
    const struct core_session *writer = core_get_writer(s->core, store);
    uint64_t due_bytes = writer ? smaller(writer->due_bytes, bytes) : 0;
    vmm_unreserve(s->vmm, bytes);
    if (due_bytes > 0)
        service_record_reserved(s, writer, writer->reserved_bytes + due_bytes,
                                writer->due_bytes - due_bytes, writer->making_bytes);
}
