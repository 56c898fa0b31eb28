/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks rounds over random GPUs against laws written apart. A governor that cannot see one thing
 * (a pin, a holder, a cooldown, ...) must break a law, or that law would say nothing.
 */
#include "governor_laws.h"

#define ROUNDS 20000

static const char *const store_names[] = {"s00", "s01", "s02", "s03", "s04", "s05",
                                          "s06", "s07", "s08", "s09", "s10", "s11"};
static const char *const pool_names[] = {"p0", "p1", "p2"};
static char adapters_pool[] = "p2", model_pools[2][4] = {"p0", "p1"};

static uint64_t some_moment(void)
{
    return one_in(15) ? NOW - 29999 + below(29000) : one_in(2) ? 0 : NOW - 30000 - below(100);
}

static void make_random_store(size_t index)
{
    static const unsigned places[] = {GOVERNOR_DEVICE,
                                      GOVERNOR_DEVICE,
                                      GOVERNOR_DEVICE | GOVERNOR_HOST,
                                      GOVERNOR_DEVICE | GOVERNOR_DISK,
                                      GOVERNOR_DEVICE | GOVERNOR_HOST,
                                      GOVERNOR_HOST,
                                      GOVERNOR_HOST,
                                      GOVERNOR_DISK};
    uint64_t gib = 1 + below(20);
    unsigned place = one_in(30) ? 0 : places[below(sizeof places / sizeof places[0])];
    struct governor_store *store;

    if (place & GOVERNOR_DEVICE && world.now.device_free < gib * GIB)
        place = GOVERNOR_HOST;
    store = world_add_store(store_names[index], pool_names[below(3)], gib, place);
    store->committed = !one_in(20);
    store->pinned = one_in(10);
    store->draining = one_in(15);
    store->suspect = one_in(20);
    store->moving = one_in(10);
    store->scratch = place == GOVERNOR_DEVICE && one_in(8);
    store->waiting = one_in(12);
    store->held = place & GOVERNOR_DEVICE && one_in(2) ? 1 + below(2) : 0;
    store->moved_ms = some_moment();
    store->failed_ms = some_moment();
    store->last_used_ms = NOW - below(100000);
    store->grants = one_in(2) ? below(5) : 0;
}

static void make_random_model(size_t index)
{
    static char hook[] = "true";
    size_t model = world.config.model_count++;
    struct governor_demand *demand = &world.demand[model];
    bool has_hooks = !one_in(3);

    bool min_one = one_in(4);
    world.models[model] = (struct governor_model){.name = (char *)(uintptr_t)store_names[index],
                                                  .store = (char *)(uintptr_t)store_names[index],
                                                  .class = (enum pool_class)below(POOL_CLASS_COUNT),
                                                  .min_one = min_one,
                                                  .idle_ms = !min_one && one_in(3) ? 50000 : 0,
                                                  .ttft_ms = one_in(2) ? 200 : 0,
                                                  .sleep = has_hooks ? hook : NULL,
                                                  .wake = has_hooks ? hook : NULL,
                                                  .metrics = one_in(5) ? NULL : hook,
                                                  .pool = one_in(3) ? model_pools[below(2)] : NULL};
    *demand = (struct governor_demand){
        .is_known = !one_in(10), .failed_ms = some_moment(), .done_ms = some_moment()};
    if (one_in(3))
        demand->woken_ms = NOW - below(2 * GOVERNOR_WAKING_MS);
    if (!(store_named(store_names[index])->places & GOVERNOR_DEVICE) && !one_in(3))
        demand->waiting = 1 + below(20);
    else if (one_in(2))
        demand->idle_since_ms = NOW - below(100000);
    else if (one_in(3))
        demand->running = 1 + below(3);
    else if (one_in(4))
        demand->ttft_ms = 100 + below(200);
    else
        demand->waiting = 1 + below(20);
}

static void make_random_world(void)
{
    size_t stores = 1 + below(12);

    world_begin(100);
    world.now.host_bytes = one_in(5) ? 0 : 200 * GIB;
    world.now.host_free = world.now.host_bytes ? below(60) * GIB : 0;
    world.now.disk_bytes = one_in(2) ? 0 : 200 * GIB;
    world.now.disk_free = world.now.disk_bytes ? below(60) * GIB : 0;
    for (size_t i = 0; i < 3; i++) {
        world_add_pool(pool_names[i], one_in(3) ? below(15) : 0, one_in(2) ? 15 + below(60) : 0);
        world.pools[i].class = (enum pool_class)below(POOL_CLASS_COUNT);
        world.pools[i].slots = one_in(4) ? 1 + below(4) : 0;
        world.pools[i].changed_ms = some_moment();
    }
    for (size_t i = 0; i < stores; i++) {
        make_random_store(i);
        if (!one_in(3))
            make_random_model(i);
    }
    uint64_t others = below(10) * GIB; /* used by engines beside their stores */
    world.now.device_free -= others < world.now.device_free ? others : world.now.device_free;
    if (one_in(2)) {
        world.adapters[0] =
            (struct governor_adapters){.pool = adapters_pool, .prefetch = 1 + below(4)};
        world.config.adapters_count = 1;
    }
}

/* ---- laws ----------------------------------------------------------------------------------- */

TAP_TEST(many_gpus_and_no_law_is_broken)
{
    unsigned moved = 0, budgets = 0;

    random_state = 1;
    for (int round = 0; round < ROUNDS; round++) {
        make_random_world();
        decide();
        const char *broken = find_broken_law(&world, deeds, deed_count);
        if (broken)
            fprintf(stderr, "# round %d: %s: %s\n", round, broken, tell_deeds(true));
        require(!broken);
        for (size_t i = 0; i < deed_count; i++) {
            moved += deeds[i].kind == GOVERNOR_PROMOTE && deeds[i].follows;
            budgets += deeds[i].kind == GOVERNOR_POOL_MAX;
        }
    }
    check(moved > ROUNDS / 50);
    check(budgets > ROUNDS / 50);
}

TAP_TEST(the_deeds_do_not_depend_on_the_order_of_stores_and_pools)
{
    static struct governor_deed first[GOVERNOR_MAX_DEEDS];
    static char told[8192];

    random_state = 2;
    for (int round = 0; round < ROUNDS / 4; round++) {
        make_random_world();
        snprintf(told, sizeof told, "%s", decide());
        size_t count = deed_count;
        memcpy(first, deeds, sizeof first);
        for (size_t i = world.now.store_count; i > 1; i--) {
            size_t other = below(i);
            struct governor_store store = world.stores[i - 1];
            world.stores[i - 1] = world.stores[other];
            world.stores[other] = store;
        }
        struct governor_pool pool = world.pools[0];
        world.pools[0] = world.pools[2];
        world.pools[2] = pool;
        require(tap_check_str(decide(), told, __FILE__, __LINE__, "deeds"));
        require(deed_count == count);
        for (size_t i = 0; i < count; i++)
            require(strcmp(first[i].reason, deeds[i].reason) == 0);
    }
}

/* ---- facts that a blind governor does not see ----------------------------------------------- */

static void forget_pins(struct world *w)
{
    for (size_t i = 0; i < w->now.store_count; i++)
        w->stores[i].pinned = false;
}

static void forget_holders(struct world *w)
{
    for (size_t i = 0; i < w->now.store_count; i++)
        w->stores[i].held = 0;
}

static void forget_moves(struct world *w)
{
    for (size_t i = 0; i < w->now.store_count; i++)
        w->stores[i].moving = false;
}

static void forget_drains(struct world *w)
{
    for (size_t i = 0; i < w->now.store_count; i++)
        w->stores[i].draining = false;
}

static void forget_damage(struct world *w)
{
    for (size_t i = 0; i < w->now.store_count; i++)
        w->stores[i].suspect = false;
}

static void forget_cooldowns(struct world *w)
{
    w->config.cooldown_ms = 0;
}

static void forget_stale_metrics(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->demand[i].is_known = true;
}

static void forget_failures(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->demand[i].failed_ms = 0;
}

static void forget_classes(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->models[i].class = w->demand[i].waiting ? POOL_CLASS_CRITICAL : POOL_CLASS_BATCH;
}

/* Makes serving models look idle. */
static void forget_use(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++) {
        size_t store = law_store(w, w->models[i].store);
        if (!(w->stores[store].places & GOVERNOR_DEVICE))
            continue;
        w->demand[i].running = w->demand[i].waiting = w->demand[i].ttft_ms = 0;
        w->demand[i].idle_since_ms = LONG_AGO;
        w->stores[store].waiting = 0;
    }
}

static void forget_min_one(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->models[i].min_one = false;
}

static void forget_demand(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->demand[i].waiting = w->demand[i].ttft_ms = 0;
}

static void see_less_memory(struct world *w)
{
    w->now.device_free -= w->now.device_free / 2;
}

static void see_more_memory(struct world *w)
{
    w->now.device_free += 10 * GIB;
}

static void forget_guarantees(struct world *w)
{
    for (size_t i = 0; i < w->now.pool_count; i++)
        w->pools[i].min_bytes = 0;
}

static void forget_limits(struct world *w)
{
    for (size_t i = 0; i < w->now.pool_count; i++)
        w->pools[i].max_bytes = UINT64_MAX;
}

static void forget_slots(struct world *w)
{
    for (size_t i = 0; i < w->now.pool_count; i++)
        w->pools[i].slots = 0;
}

static void forget_tiers(struct world *w)
{
    w->now.host_bytes = w->now.host_free = 1000 * GIB;
}

static void forget_high(struct world *w)
{
    w->config.high = w->config.low + 1;
    w->config.low = 0;
}

static void forget_use_of_pools(struct world *w)
{
    for (size_t i = 0; i < w->now.pool_count; i++)
        w->pools[i].used_bytes = w->pools[i].max_bytes < 50 * GIB ? w->pools[i].max_bytes : 0;
}

static void forget_wakes(struct world *w)
{
    for (size_t i = 0; i < w->config.model_count; i++)
        w->demand[i].woken_ms = 0;
}

static const struct {
    const char *name;
    void (*forget)(struct world *w);
} blind[] = {{"pins", forget_pins},
             {"holders", forget_holders},
             {"moves", forget_moves},
             {"drains", forget_drains},
             {"damage", forget_damage},
             {"cooldowns", forget_cooldowns},
             {"stale metrics", forget_stale_metrics},
             {"failures", forget_failures},
             {"classes", forget_classes},
             {"use", forget_use},
             {"min=1", forget_min_one},
             {"demand", forget_demand},
             {"memory that is free", see_less_memory},
             {"memory that is not free", see_more_memory},
             {"pools' min", forget_guarantees},
             {"pools' max", forget_limits},
             {"pools' slots", forget_slots},
             {"the use of pools", forget_use_of_pools},
             {"room of the tiers", forget_tiers},
             {"high", forget_high},
             {"wakes", forget_wakes}};

TAP_TEST(a_governor_blind_to_one_thing_breaks_a_law)
{
    for (size_t i = 0; i < sizeof blind / sizeof blind[0]; i++) {
        const char *broken = NULL;

        random_state = 3;
        for (int round = 0; !broken && round < ROUNDS; round++) {
            make_random_world();
            struct world seen = world;
            world_own(&seen);
            blind[i].forget(&world);
            decide();
            broken = find_broken_law(&seen, deeds, deed_count);
        }
        if (!tap_check(broken != NULL, __FILE__, __LINE__, blind[i].name))
            fprintf(stderr, "# no law notices a governor that does not see %s\n", blind[i].name);
    }
}

/* Two rounds as if they were one. */
TAP_TEST(a_second_preemption_in_a_round_breaks_a_law)
{
    static struct governor_deed both[2 * GOVERNOR_MAX_DEEDS];

    world_begin(80);
    world_add_model("c1", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("c2", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("a", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    world_add_model("b", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    serves("a");
    serves("b");
    wants("c1", 1);
    wants("c2", 1);
    struct world seen = world;
    world_own(&seen);
    decide();
    size_t count = deed_count;
    memcpy(both, deeds, count * sizeof *deeds);
    check(find_broken_law(&seen, both, count) == NULL);
    store_named("a")->places = GOVERNOR_HOST;
    store_named("c1")->places = ALL_BUT_DISK;
    store_named("c1")->held = 1;
    serves("c1");
    decide();
    memcpy(both + count, deeds, deed_count * sizeof *deeds);
    check_str(find_broken_law(&seen, both, count + deed_count), "one in use goes a round");
}
