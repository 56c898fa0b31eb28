/* SPDX-License-Identifier: Apache-2.0 */
/* Creates, changes and removes pools; moves stores between them and pins stores. See pool.h */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>

#define SET_FLAGS (CORE_POOL_MIN | CORE_POOL_MAX | CORE_POOL_SLOTS | CORE_POOL_CLASS | CORE_POOL_SM)

static int copy_pool_name(const struct record *record, char name[256])
{
    int error = apply_copy_name(record, name);

    if (error < 0)
        return error;
    return core_is_pool_name(name) ? 0 : -EINVAL;
}

/* Sets the values that the record has; the others stay. */
static int change_budget(const struct record *record, struct core_pool *budget)
{
    if (record->flags & CORE_POOL_MIN)
        budget->min_bytes = record->min_bytes;
    if (record->flags & CORE_POOL_MAX)
        budget->max_bytes = record->max_bytes;
    if (record->flags & CORE_POOL_SLOTS)
        budget->slots = record->slots;
    if (record->flags & CORE_POOL_CLASS && record->kind >= POOL_CLASS_COUNT)
        return -EINVAL;
    if (record->flags & CORE_POOL_CLASS)
        budget->class = (enum pool_class)record->kind;
    if (record->flags & CORE_POOL_SM)
        budget->sm_percent = record->mode;
    return budget->sm_percent == 0 || budget->sm_percent > 100 || budget->slots > CORE_MOST_SLOTS ||
                   budget->min_bytes > INT64_MAX || budget->min_bytes > budget->max_bytes
               ? -EINVAL
               : 0;
}

/* True if the sum of all minimums stays in range with this budget. */
static bool minimums_fit(const struct core *core, const struct core_pool *budget)
{
    uint64_t left_bytes = INT64_MAX - budget->min_bytes;

    for (size_t i = 0; i < core->pools.items.count; i++) {
        const struct core_pool *pool = core->pools.items.items[i];

        if (pool->id == budget->id)
            continue;
        if (pool->min_bytes > left_bytes)
            return false;
        left_bytes -= pool->min_bytes;
    }
    return true;
}

static int remove_pool(struct apply *apply, const char *name)
{
    struct core *core = apply->core;
    const struct core_pool *found = core_find_pool_name(core, name);
    struct core_pool *pool = found ? core_pool(core, found->id) : NULL;

    if (!pool)
        return -ENOENT;
    if (pool->id == CORE_DEFAULT_POOL || pool->store_count > 0)
        return -EBUSY;
    core_count_pool(core, pool, -1);
    free(idvec_remove(&core->pools.items, pool->id));
    return 0;
}

int apply_pool_set(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct core_pool budget = {
        .class = POOL_CLASS_STANDARD, .sm_percent = 100, .max_bytes = CORE_NO_LIMIT};
    char name[256];
    int error = copy_pool_name(record, name);

    if (error < 0)
        return error;
    if (record->flags == CORE_POOL_REMOVE)
        return remove_pool(apply, name);
    if (record->flags & ~(uint32_t)SET_FLAGS)
        return -EINVAL;
    const struct core_pool *found = core_find_pool_name(core, name);
    if (found)
        budget = *found;
    error = change_budget(record, &budget);
    if (error < 0)
        return error;
    if (!minimums_fit(core, &budget))
        return -EINVAL;
    if (!found && core->pools.items.count >= CORE_MAX_POOLS)
        return -ENOSPC;
    struct core_pool *pool = found ? core_pool(core, found->id) : core_make_pool(core, name);
    if (!pool)
        return -ENOMEM;
    core_count_pool(core, pool, -1);
    pool->min_bytes = budget.min_bytes;
    pool->max_bytes = budget.max_bytes;
    pool->slots = budget.slots;
    pool->class = budget.class;
    pool->sm_percent = budget.sm_percent;
    core_count_pool(core, pool, 1);
    apply->out->id = pool->id;
    return 0;
}

int apply_store_pool(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_store *store = core_store(core, apply->record->store);
    char name[256];
    int error = copy_pool_name(apply->record, name);

    if (error < 0)
        return error;
    if (!store)
        return -ENOENT;
    const struct core_pool *pool = core_find_pool_name(core, name);
    if (!pool)
        return -ENOENT;
    if (pool->id == store->use.pool)
        return 0;
    uint64_t bytes = store->use.used_bytes + core_get_coming(store);
    if (bytes > 0 && bytes > core_get_pool_room(pool, NULL)) {
        apply->out->pool = pool->id;
        return -EDQUOT;
    }
    core_leave_pool(core, store);
    core_enter_pool(core, store, pool->id);
    return 0;
}

int apply_store_pin(struct apply *apply)
{
    struct core_store *store = core_store(apply->core, apply->record->store);
    bool on = apply->record->flags == CORE_PIN_ON;

    if (!store)
        return -ENOENT;
    if (apply->record->flags & ~(uint32_t)CORE_PIN_ON)
        return -EINVAL;
    if (store->use.pinned == on)
        return 0;
    store->use.pinned = on;
    core_add_event(apply, on ? CORE_EVENT_PINNED : CORE_EVENT_UNPINNED, store, NULL);
    return 0;
}
