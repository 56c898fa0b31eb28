/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the limits that pools set to the governor, and its changes of their max. */
#include "governor_fixture.h"

/* ---- pools' limits -------------------------------------------------------------------------- */

TAP_TEST(a_store_without_room_in_its_pool_gets_it_from_its_pool)
{
    world_begin(200);
    world_add_pool("small", 0, 50);
    world_add_pool("default", 0, 0);
    world_add_model("a", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    world_add_model("b", POOL_CLASS_BATCH, 30, ALL_BUT_DISK);
    store_named("a")->pool = "small";
    world_add_store("c", "small", 20, ALL_BUT_DISK);
    wants("a", 1);
    check_str(decide(), "demote c>host, +promote a, +wake a");
    store_named("c")->pinned = true;
    check_str(decide(), "");
    check(strstr(deeds[0].reason, "its pool small has no room for") != NULL);
}

TAP_TEST(slots_of_a_pool_count)
{
    world_begin(200);
    world_add_pool("few", 0, 0);
    world.pools[0].slots = 1;
    world_add_model("a", POOL_CLASS_HIGH, 10, GOVERNOR_HOST);
    store_named("a")->pool = "few";
    world_add_store("c", "few", 10, ALL_BUT_DISK);
    wants("a", 1);
    check_str(decide(), "demote c>host, +promote a, +wake a");
}

TAP_TEST(the_min_of_other_pools_is_not_taken)
{
    world_begin(100);
    world_add_pool("mine", 0, 0);
    world_add_pool("theirs", 40, 0);
    world_add_model("a", POOL_CLASS_CRITICAL, 61, GOVERNOR_HOST);
    store_named("a")->pool = "mine";
    world_add_store("t", "theirs", 30, ALL_BUT_DISK);
    wants("a", 1);
    check_str(decide(), "");
    store_named("a")->bytes = 60 * GIB;
    check_str(decide(), "promote a, +wake a");
}

TAP_TEST(no_store_leaves_that_its_pools_min_covers_in_part)
{
    world_begin(100);
    world_add_pool("mine", 0, 0);
    world_add_pool("theirs", 20, 0);
    world_add_model("a", POOL_CLASS_CRITICAL, 80, GOVERNOR_HOST);
    store_named("a")->pool = "mine";
    world_add_store("t", "theirs", 15, ALL_BUT_DISK);
    world_add_store("u", "theirs", 15, ALL_BUT_DISK);
    wants("a", 1);
    check_str(decide(), "");
    world.config.high = 100;
    world.pools[1].min_bytes = 15 * GIB;
    store_named("a")->bytes = 85 * GIB;
    check_str(decide(), "demote t>host, +promote a, +wake a");
}

TAP_TEST(the_unused_min_of_a_pool_shrinks_when_a_store_comes)
{
    world_begin(100);
    world_add_pool("p", 40, 0);
    world_add_pool("q", 0, 0);
    world_add_model("a", POOL_CLASS_CRITICAL, 30, GOVERNOR_HOST);
    world_add_model("b", POOL_CLASS_HIGH, 61, GOVERNOR_HOST);
    store_named("a")->pool = "p";
    store_named("b")->pool = "q";
    wants("a", 1);
    wants("b", 1);
    check_str(decide(), "promote a, +wake a");
    store_named("b")->bytes = 60 * GIB;
    check_str(decide(), "promote a, +wake a, promote b, +wake b");
}

/* ---- pools' max --------------------------------------------------------------------------- */

/* Two pools that share 100 GiB: code's, nearly full, and batch's. */
static void make_pools(void)
{
    static char code[] = "code", batch[] = "batch";

    world_begin(100);
    world_add_pool("code", 0, 40);
    world_add_pool("batch", 10, 60);
    world_add_pool("default", 0, 0);
    world_add_model("m.code", POOL_CLASS_CRITICAL, 30, GOVERNOR_HOST);
    world_add_model("m.batch", POOL_CLASS_BATCH, 20, GOVERNOR_HOST);
    model_named("m.code")->pool = code;
    model_named("m.batch")->pool = batch;
    for (size_t i = 0; i < 2; i++) {
        world.stores[i].pool = world.pools[i].name;
        world.stores[i].places = ALL_BUT_DISK;
        world.stores[i].held = 1;
    }
    world.pools[0].used_bytes = 39 * GIB;
    world.pools[1].used_bytes = 55 * GIB;
    world.now.device_free = 6 * GIB;
    serves("m.code");
    serves("m.batch");
    wants("m.code", 3);
}

TAP_TEST(a_max_is_lowered_before_another_is_raised)
{
    make_pools();
    check_str(decide(), "max batch=55");
    check_str(deeds[0].reason, "m.code lacks room in pool code: first the max of batch is lowered "
                               "from 60.0 GiB to 55.0 GiB");
    /* The next round: its max is lowered, and it uses all of its 55 GiB. */
    world.pools[1].max_bytes = 55 * GIB;
    world.pools[1].changed_ms = MOMENT_AGO;
    check_str(decide(), "max code=45");
}

TAP_TEST(a_max_is_not_raised_before_the_use_is_lower)
{
    make_pools();
    world.pools[1].max_bytes = 50 * GIB;
    world.pools[1].changed_ms = MOMENT_AGO;
    world.config.high = 100;
    check_str(decide(), "max code=45");
    world.pools[1].used_bytes = 58 * GIB;
    check_str(decide(), "");
    world.pools[1].changed_ms = 0; /* nor is it lowered further: 8 GiB are on their way */
    check_str(decide(), "");
    world.pools[1].used_bytes = 55 * GIB;
    check_str(decide(), "max code=45");
}

TAP_TEST(a_max_is_never_lowered_below_min_or_the_need_of_its_models)
{
    make_pools();
    world.pools[1].min_bytes = 58 * GIB;
    check_str(decide(), "");
    world.pools[1].min_bytes = 55 * GIB;
    check_str(decide(), "max batch=55");
    world.pools[1].min_bytes = 0;
    store_named("m.batch")->bytes = 56 * GIB;
    check_str(decide(), "");
}

TAP_TEST(the_more_important_gives_only_unused_memory)
{
    make_pools();
    wants("m.code", 0);
    demand_of("m.code")->running = 1;
    wants("m.batch", 100);
    world.pools[1].used_bytes = 59 * GIB;
    check_str(decide(), "");
    demand_of("m.code")->running = 0;
    demand_of("m.code")->idle_since_ms = LONG_AGO;
    store_named("m.code")->last_used_ms = LONG_AGO;
    check_str(decide(), "max code=32");
}

TAP_TEST(pools_of_frozen_models_and_pools_just_changed_stay)
{
    make_pools();
    demand_of("m.batch")->is_known = false;
    check_str(decide(), "");
    demand_of("m.batch")->is_known = true;
    world.pools[1].changed_ms = MOMENT_AGO;
    check_str(decide(), "");
    world.pools[1].changed_ms = 0;
    world.pools[0].changed_ms = MOMENT_AGO;
    check_str(decide(), "");
}

TAP_TEST(pools_that_no_model_names_stay)
{
    make_pools();
    model_named("m.batch")->pool = NULL;
    world.pools[1].used_bytes = 56 * GIB;
    check_str(decide(), "");
    world.pools[1].used_bytes = 55 * GIB; /* its use counts all the same */
    check_str(decide(), "max code=45");
}
