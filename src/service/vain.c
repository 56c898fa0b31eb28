/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vain - choices of who leaves the device that found nobody
 *
 * At the end of each step the service looks at the waiters for memory, and a choice looks at every
 * store. So one that was vain is not made again until something has changed of what it was made
 * from: a record, what is free, or the end of somebody's stay. Beyond so many the oldest is
 * forgotten, and made again.
 */
#include "service/service_internal.h"

static uint64_t get_free(const struct service *s)
{
    return vmm_get_free(s->vmm) + s->numbers.freeing_bytes;
}

void service_note_vain(struct service *s, uint64_t store, uint64_t bytes)
{
    s->vain[s->next_vain] = (struct vain_choice){.store = store,
                                                 .bytes = bytes,
                                                 .free_bytes = get_free(s),
                                                 .until_ms = service_backoff_moment(s)};
    s->next_vain = (s->next_vain + 1) % SERVICE_VAIN;
}

bool service_is_vain(const struct service *s, uint64_t store, uint64_t bytes)
{
    uint64_t now_ms = service_now(s), free_bytes = get_free(s);
    for (unsigned i = 0; i < SERVICE_VAIN; i++) {
        const struct vain_choice *vain = &s->vain[i];
        if (vain->store == store && vain->bytes == bytes && vain->free_bytes == free_bytes &&
            vain->until_ms > now_ms)
            return true;
    }
    return false;
}

void service_forget_vain(struct service *s)
{
    for (unsigned i = 0; i < SERVICE_VAIN; i++)
        s->vain[i].store = 0;
}

/* Of those that come often: most others change who may go, or what there is. */
static bool may_change_choices(const struct service *s, const struct record *record,
                               size_t waiters_before)
{
    switch (record->type) {
    case RECORD_TIME: /* forgets waiters; what it grants had waited */
        return s->core->waiters.count != waiters_before;
    case RECORD_FILE_OPEN:
    case RECORD_GATHER:
    case RECORD_BOUND:
    case RECORD_OVER_QUOTA:
    case RECORD_OUT_OF_MEMORY:
    case RECORD_ENTRY_PUT:
    case RECORD_ENTRY_PUT_MANY:
        return false;
    default:
        return true;
    }
}

bool service_look_for_changes(struct service *s, const struct record *record, size_t waiters_before)
{
    bool may_change = may_change_choices(s, record, waiters_before);
    if (may_change)
        service_forget_vain(s);
    return may_change;
}
