/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_fixture - a GPU with models as the governor sees it, and its deeds as one line
 *
 * Included once by a test program. Sizes are in GiB, and the time is 1,000,000 s after the epoch.
 */
#ifndef GMSFS_TESTS_UNIT_GOVERNOR_FIXTURE_H
#define GMSFS_TESTS_UNIT_GOVERNOR_FIXTURE_H

#include "governor/decide.h"
#include "tap.h"

#include <stdlib.h>

#define GIB          (UINT64_C(1) << 30)
#define NOW          UINT64_C(1000000000)
#define LONG_AGO     (NOW - 600000)
#define MOMENT_AGO   (NOW - 5000)
#define WORLD_MODELS 16u
#define WORLD_STORES 64u
#define WORLD_POOLS  8u
#define ALL_BUT_DISK (GOVERNOR_DEVICE | GOVERNOR_HOST)

struct world {
    struct governor_config config;
    struct governor_snapshot now;
    struct governor_model models[WORLD_MODELS];
    struct governor_adapters adapters[2];
    struct governor_demand demand[WORLD_MODELS];
    struct governor_store stores[WORLD_STORES];
    struct governor_pool pools[WORLD_POOLS];
};

static struct world world;
static struct governor_deed deeds[GOVERNOR_MAX_DEEDS];
static size_t deed_count;

/* Points the pointers of a copied world into the copy. */
__attribute__((unused)) static void world_own(struct world *copy)
{
    copy->config.models = copy->models;
    copy->config.adapters = copy->adapters;
    copy->now.demand = copy->demand;
    copy->now.stores = copy->stores;
    copy->now.pools = copy->pools;
}

/* An empty device, a host tier of 1,000 GiB, and no disk. */
__attribute__((unused)) static void world_begin(uint64_t device_gib)
{
    memset(&world, 0, sizeof world);
    world_own(&world);
    world.config.interval_ms = 10000;
    world.config.cooldown_ms = 30000;
    world.config.high = 95;
    world.config.low = 85;
    world.now.now_ms = NOW;
    world.now.device_bytes = world.now.device_free = device_gib * GIB;
    world.now.host_bytes = world.now.host_free = 1000 * GIB;
}

__attribute__((unused)) static void world_add_pool(const char *name, uint64_t min, uint64_t max)
{
    require(world.now.pool_count < WORLD_POOLS);
    world.pools[world.now.pool_count++] =
        (struct governor_pool){.name = name,
                               .class = POOL_CLASS_STANDARD,
                               .min_bytes = min * GIB,
                               .max_bytes = max ? max * GIB : UINT64_MAX};
}

/* Adds a store; on the device, it counts for device and pool. */
__attribute__((unused)) static struct governor_store *
world_add_store(const char *name, const char *pool, uint64_t gib, unsigned places)
{
    struct governor_store *store = &world.stores[world.now.store_count++];

    require(world.now.store_count <= WORLD_STORES);
    *store = (struct governor_store){.name = name,
                                     .pool = pool,
                                     .bytes = gib * GIB,
                                     .committed = true,
                                     .places = places,
                                     .last_used_ms = LONG_AGO};
    if (!(places & GOVERNOR_DEVICE))
        return store;
    require(world.now.device_free >= store->bytes);
    world.now.device_free -= store->bytes;
    for (size_t i = 0; i < world.now.pool_count; i++) {
        if (strcmp(world.pools[i].name, pool) != 0)
            continue;
        world.pools[i].used_bytes += store->bytes;
        world.pools[i].resident++;
    }
    return store;
}

/* Adds a model with a store of its name in pool `default`. Idle for long; awake if it is on the
 * device. */
__attribute__((unused)) static size_t world_add_model(const char *name, enum pool_class class,
                                                      uint64_t gib, unsigned places)
{
    static char hook[] = "true";
    size_t model = world.config.model_count++;
    struct governor_store *store = world_add_store(name, "default", gib, places);

    require(model < WORLD_MODELS);
    store->held = places & GOVERNOR_DEVICE ? 1 : 0;
    world.models[model] = (struct governor_model){.name = (char *)(uintptr_t)name,
                                                  .store = (char *)(uintptr_t)name,
                                                  .class = class,
                                                  .sleep = hook,
                                                  .wake = hook,
                                                  .metrics = hook};
    world.demand[model] = (struct governor_demand){.is_known = true, .idle_since_ms = LONG_AGO};
    return model;
}

__attribute__((unused)) static struct governor_store *store_named(const char *name)
{
    for (size_t i = 0; i < world.now.store_count; i++) {
        if (strcmp(world.stores[i].name, name) == 0)
            return &world.stores[i];
    }
    require(!"a store of this name");
    return NULL;
}

__attribute__((unused)) static struct governor_demand *demand_of(const char *name)
{
    for (size_t i = 0; i < world.config.model_count; i++) {
        if (strcmp(world.models[i].name, name) == 0)
            return &world.demand[i];
    }
    require(!"a model of this name");
    return NULL;
}

__attribute__((unused)) static struct governor_model *model_named(const char *name)
{
    return &world.models[demand_of(name) - world.demand];
}

/* Makes requests wait for it. */
__attribute__((unused)) static void wants(const char *name, uint64_t requests)
{
    demand_of(name)->waiting = requests;
    demand_of(name)->idle_since_ms = 0;
}

/* Makes it serve requests now. */
__attribute__((unused)) static void serves(const char *name)
{
    demand_of(name)->running = 2;
    demand_of(name)->idle_since_ms = 0;
    store_named(name)->last_used_ms = NOW;
}

/* "sleep batch, +drain batch>host, +promote code, +wake code": + means that it follows. */
__attribute__((unused)) static const char *tell_deeds(bool with_reports)
{
    static const char *const kinds[] = {
        [GOVERNOR_SLEEP] = "sleep",   [GOVERNOR_WAKE] = "wake",       [GOVERNOR_DRAIN] = "drain",
        [GOVERNOR_DEMOTE] = "demote", [GOVERNOR_PROMOTE] = "promote", [GOVERNOR_SPARE] = "spare",
        [GOVERNOR_POOL_MAX] = "max",  [GOVERNOR_REPORT] = "report"};
    static char text[8192];
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < deed_count && used < sizeof text - 200; i++) {
        const struct governor_deed *deed = &deeds[i];

        if (deed->kind == GOVERNOR_REPORT && !with_reports)
            continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s %s%s", used ? ", " : "",
                                 deed->follows ? "+" : "", kinds[deed->kind], deed->store,
                                 deed->tier == GOVERNOR_HOST   ? ">host"
                                 : deed->tier == GOVERNOR_DISK ? ">disk"
                                 : deed->tier == GOVERNOR_NONE ? ">none"
                                                               : "");
        if (deed->kind == GOVERNOR_POOL_MAX)
            used +=
                (size_t)snprintf(text + used, sizeof text - used, "=%" PRIu64, deed->bytes / GIB);
    }
    return text;
}

__attribute__((unused)) static const char *decide(void)
{
    deed_count = governor_decide(&world.now, &world.config, deeds);
    return tell_deeds(false);
}

static uint64_t random_state = 1;

__attribute__((unused)) static uint64_t below(uint64_t bound)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % bound;
}

__attribute__((unused)) static bool one_in(uint64_t times)
{
    return below(times) == 0;
}

/* A device that batch and other, which both serve, nearly fill; code is on the host. */
__attribute__((unused)) static void make_full(void)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("batch", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    world_add_model("other", POOL_CLASS_CRITICAL, 30, ALL_BUT_DISK);
    serves("batch");
    serves("other");
}

#endif
