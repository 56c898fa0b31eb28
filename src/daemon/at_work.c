/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/at_work.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

void at_work_clear(struct fs_ledger *ledger)
{
    for (unsigned i = 0; i < FS_LEDGER_AT; i++)
        atomic_store(&ledger->at[i], 0);
}

uint64_t at_work_set(struct fs_ledger *ledger, uint64_t work)
{
    uint64_t former = atomic_load(&ledger->at[0]);

    if (former != work)
        atomic_store(&ledger->at[0], work);
    return former;
}

uint64_t at_work_get(const struct fs_ledger *ledger)
{
    return atomic_load(&ledger->at[0]);
}

unsigned at_work_enter(struct fs_ledger *ledger, uint64_t work)
{
    for (unsigned i = 1; work && i < FS_LEDGER_AT; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&ledger->at[i], &none, work))
            return i;
    }
    return 0;
}

void at_work_leave(struct fs_ledger *ledger, unsigned place)
{
    if (place)
        atomic_store(&ledger->at[place], 0);
}

void at_work_name(uint64_t work, char name[LOG_REQUEST_BYTES])
{
    const uint64_t pids = (UINT64_C(1) << FS_AT_PID_BITS) - 1;
    const uint64_t ops = (UINT64_C(1) << FS_AT_OP_BITS) - 1;

    if (work & FS_AT_CONNECTION)
        snprintf(name, LOG_REQUEST_BYTES, "g%" PRIu64 ".%" PRIu64, work & FS_AT_ID_MASK,
                 (work & ~FS_AT_CONNECTION) >> FS_AT_ID_BITS);
    else if (work & FS_AT_ASKER)
        snprintf(name, LOG_REQUEST_BYTES, "f%" PRIu64 ".%" PRIu64, work >> FS_AT_UID_BITS & pids,
                 work >> (FS_AT_UID_BITS + FS_AT_PID_BITS) & ops);
    else
        snprintf(name, LOG_REQUEST_BYTES, "r%" PRIu64, work);
}
