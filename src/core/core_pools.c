/* SPDX-License-Identifier: Apache-2.0 */
/* The pools' use of the device, and sessions that hold a store. See pool.h */
#include "core/core_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const class_names[POOL_CLASS_COUNT] = {
    [POOL_CLASS_BATCH] = "batch",
    [POOL_CLASS_STANDARD] = "standard",
    [POOL_CLASS_HIGH] = "high",
    [POOL_CLASS_CRITICAL] = "critical",
};

const char *core_pool_class_name(enum pool_class class)
{
    return class_names[class];
}

struct core_pool *core_pool(const struct core *core, uint64_t id)
{
    return idvec_find(&core->pools.items, id);
}

const struct core_pool *core_find_pool(const struct core *core, const struct core_store *store)
{
    return core_pool(core, store->use.pool);
}

const struct core_pool *core_find_pool_name(const struct core *core, const char *name)
{
    for (size_t i = 0; i < core->pools.items.count; i++) {
        const struct core_pool *pool = core->pools.items.items[i];

        if (strcmp(pool->name, name) == 0)
            return pool;
    }
    return NULL;
}

/* One word of printable ASCII, so that a line of `pools` is not ambiguous. */
bool core_is_pool_name(const char *name)
{
    size_t bytes = strnlen(name, CORE_POOL_NAME_BYTES);

    if (bytes == 0 || bytes == CORE_POOL_NAME_BYTES || name[0] == '-' || name[0] == '#')
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] <= ' ' || name[i] > '~' || strchr("\"'\\=", name[i]))
            return false;
    }
    return true;
}

struct core_pool *core_make_pool(struct core *core, const char *name)
{
    struct core_pool *pool = calloc(1, sizeof *pool);

    if (!pool)
        return NULL;
    pool->id = core->pools.next_id;
    memcpy(pool->name, name, strlen(name) + 1);
    pool->class = POOL_CLASS_STANDARD;
    pool->sm_percent = 100;
    pool->max_bytes = CORE_NO_LIMIT;
    if (idvec_append(&core->pools.items, pool) < 0) {
        free(pool);
        return NULL;
    }
    core->pools.next_id++;
    return pool;
}

int core_pools_init(struct core *core)
{
    core->pools.next_id = CORE_DEFAULT_POOL;
    return core_make_pool(core, CORE_DEFAULT_POOL_NAME) ? 0 : -ENOMEM;
}

/* ---- use ------------------------------------------------------------------------------------ */

/* Returns the part of `most` that is unused once coming_bytes have arrived. */
static uint64_t get_rest(const struct core_pool *pool, uint64_t most, uint64_t coming_bytes)
{
    uint64_t taken_bytes = number_add(pool->used_bytes, coming_bytes);

    return taken_bytes < most ? most - taken_bytes : 0;
}

uint64_t core_get_unfilled(const struct core_pool *pool)
{
    return get_rest(pool, pool->min_bytes, pool->coming_bytes);
}

void core_count_pool(struct core *core, struct core_pool *pool, int sign)
{
    uint64_t unfilled_bytes = core_get_unfilled(pool);

    core->pools.unfilled_bytes += sign > 0 ? unfilled_bytes : -unfilled_bytes;
}

static void set_used(struct core *core, struct core_store *store, uint64_t used_bytes)
{
    struct core_pool *pool = core_pool(core, store->use.pool);

    core_count_pool(core, pool, -1);
    pool->resident -= store->use.used_bytes > 0;
    pool->used_bytes -= store->use.used_bytes;
    store->use.used_bytes = used_bytes;
    pool->used_bytes += used_bytes;
    pool->resident += used_bytes > 0;
    core_count_pool(core, pool, 1);
}

void core_use_more(struct core *core, struct core_store *store, uint64_t bytes)
{
    if (bytes > 0)
        set_used(core, store, store->use.used_bytes + bytes);
}

void core_use_less(struct core *core, struct core_store *store, uint64_t bytes)
{
    if (bytes > 0)
        set_used(core, store, store->use.used_bytes - bytes);
}

uint64_t core_get_coming(const struct core_store *store)
{
    const struct core_move *move = &store->places.move;

    return move->id != 0 && move->to == CORE_PLACE_DEVICE ? layout_total_bytes(store->fixed) : 0;
}

void core_count_coming(struct core *core, const struct core_store *store, int sign)
{
    struct core_pool *pool = core_pool(core, store->use.pool);
    uint64_t bytes = core_get_coming(store);

    if (bytes == 0)
        return;
    core_count_pool(core, pool, -1);
    pool->coming += sign > 0 ? 1 : UINT64_MAX;
    pool->coming_bytes += sign > 0 ? bytes : -bytes;
    core_count_pool(core, pool, 1);
}

void core_enter_pool(struct core *core, struct core_store *store, uint64_t pool)
{
    uint64_t used_bytes = store->use.used_bytes;

    store->use.used_bytes = 0;
    store->use.pool = pool;
    core_pool(core, pool)->store_count++;
    core_count_coming(core, store, 1);
    set_used(core, store, used_bytes);
}

void core_leave_pool(struct core *core, struct core_store *store)
{
    uint64_t used_bytes = store->use.used_bytes;

    core_count_coming(core, store, -1);
    set_used(core, store, 0);
    store->use.used_bytes = used_bytes;
    core_pool(core, store->use.pool)->store_count--;
}

uint64_t core_get_pool_room(const struct core_pool *pool, const struct core_store *store)
{
    bool is_resident = store && store->use.used_bytes > 0;
    uint64_t own_bytes = store && store->use.pool == pool->id ? core_get_coming(store) : 0;

    if (!is_resident && pool->slots > 0 &&
        pool->resident + pool->coming - (own_bytes > 0) >= pool->slots)
        return 0;
    return get_rest(pool, pool->max_bytes, pool->coming_bytes - own_bytes);
}

uint64_t core_get_others_bytes(const struct core *core, const struct core_pool *pool)
{
    return core->pools.unfilled_bytes - core_get_unfilled(pool);
}

uint64_t core_get_room(const struct core *core, const struct core_store *store, uint64_t free_bytes)
{
    const struct core_pool *pool = core_find_pool(core, store);
    uint64_t own_bytes = core_get_pool_room(pool, store);
    uint64_t others_bytes = core_get_others_bytes(core, pool);
    uint64_t shared_bytes = others_bytes < free_bytes ? free_bytes - others_bytes : 0;

    return own_bytes < shared_bytes ? own_bytes : shared_bytes;
}

int core_check_room(const struct core *core, const struct core_store *store, uint64_t bytes,
                    uint64_t free_bytes)
{
    const struct core_pool *pool = core_find_pool(core, store);

    if (bytes > core_get_pool_room(pool, store))
        return -EDQUOT;
    if (bytes > free_bytes)
        return -ENOMEM;
    return bytes > core_get_room(core, store, free_bytes) ? -EDQUOT : 0;
}

int core_check_promotion(const struct core *core, const struct core_store *store,
                         uint64_t free_bytes)
{
    const struct core_pool *pool = core_find_pool(core, store);

    if (layout_total_bytes(store->fixed) > core_get_pool_room(pool, store))
        return -EDQUOT;
    return core_get_others_bytes(core, pool) > free_bytes ? -EDQUOT : 0;
}

/* ---- holds ---------------------------------------------------------------------------------- */

void core_hold(struct core *core, struct core_session *session)
{
    if (session->holds)
        return;
    session->holds = true;
    core_store(core, session->store)->use.holds++;
}

void core_unhold(struct core *core, struct core_session *session, uint64_t wall_ms)
{
    struct core_use *use = &core_store(core, session->store)->use;

    if (!session->holds)
        return;
    session->holds = false;
    use->holds--;
    if (use->holds == 0)
        use->last_used_ms = wall_ms;
}
