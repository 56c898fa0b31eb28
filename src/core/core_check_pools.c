/* SPDX-License-Identifier: Apache-2.0 */
/* core_check_pools - budgets are valid and their accounts agree with the stores */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_pool(const struct core *core, const struct core_pool *pool,
                      struct failure *failure)
{
    if (!core_is_text(pool->name, sizeof pool->name) || !core_is_pool_name(pool->name) ||
        core_find_pool_name(core, pool->name) != pool ||
        (strcmp(pool->name, CORE_DEFAULT_POOL_NAME) == 0) != (pool->id == CORE_DEFAULT_POOL))
        return core_wrong(failure, "pool", pool->id, "its name is invalid or not unique");
    if ((unsigned)pool->class >= POOL_CLASS_COUNT || pool->sm_percent == 0 ||
        pool->sm_percent > 100 || pool->slots > CORE_MOST_SLOTS ||
        pool->min_bytes > pool->max_bytes || pool->min_bytes > INT64_MAX)
        return core_wrong(failure, "pool", pool->id, "its budget is invalid");
    return 0;
}

/* A store's use is the sum of its memory, its session's reservation and memory being made. */
static int check_use(const struct core *core, const struct core_store *store, uint64_t memory_bytes,
                     struct failure *failure)
{
    uint64_t used_bytes = memory_bytes, holds = 0;

    for (size_t i = 0; i < store->lock.session_count; i++) {
        const struct core_session *session = core_session(core, store->lock.sessions[i].id);

        used_bytes += session->reserved_bytes + session->making_bytes;
        holds += session->holds;
    }
    if (store->use.used_bytes != used_bytes)
        return core_wrong(failure, "store", store->id, "its count of used bytes is wrong");
    if (store->use.holds != holds)
        return core_wrong(failure, "store", store->id, "its count of holding sessions is wrong");
    return core_find_pool(core, store)
               ? 0
               : core_wrong(failure, "store", store->id, "its pool does not exist");
}

static int check_sums(const struct core *core, const struct core_pool *pool,
                      struct failure *failure)
{
    uint64_t store_count = 0, used_bytes = 0, resident = 0, coming = 0, coming_bytes = 0;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        if (store->use.pool != pool->id)
            continue;
        store_count++;
        used_bytes += store->use.used_bytes;
        resident += store->use.used_bytes > 0;
        coming += core_get_coming(store) > 0;
        coming_bytes += core_get_coming(store);
    }
    return pool->store_count == store_count && pool->used_bytes == used_bytes &&
                   pool->resident == resident && pool->coming == coming &&
                   pool->coming_bytes == coming_bytes
               ? 0
               : core_wrong(failure, "pool", pool->id, "its account of its stores is wrong");
}

static int check_stores(const struct core *core, struct failure *failure)
{
    uint64_t *bytes = calloc(core->stores.count + 1, sizeof *bytes);
    int error = 0;

    if (!bytes)
        return failure_no_memory(failure);
    for (size_t i = 0; i < core->memories.count; i++) {
        const struct core_memory *memory = core->memories.items[i];

        if (memory->tier == CORE_PLACE_DEVICE)
            bytes[core_find_index(&core->stores, memory->store)] += memory->aligned_bytes;
    }
    for (size_t i = 0; i < core->stores.count && error == 0; i++)
        error = check_use(core, core->stores.items[i], bytes[i], failure);
    if (error == 0 && bytes[core->stores.count] > 0)
        error = failure_set(failure, -EINVAL, "there is memory of a store that does not exist");
    free(bytes);
    return error;
}

int core_check_pools(const struct core *core, struct failure *failure)
{
    const struct idvec *pools = &core->pools.items;
    uint64_t unfilled_bytes = 0, before = 0;
    int error = check_stores(core, failure);

    if (error == 0 && (pools->count == 0 || pools->count > CORE_MAX_POOLS ||
                       *(const uint64_t *)pools->items[0] != CORE_DEFAULT_POOL))
        error = failure_set(failure, -EINVAL,
                            "there are too many pools, or the default pool is missing");
    for (size_t i = 0; i < pools->count && error == 0; i++) {
        const struct core_pool *pool = pools->items[i];

        if (pool->id <= before || pool->id >= core->pools.next_id)
            return core_wrong(failure, "pool", pool->id, "its number is out of order");
        before = pool->id;
        unfilled_bytes = number_add(unfilled_bytes, core_get_unfilled(pool));
        error = check_pool(core, pool, failure);
        if (error == 0)
            error = check_sums(core, pool, failure);
    }
    if (error == 0 && unfilled_bytes != core->pools.unfilled_bytes)
        error = failure_set(failure, -EINVAL, "the sum of the pools' unused minimums is wrong");
    return error;
}
