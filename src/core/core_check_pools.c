/* SPDX-License-Identifier: Apache-2.0 */
/* core_check_pools - budgets are valid and their accounts agree with the stores */
#include "core/core_check.h"

#include <stdlib.h>
#include <string.h>

/* A store's use is the sum of its memory, its session's reservation and memory being made. */
static int check_use(struct check *check, const void *item)
{
    const struct core_store *store = item;
    const struct core *core = check->core;
    uint64_t used_bytes = check->memory_bytes[check->index], holds = 0;

    for (size_t i = 0; i < store->lock.session_count; i++) {
        const struct core_session *session = core_session(core, store->lock.sessions[i].id);

        used_bytes += session->reserved_bytes + session->making_bytes;
        holds += session->holds;
    }
    if (store->use.used_bytes != used_bytes)
        return core_wrong(check, "its count of used bytes is wrong");
    if (store->use.holds != holds)
        return core_wrong(check, "its count of holding sessions is wrong");
    return core_find_pool(core, store) ? 0 : core_wrong(check, "its pool does not exist");
}

static int check_sums(const struct check *check, const struct core_pool *pool)
{
    const struct core *core = check->core;
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
               : core_wrong(check, "its account of its stores is wrong");
}

static int check_pool(struct check *check, const void *item)
{
    const struct core_pool *pool = item;

    check->unfilled_bytes = number_add(check->unfilled_bytes, core_get_unfilled(pool));
    if (!core_is_text(pool->name, sizeof pool->name) || !core_is_pool_name(pool->name) ||
        core_find_pool_name(check->core, pool->name) != pool ||
        (strcmp(pool->name, CORE_DEFAULT_POOL_NAME) == 0) != (pool->id == CORE_DEFAULT_POOL))
        return core_wrong(check, "its name is invalid or not unique");
    if ((unsigned)pool->class >= POOL_CLASS_COUNT || pool->sm_percent == 0 ||
        pool->sm_percent > 100 || pool->slots > CORE_MOST_SLOTS ||
        pool->min_bytes > pool->max_bytes || pool->min_bytes > INT64_MAX)
        return core_wrong(check, "its budget is invalid");
    return check_sums(check, pool);
}

/* Also checks that each memory is of a store. */
static int check_stores(struct check *check)
{
    const struct core *core = check->core;
    uint64_t *bytes = calloc(core->stores.count + 1, sizeof *bytes);

    if (!bytes)
        return failure_no_memory(check->failure);
    for (size_t i = 0; i < core->memories.count; i++) {
        const struct core_memory *memory = core->memories.items[i];

        if (memory->tier == CORE_PLACE_DEVICE)
            bytes[core_find_index(&core->stores, memory->store)] += memory->aligned_bytes;
    }
    check->memory_bytes = bytes;
    int error = core_check_each(check, "store", &core->stores, core->next_id, check_use);
    if (error == 0 && bytes[core->stores.count] > 0)
        error = core_wrong(check, "there is memory of a store that does not exist");
    free(bytes);
    return error;
}

int core_check_pools(struct check *check)
{
    const struct core *core = check->core;
    const struct idvec *pools = &core->pools.items;
    int error = check_stores(check);

    if (error == 0 && (pools->count == 0 || pools->count > CORE_MAX_POOLS ||
                       *(const uint64_t *)pools->items[0] != CORE_DEFAULT_POOL))
        error = core_wrong(check, "there are too many pools, or the default pool is missing");
    if (error == 0)
        error = core_check_each(check, "pool", pools, core->pools.next_id, check_pool);
    if (error == 0 && check->unfilled_bytes != core->pools.unfilled_bytes)
        error = core_wrong(check, "the sum of the pools' unused minimums is wrong");
    return error;
}
