/* SPDX-License-Identifier: Apache-2.0 */
/* reserved - the account of a session in a record, and the memory that comes back to it */
#include "service/account.h"

struct service_reserved service_get_reserved(const struct core_session *held)
{
    return (struct service_reserved){.aside_bytes = held->reserved_bytes,
                                     .due_bytes = held->due_bytes,
                                     .making_bytes = held->making_bytes,
                                     .drawn_bytes = held->drawn_bytes};
}

int service_record_reserved(struct service *s, uint64_t session,
                            const struct service_reserved *reserved)
{
    return service_record(s, .type = RECORD_RESERVE, .session = session,
                          .reserved_bytes = reserved->aside_bytes, .due_bytes = reserved->due_bytes,
                          .making_bytes = reserved->making_bytes,
                          .drawn_bytes = reserved->drawn_bytes);
}

void service_end_making(struct service *s, uint64_t session, uint64_t made, uint64_t drawn,
                        uint64_t refund)
{
    const struct core_session *held = core_find_session(s->core, session);
    if (drawn + made == 0 || !held || held->mode != LOCK_MODE_RW)
        return;
    struct service_reserved reserved = service_get_reserved(held);
    reserved.due_bytes += refund;
    reserved.making_bytes -= number_smaller(made, held->making_bytes);
    reserved.drawn_bytes -= number_smaller(drawn, held->drawn_bytes);
    service_record_reserved(s, session, &reserved);
}

void service_unreserve(struct service *s, uint64_t store, uint64_t bytes)
{
    const struct core_session *writer = core_get_writer(s->core, store);
    uint64_t due_bytes = writer ? number_smaller(writer->due_bytes, bytes) : 0;
    vmm_unreserve(s->vmm, bytes);
    if (due_bytes == 0)
        return;
    struct service_reserved reserved = service_get_reserved(writer);
    reserved.aside_bytes += due_bytes;
    reserved.due_bytes -= due_bytes;
    service_record_reserved(s, writer->id, &reserved);
}
