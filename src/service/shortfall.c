/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shortfall - memory that the account had and the device had not, for other programs hold it
 *
 * Its operation tries again now and then; memory of idle stores would do as well (evict.c).
 */
#include "service/account.h"

void service_note_shortfall(struct service *s, uint64_t store, uint64_t bytes)
{
    struct vmm_info info;
    vmm_get_info(s->vmm, &info); /* measured when making the memory failed */
    uint64_t coming_bytes = s->numbers.freeing_bytes + (info.knows_others ? info.free_bytes : 0);
    s->shortfall.store = store;
    s->shortfall.bytes = bytes > coming_bytes ? bytes - coming_bytes : 0;
    s->step.is_unsettled = true;
}
