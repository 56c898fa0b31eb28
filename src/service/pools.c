/* SPDX-License-Identifier: Apache-2.0 */
#include "service/pools.h"

#include "service/parked.h"
#include "service/rights.h"

#include <errno.h>
#include <string.h>

/* Checks that the device has all guaranteed bytes. */
static int check_minimums(const struct service *s, const struct service_budget *wanted)
{
    const struct idvec *pools = &s->core->pools.items;
    uint64_t left_bytes = vmm_get_total_in(s->vmm, VMM_TIER_DEVICE);
    if (!(wanted->flags & CORE_POOL_MIN))
        return 0;
    if (wanted->min_bytes > left_bytes)
        return -ENOSPC;
    left_bytes -= wanted->min_bytes;
    for (size_t i = 0; i < pools->count; i++) {
        const struct core_pool *pool = pools->items[i];
        if (strcmp(pool->name, wanted->name) == 0)
            continue;
        if (pool->min_bytes > left_bytes)
            return -ENOSPC;
        left_bytes -= pool->min_bytes;
    }
    return 0;
}

int service_set_pool(struct service *s, uint64_t file, const struct service_budget *wanted)
{
    const struct core_file *by = core_find_file(s->core, file);
    struct record record = {.type = RECORD_POOL_SET,
                            .name = wanted->name,
                            .name_bytes = strlen(wanted->name),
                            .flags = wanted->flags,
                            .min_bytes = wanted->min_bytes,
                            .max_bytes = wanted->max_bytes,
                            .slots = wanted->slots,
                            .kind = wanted->class,
                            .mode = wanted->sm_percent};
    if (!by || !(by->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (!service_is_admin(s, by->uid))
        return -EPERM;
    record.process = by->opener;
    record.uid = by->uid;
    int error = check_minimums(s, wanted);
    if (!error)
        error = service_apply_record(s, &record, NULL);
    if (!error)
        service_note_memory(s); /* a waiter may have room now */
    return error;
}

/* Applies a change that the store's owner may make. */
static int change(struct service *s, struct record *record, const struct service_caller *caller)
{
    if (!core_find_store(s->core, record->store))
        return -ENOENT;
    if (!service_is_owner(s, record->store, caller->uid))
        return -EPERM;
    record->process = service_caller_process(caller);
    record->uid = caller->uid;
    return service_apply_record(s, record, NULL);
}

/* Budgets limit the store's owner, so administrators choose the pool. */
int service_set_store_pool(struct service *s, uint64_t store, const char *pool,
                           const struct service_caller *caller)
{
    struct record record = {
        .type = RECORD_STORE_POOL, .store = store, .name = pool, .name_bytes = strlen(pool)};
    int error = service_is_admin(s, caller->uid) ? change(s, &record, caller) : -EPERM;
    if (!error)
        service_note_memory(s);
    return error;
}

int service_set_store_pin(struct service *s, uint64_t store, bool on,
                          const struct service_caller *caller)
{
    struct record record = {
        .type = RECORD_STORE_PIN, .store = store, .flags = on ? CORE_PIN_ON : 0};
    return change(s, &record, caller);
}
