/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/observe.h"

#include "base/failure.h"
#include "base/json_get.h"
#include "base/number.h"
#include "core/core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned get_places(const json_t *store)
{
    static const struct {
        const char *name;
        unsigned bit;
    } tiers[] = {{"device", GOVERNOR_DEVICE}, {"host", GOVERNOR_HOST}, {"disk", GOVERNOR_DISK}};
    const json_t *tier;
    unsigned places = 0;
    size_t at;

    json_array_foreach (json_object_get(store, "residency"), at, tier) {
        const char *name = json_string_value(tier);

        for (size_t i = 0; name && i < sizeof(tiers) / sizeof(tiers[0]); i++)
            places |= strcmp(name, tiers[i].name) == 0 ? tiers[i].bit : 0;
    }
    return places;
}

static uint64_t count_waiting(const json_t *store)
{
    const json_t *session;
    uint64_t waiting = 0;
    size_t at;

    json_array_foreach (json_object_get(store, "sessions"), at, session)
        waiting += strcmp(json_get_text(session, "status"), "waiting") == 0;
    return waiting;
}

static void see_store(const struct governor_past *past, const json_t *store,
                      struct governor_store *seen)
{
    *seen = (struct governor_store){
        .name = json_get_text(store, "name"),
        .pool = json_get_text(store, "pool"),
        .bytes = json_get_number(store, "bytes"),
        .committed = json_get_flag(store, "committed"),
        .pinned = json_get_flag(store, "pinned"),
        .draining = json_get_flag(store, "draining"),
        .suspect = json_get_flag(store, "suspect"),
        .scratch = json_get_flag(store, "scratch"),
        .held = json_get_number(store, "held"),
        .waiting = count_waiting(store),
        .places = get_places(store),
        .moving = json_is_object(json_object_get(store, "moving")),
        .last_used_ms = json_get_number(store, "last_used_ms"),
        .moved_ms = json_get_number(store, "moved_ms"),
    };
    seen->failed_ms = governor_moments_find(&past->stores, seen->name);
    seen->grants = governor_grants_count(&past->grants, seen->name);
}

/* Leaves out stores that could not be read. */
static int see_stores(const struct governor_past *past, const json_t *look,
                      struct governor_seen *seen)
{
    const json_t *stores = json_object_get(look, "stores"), *store;
    size_t at;

    seen->stores = calloc(json_array_size(stores) + 1, sizeof(*seen->stores));
    if (!seen->stores)
        return -ENOMEM;
    json_array_foreach (stores, at, store) {
        if (json_object_get(store, "error") || !*json_get_text(store, "name") ||
            seen->snapshot.store_count == GOVERNOR_MAX_STORES)
            continue;
        see_store(past, store, &seen->stores[seen->snapshot.store_count++]);
    }
    seen->snapshot.stores = seen->stores;
    return 0;
}

/* ---- the device and its pools --------------------------------------------------------------- */

static void see_device(const json_t *device, struct governor_snapshot *snapshot)
{
    /* free on the device, by any program */
    const json_t *others = json_object_get(device, "free_bytes");
    uint64_t used =
        json_get_number(device, "used_bytes") + json_get_number(device, "reserved_bytes");

    snapshot->device_bytes = json_get_number(device, "total_bytes");
    snapshot->device_free = number_subtract(snapshot->device_bytes, used);
    if (json_is_integer(others) && json_get_number(device, "free_bytes") < snapshot->device_free)
        snapshot->device_free = json_get_number(device, "free_bytes");
    snapshot->host_bytes = json_get_number(device, "host_total_bytes");
    snapshot->host_free =
        number_subtract(snapshot->host_bytes, json_get_number(device, "host_used_bytes"));
    snapshot->disk_bytes = json_get_number(device, "spill_total_bytes");
    snapshot->disk_free =
        number_subtract(snapshot->disk_bytes, json_get_number(device, "spill_used_bytes"));
}

static enum pool_class find_class(const char *name)
{
    for (unsigned class = 0; class < POOL_CLASS_COUNT; class ++)
        if (strcmp(name, core_pool_class_name((enum pool_class) class)) == 0)
            return (enum pool_class) class;
    return POOL_CLASS_STANDARD;
}

static void see_pool(const struct governor_past *past, const json_t *pool,
                     struct governor_pool *seen)
{
    const json_t *max = json_object_get(pool, "max");

    *seen = (struct governor_pool){
        .name = json_get_text(pool, "name"),
        .class = find_class(json_get_text(pool, "class")),
        .min_bytes = json_get_number(pool, "min"),
        .max_bytes = json_is_integer(max) ? json_get_number(pool, "max") : UINT64_MAX,
        .used_bytes = json_get_number(pool, "used"),
        .slots = json_get_number(pool, "slots"),
        .resident = json_get_number(pool, "resident"),
        .changed_ms = governor_moments_find(&past->pools, json_get_text(pool, "name")),
    };
}

static int see_pools(const struct governor_past *past, const json_t *look,
                     struct governor_seen *seen)
{
    const json_t *pools = json_object_get(look, "pools"), *pool;
    size_t at;

    seen->pools = calloc(json_array_size(pools) + 1, sizeof(*seen->pools));
    if (!seen->pools)
        return -ENOMEM;
    json_array_foreach (pools, at, pool)
        if (seen->snapshot.pool_count < EVICT_MAX_POOLS)
            see_pool(past, pool, &seen->pools[seen->snapshot.pool_count++]);
    seen->snapshot.pools = seen->pools;
    return 0;
}

/* ---- models --------------------------------------------------------------------------------- */

static const struct governor_store *find_store(const struct governor_snapshot *snapshot,
                                               const char *name)
{
    for (size_t i = 0; i < snapshot->store_count; i++)
        if (strcmp(snapshot->stores[i].name, name) == 0)
            return &snapshot->stores[i];
    return NULL;
}

/* Without metrics an engine is in use while it holds its store. */
static bool is_idle(const struct governor_model *model, const struct governor_demand *demand,
                    const struct governor_store *store)
{
    return demand->waiting == 0 && demand->running == 0 &&
           (model->metrics || !store || store->held == 0);
}

/* Finds the start of idleness: for a store without holder, the end of the last hold. An engine that
 * has just started is not idle since the time before it. */
static void see_idleness(struct governor_past_model *past, const struct governor_model *model,
                         const struct governor_store *store, uint64_t now_ms,
                         struct governor_demand *seen)
{
    bool is_held = store && store->held > 0, has_come = is_held && !past->was_held;
    bool idle = is_idle(model, seen, store);

    if (store) /* else it could not be read */
        past->was_held = is_held;
    if (has_come || (seen->is_known && !idle))
        past->idle_since_ms = 0;
    if (!seen->is_known || !idle)
        return;
    if (store && !is_held && store->last_used_ms > 0)
        past->idle_since_ms = store->last_used_ms;
    else if (past->idle_since_ms == 0)
        past->idle_since_ms = now_ms;
    seen->idle_since_ms = past->idle_since_ms;
}

/* Forgets the wake when its requests have been served, or it may sleep again. */
static void see_waking(struct governor_past_model *past, const struct governor_store *store,
                       struct governor_demand *seen)
{
    bool has_left = store && !(store->places & GOVERNOR_DEVICE);

    if (has_left || (seen->is_known && (seen->running > 0 || seen->waiting == 0)))
        past->woken_ms = 0;
    seen->woken_ms = past->woken_ms;
}

static int see_demand(struct governor_past *past, const struct governor_config *config,
                      uint64_t now_ms, struct governor_seen *seen)
{
    seen->demand = calloc(config->model_count + 1, sizeof(*seen->demand));
    if (!seen->demand)
        return -ENOMEM;
    for (size_t i = 0; i < config->model_count; i++) {
        const struct governor_model *model = &config->models[i];
        const struct governor_store *store = find_store(&seen->snapshot, model->store);
        struct governor_past_model *known = &past->models[i];
        struct governor_demand *demand = &seen->demand[i];

        *demand = (struct governor_demand){.is_known = known->is_known || !model->metrics,
                                           .failed_ms = known->failed_ms,
                                           .done_ms = known->done_ms};
        if (!model->metrics) {
            demand->waiting = store ? store->waiting : 0;
        } else if (demand->is_known) {
            demand->waiting = known->metrics.waiting;
            demand->running = known->metrics.running;
            demand->ttft_ms = known->ttft_ms;
        }
        see_idleness(known, model, store, now_ms, demand);
        see_waking(known, store, demand);
    }
    seen->snapshot.demand = seen->demand;
    return 0;
}

/* ---- the mount ------------------------------------------------------------------------------ */

/* Checks that the mount answers and is in service. */
static int check_look(const json_t *look, struct failure *failure)
{
    const json_t *device = json_object_get(look, "device");
    const char *mount = json_get_text(look, "mount"), *health = json_get_text(look, "health");
    const char *error = json_get_text(look, "error");

    if (strcmp(health, "dead") == 0)
        return failure_set(failure, -ENOTCONN,
                           "%s: its daemon has ended; 'gmsfs umount -l %s' clears it away", mount,
                           mount);
    if (strcmp(health, "silent") == 0)
        return failure_set(failure, -EIO,
                           "%s: it does not answer; 'gmsfs status' shows when it does again",
                           mount);
    if (!json_is_object(device) || *error)
        return failure_set(failure, -EIO, "%s: cannot be looked at: %s", mount,
                           *error ? error : "no answer");
    if (json_get_flag(device, "draining"))
        return failure_set(failure, -EIO,
                           "%s: it is drained, and the governor waits; 'gmsfs drain --undo' ends "
                           "the drain",
                           mount);
    if (json_get_flag(device, "fenced"))
        return failure_set(failure, -EIO,
                           "%s: it is fenced for a checkpoint, and the governor waits", mount);
    return 0;
}

int governor_see(struct governor_past *past, const struct governor_config *config, json_t *look,
                 uint64_t now_ms, struct governor_seen *seen, struct failure *failure)
{
    int error = check_look(look, failure);

    *seen = (struct governor_seen){.snapshot.now_ms = now_ms};
    if (error)
        return error;
    seen->look = json_incref(look);
    see_device(json_object_get(look, "device"), &seen->snapshot);
    error = see_stores(past, look, seen);
    if (!error)
        error = see_pools(past, look, seen);
    if (!error)
        error = see_demand(past, config, now_ms, seen);
    if (!error)
        return 0;
    governor_seen_free(seen);
    return failure_no_memory(failure);
}

static void tell_pool(const struct governor_snapshot *now, const char *pool, governor_tell *tell)
{
    struct failure text;

    for (size_t i = 0; i < now->pool_count; i++)
        if (strcmp(now->pools[i].name, pool) == 0)
            return;
    failure_set(&text, 0, "pool=%s: the mount has no such pool; its file 'pools' makes it", pool);
    tell(text.text);
}

void governor_tell_pools(struct governor_past *past, const struct governor_config *config,
                         const struct governor_snapshot *now, governor_tell *tell)
{
    for (size_t i = 0; i < config->model_count && !past->has_told_pools; i++)
        if (config->models[i].pool)
            tell_pool(now, config->models[i].pool, tell);
    for (size_t i = 0; i < config->adapters_count && !past->has_told_pools; i++)
        tell_pool(now, config->adapters[i].pool, tell);
    past->has_told_pools = true;
}

void governor_seen_free(struct governor_seen *seen)
{
    free(seen->stores);
    free(seen->pools);
    free(seen->demand);
    json_decref(seen->look);
    *seen = (struct governor_seen){0};
}
