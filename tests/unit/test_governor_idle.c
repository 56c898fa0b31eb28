/* SPDX-License-Identifier: Apache-2.0 */
/* Tests deeds without demand: idle models leave and sleep, spares are made, and adapters
 * prefetched. */
#include "governor_fixture.h"

/* ---- the watermarks ----------------------------------------------------------------------- */

static void make_idle(unsigned count)
{
    static const char *const names[] = {"i0", "i1", "i2", "i3", "i4", "i5", "i6", "i7", "i8", "i9"};

    world_begin(100);
    for (unsigned i = 0; i < count; i++) {
        world_add_model(names[i], POOL_CLASS_HIGH, 10, ALL_BUT_DISK);
        demand_of(names[i])->idle_since_ms = LONG_AGO + i;
        store_named(names[i])->last_used_ms = NOW;
    }
}

TAP_TEST(above_high_the_idle_leave_by_last_use_down_to_low)
{
    make_idle(10);
    check_str(decide(), "sleep i0, +drain i0>host, sleep i1, +drain i1>host");
    world.config.low = 90;
    check_str(decide(), "sleep i0, +drain i0>host");
    check_str(deeds[0].reason,
              "more than 95% of the device is in use; i0 (high) is idle and unused for longest");
}

TAP_TEST(above_high_no_store_leaves_that_could_stay)
{
    world_begin(100);
    world_add_store("old", "default", 5, ALL_BUT_DISK)->last_used_ms = LONG_AGO - 1;
    world_add_store("large", "default", 20, ALL_BUT_DISK);
    world_add_store("held", "default", 72, ALL_BUT_DISK)->held = 1;
    check_str(decide(), "demote large>host");
}

TAP_TEST(a_moment_without_requests_is_not_idle)
{
    make_idle(10);
    for (size_t i = 0; i < world.config.model_count; i++)
        world.demand[i].idle_since_ms = NOW - 29999;
    check_str(decide(), "");
    world.demand[3].idle_since_ms = NOW - 30000;
    check_str(decide(), "sleep i3, +drain i3>host");
}

TAP_TEST(above_high_only_stores_idle_for_a_cooldown_leave)
{
    make_idle(10);
    serves("i0");
    demand_of("i1")->idle_since_ms = NOW - 29999;
    model_named("i2")->min_one = true;
    store_named("i3")->pinned = true;
    demand_of("i4")->is_known = false;
    store_named("i5")->moved_ms = MOMENT_AGO;
    model_named("i6")->sleep = NULL; /* and holds its store */
    store_named("i7")->held = 0;
    check_str(decide(), "demote i7>host, sleep i8, +drain i8>host");
}

TAP_TEST(an_idle_model_whose_time_is_over_sleeps_and_its_store_stays)
{
    make_idle(3);
    model_named("i1")->idle_ms = 600000;
    model_named("i2")->idle_ms = 300000;
    check_str(decide(), "sleep i2");
    check_str(deeds[0].reason, "i2 had no demand for 599 s");
    store_named("i2")->held = 0; /* sleeps already */
    check_str(decide(), "");
}

TAP_TEST(after_its_idle_time_a_store_leaves_for_any_model)
{
    world_begin(80);
    world_add_model("batch", POOL_CLASS_BATCH, 40, GOVERNOR_HOST);
    world_add_model("code", POOL_CLASS_CRITICAL, 60, ALL_BUT_DISK);
    wants("batch", 1);
    model_named("code")->idle_ms = 600001;
    check_str(decide(), "");
    model_named("code")->idle_ms = 600000;
    check_str(decide(), "sleep code, +drain code>host, +promote batch, +wake batch");
    serves("code");
    check_str(decide(), "");
}

/* ---- ahead -------------------------------------------------------------------------------- */

TAP_TEST(spares_are_made_of_uncritical_stores_while_the_host_has_room)
{
    world_begin(100);
    world_add_model("code", POOL_CLASS_CRITICAL, 20, GOVERNOR_DEVICE);
    world_add_model("chat", POOL_CLASS_HIGH, 20, GOVERNOR_DEVICE);
    world_add_model("batch", POOL_CLASS_BATCH, 20, GOVERNOR_DEVICE);
    world_add_store("there", "default", 20, ALL_BUT_DISK);
    check_str(decide(), "spare batch>host, spare chat>host");
    world.now.host_free = 39 * GIB;
    check_str(decide(), "spare batch>host");
    world.now.host_bytes = world.now.host_free = 0;
    check_str(decide(), "");
}

TAP_TEST(a_store_without_bytes_gets_no_spare)
{
    world_begin(100);
    world_add_store("empty", "default", 0, GOVERNOR_DEVICE);
    world_add_store("filled", "default", 1, GOVERNOR_DEVICE);
    check_str(decide(), "spare filled>host");
}

TAP_TEST(four_spares_are_made_a_round)
{
    static const char *const names[] = {"s1", "s2", "s3", "s4", "s5"};

    world_begin(100);
    for (size_t i = 0; i < 5; i++)
        world_add_store(names[i], "default", 1, GOVERNOR_DEVICE);
    check_str(decide(), "spare s1>host, spare s2>host, spare s3>host, spare s4>host");
}

TAP_TEST(spares_wait_while_a_store_moves)
{
    make_full();
    model_named("other")->class = POOL_CLASS_HIGH;
    store_named("other")->places = GOVERNOR_DEVICE;
    check_str(decide(), "spare other>host");
    wants("code", 1);
    check(strstr(decide(), "spare") == NULL);
    store_named("batch")->moved_ms = MOMENT_AGO; /* code waits for it */
    check(strstr(decide(), "spare") == NULL);
}

TAP_TEST(a_spare_that_failed_is_not_tried_for_a_cooldown)
{
    make_full();
    model_named("other")->class = POOL_CLASS_HIGH;
    store_named("other")->places = GOVERNOR_DEVICE;
    store_named("other")->failed_ms = MOMENT_AGO;
    check_str(decide(), "");
}

static void make_adapters(void)
{
    world_begin(100);
    world_add_pool("lora", 0, 0);
    world_add_model("base", POOL_CLASS_HIGH, 40, ALL_BUT_DISK);
    world_add_store("l1", "lora", 5, GOVERNOR_HOST)->grants = 1;
    world_add_store("l2", "lora", 5, GOVERNOR_HOST)->grants = 7;
    world_add_store("l3", "lora", 5, ALL_BUT_DISK)->grants = 9;
    world_add_store("l4", "lora", 5, GOVERNOR_HOST)->grants = 3;
    world_add_store("l5", "lora", 5, GOVERNOR_HOST)->grants = 0;
    world_add_store("elsewhere", "default", 5, GOVERNOR_HOST)->grants = 100;
    static char pool[] = "lora";
    world.adapters[0] =
        (struct governor_adapters){.pool = pool, .base = model_named("base")->name, .prefetch = 3};
    world.config.adapters_count = 1;
}

TAP_TEST(the_adapters_with_most_grants_are_brought)
{
    make_adapters();
    check_str(decide(), "promote l2, promote l4");
    check_str(deeds[0].reason, "store l2 was granted 7 times recently, number 2 of its pool; its "
                               "base is on the device");
}

TAP_TEST(adapters_come_only_with_their_base)
{
    make_adapters();
    store_named("base")->places = GOVERNOR_HOST;
    store_named("base")->held = 0;
    check_str(decide(), "");
    world.adapters[0].base = NULL;
    check_str(decide(), "promote l2, promote l4");
}

TAP_TEST(adapters_come_up_to_low_and_to_the_max_of_their_pool)
{
    make_adapters();
    world.config.low = 54;
    check_str(decide(), "promote l2");
    world.config.low = 85;
    world.pools[0].max_bytes = 14 * GIB;
    check_str(decide(), "promote l2");
    world.pools[0].max_bytes = UINT64_MAX;
    world.pools[0].slots = 2;
    check_str(decide(), "promote l2");
}
