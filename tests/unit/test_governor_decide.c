/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the governor's deeds in one situation each: which models come, and which stores leave for
 * them. Idle models and pools are in test_governor_idle and _budgets; the stores and models that
 * must be left alone (pinned, held, moved a moment ago, ...) are the laws of test_governor_laws. */
#include "governor_fixture.h"

/* ---- stores with demand ---------------------------------------------------------------------- */

TAP_TEST(a_model_that_waits_and_fits_comes_and_is_woken)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    wants("code", 1);
    check_str(decide(), "promote code, +wake code");
    check_str(deeds[0].reason, "code has 1 request waiting and is not on the device; it fits");
}

TAP_TEST(a_first_token_that_takes_too_long_is_demand)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    demand_of("code")->ttft_ms = 201;
    check_str(decide(), "");
    model_named("code")->ttft_ms = 200;
    check_str(decide(), "promote code, +wake code");
    demand_of("code")->ttft_ms = 200;
    check_str(decide(), "");
}

TAP_TEST(a_waiter_at_the_lock_is_demand_of_an_awake_model)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    store_named("code")->waiting = 1;
    check_str(decide(), "promote code");
}

TAP_TEST(a_sleeper_with_its_store_on_the_device_is_only_woken)
{
    make_full();
    wants("other", 1);
    demand_of("other")->running = 0;
    store_named("other")->held = 0;
    check_str(decide(), "wake other");
}

TAP_TEST(a_sleeper_whose_store_others_hold_is_woken)
{
    make_full();
    wants("other", 1);
    check_str(decide(), "");
    demand_of("other")->running = 0;
    check_str(decide(), "wake other");
    demand_of("other")->done_ms = MOMENT_AGO;
    check_str(decide(), "");
}

TAP_TEST(a_woken_model_that_left_the_device_is_woken_when_it_is_back)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    wants("code", 1);
    demand_of("code")->woken_ms = NOW - 1;
    check_str(decide(), "promote code, +wake code");
}

TAP_TEST(a_model_on_the_device_and_awake_gets_nothing)
{
    make_full();
    wants("batch", 100);
    check_str(decide(), "");
}

TAP_TEST(without_hooks_the_store_alone_moves)
{
    make_full();
    wants("code", 12);
    model_named("code")->sleep = model_named("code")->wake = NULL;
    model_named("batch")->sleep = model_named("batch")->wake = NULL;
    check_str(decide(), "drain batch>host, +promote code");
}

TAP_TEST(the_reason_names_the_leaver_and_the_model_it_leaves_for)
{
    make_full();
    wants("code", 12);
    decide();
    check_str(deeds[0].reason,
              "code has 12 requests waiting and is not on the device; batch (batch) leaves for it");
    check_str(deeds[2].reason,
              "code has 12 requests waiting and is not on the device; room was made for it");
    check_int(deeds[0].model, model_named("batch") - world.models);
    check_int(deeds[2].model, model_named("code") - world.models);
}

TAP_TEST(a_store_without_holder_is_demoted_at_once)
{
    make_full();
    wants("code", 12);
    demand_of("batch")->running = 0;
    demand_of("batch")->idle_since_ms = LONG_AGO;
    store_named("batch")->held = 0;
    check_str(decide(), "demote batch>host, +promote code, +wake code");
}

TAP_TEST(only_as_many_leave_as_are_needed)
{
    world_begin(100);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_store("a", "default", 10, ALL_BUT_DISK)->last_used_ms = LONG_AGO - 3;
    world_add_store("b", "default", 10, ALL_BUT_DISK)->last_used_ms = LONG_AGO - 2;
    world_add_store("c", "default", 40, ALL_BUT_DISK)->last_used_ms = LONG_AGO - 1;
    world_add_store("d", "default", 20, ALL_BUT_DISK);
    world.config.high = 100;
    wants("code", 1);
    /* 20 are free; a and b would be as good as c alone, and older. */
    check_str(decide(), "demote a>host, +demote b>host, +promote code, +wake code");
    store_named("b")->pinned = true;
    check_str(decide(), "demote c>host, +promote code, +wake code");
}

TAP_TEST(the_least_important_leave_first_and_of_these_the_idle_ones)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 20, GOVERNOR_HOST);
    world_add_model("high", POOL_CLASS_HIGH, 20, ALL_BUT_DISK);
    world_add_model("busy", POOL_CLASS_BATCH, 20, ALL_BUT_DISK);
    world_add_model("lazy", POOL_CLASS_BATCH, 20, ALL_BUT_DISK);
    world_add_model("lazier", POOL_CLASS_BATCH, 20, ALL_BUT_DISK);
    serves("busy");
    wants("code", 1);
    world.config.high = 100;
    demand_of("lazier")->idle_since_ms = LONG_AGO - 1;
    check_str(decide(), "sleep lazier, +drain lazier>host, +promote code, +wake code");
    store_named("lazier")->pinned = true;
    check_str(decide(), "sleep lazy, +drain lazy>host, +promote code, +wake code");
    store_named("lazy")->pinned = true;
    check_str(decide(), "sleep busy, +drain busy>host, +promote code, +wake code");
    store_named("busy")->pinned = true;
    check_str(decide(), "sleep high, +drain high>host, +promote code, +wake code");
}

TAP_TEST(in_a_class_the_idle_leave_before_stores_in_use_and_min_one_after_the_other_idle)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 20, GOVERNOR_HOST);
    world_add_model("busy", POOL_CLASS_BATCH, 25, ALL_BUT_DISK);
    world_add_model("kept", POOL_CLASS_BATCH, 25, ALL_BUT_DISK);
    world_add_model("idle", POOL_CLASS_BATCH, 25, ALL_BUT_DISK);
    wants("code", 1);
    serves("busy");
    store_named("busy")->last_used_ms = LONG_AGO - 2;
    demand_of("kept")->idle_since_ms = LONG_AGO - 1;
    model_named("kept")->min_one = true;
    check_str(decide(), "sleep idle, +drain idle>host, +promote code, +wake code");
    store_named("idle")->pinned = true;
    check_str(decide(), "sleep kept, +drain kept>host, +promote code, +wake code");
}

TAP_TEST(no_store_leaves_for_a_less_important_one)
{
    world_begin(80);
    world_add_model("batch", POOL_CLASS_BATCH, 40, GOVERNOR_HOST);
    world_add_model("code", POOL_CLASS_CRITICAL, 60, ALL_BUT_DISK);
    wants("batch", 1000);
    check_str(decide(), "");
    check_int(deed_count, 1);
    check_str(deeds[0].reason,
              "batch has 1000 requests waiting and is not on the device: it needs 40.0 GiB, 20.0 "
              "GiB are free, and the stores that may leave for it are too small");
}

TAP_TEST(the_report_of_no_room_names_the_min_of_other_pools)
{
    world_begin(80);
    world_add_model("batch", POOL_CLASS_BATCH, 40, GOVERNOR_HOST);
    world_add_model("code", POOL_CLASS_CRITICAL, 30, ALL_BUT_DISK);
    world_add_pool("chat", 20, 100);
    wants("batch", 1000);
    check_str(decide(), "");
    check_str(deeds[0].reason,
              "batch has 1000 requests waiting and is not on the device: it needs 40.0 GiB, 50.0 "
              "GiB are free, less 20.0 GiB that other pools' min keeps, and the stores that may "
              "leave for it are too small");
}

TAP_TEST(of_the_same_class_only_the_idle_leave)
{
    world_begin(80);
    world_add_model("a", POOL_CLASS_HIGH, 50, GOVERNOR_HOST);
    world_add_model("b", POOL_CLASS_HIGH, 50, ALL_BUT_DISK);
    wants("a", 1);
    check_str(decide(), "sleep b, +drain b>host, +promote a, +wake a");
    serves("b");
    check_str(decide(), "");
    demand_of("b")->running = 0;
    demand_of("b")->idle_since_ms = LONG_AGO;
    model_named("b")->min_one = true;
    check_str(decide(), "");
}

TAP_TEST(min_one_does_not_save_from_the_more_important)
{
    make_full();
    wants("code", 1);
    model_named("batch")->min_one = true;
    check_str(decide(), "sleep batch, +drain batch>host, +promote code, +wake code");
}

TAP_TEST(an_engine_without_metrics_that_holds_its_store_is_in_use)
{
    world_begin(80);
    world_add_model("a", POOL_CLASS_HIGH, 50, GOVERNOR_HOST);
    world_add_model("b", POOL_CLASS_HIGH, 50, ALL_BUT_DISK);
    wants("a", 1);
    model_named("b")->metrics = NULL;
    check_str(decide(), "");
    store_named("b")->held = 0;
    check_str(decide(), "demote b>host, +promote a, +wake a");
}

TAP_TEST(of_models_in_use_one_leaves_a_round_and_the_room_is_kept)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 70, GOVERNOR_HOST);
    world_add_model("small", POOL_CLASS_BATCH, 10, GOVERNOR_HOST);
    world_add_model("a", POOL_CLASS_BATCH, 30, ALL_BUT_DISK);
    world_add_model("b", POOL_CLASS_STANDARD, 30, ALL_BUT_DISK);
    serves("a");
    serves("b");
    wants("code", 1);
    wants("small", 1);
    check_str(decide(), "sleep a, +drain a>host");
    check(strstr(deeds[0].reason, "others later") != NULL);
    /* The next round: a is gone, and waits; code still comes first. */
    store_named("a")->places = GOVERNOR_HOST;
    store_named("a")->held = 0;
    store_named("a")->moved_ms = MOMENT_AGO;
    world.now.device_free += 30 * GIB;
    wants("a", 1);
    check_str(decide(),
              "sleep b, +drain b>host, +promote code, +wake code, promote small, +wake small");
}

TAP_TEST(the_most_important_comes_first_then_the_longest_away)
{
    world_begin(80);
    world_add_model("a", POOL_CLASS_BATCH, 50, GOVERNOR_HOST);
    world_add_model("b", POOL_CLASS_HIGH, 50, GOVERNOR_HOST);
    world_add_model("c", POOL_CLASS_HIGH, 50, GOVERNOR_HOST);
    wants("a", 100);
    wants("b", 1);
    wants("c", 1);
    check_str(decide(), "promote b, +wake b");
    store_named("c")->last_used_ms = LONG_AGO - 1;
    check_str(decide(), "promote c, +wake c");
}

TAP_TEST(free_memory_is_kept_while_room_is_made)
{
    make_full();
    world_add_model("small", POOL_CLASS_HIGH, 10, GOVERNOR_HOST);
    wants("code", 12);
    wants("small", 1);
    store_named("batch")->moved_ms = MOMENT_AGO;
    check_str(decide(), "");
    check(strstr(deeds[0].reason, "moved a moment ago") != NULL);
    check(strstr(deeds[1].reason, "the free memory is kept for code") != NULL);
    demand_of("batch")->is_known = false; /* unknown for how long: small need not wait for that */
    check_str(decide(), "promote small, +wake small");
}

TAP_TEST(room_is_kept_for_a_store_that_may_return_soon)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("batch", POOL_CLASS_BATCH, 41, GOVERNOR_HOST);
    wants("code", 1);
    wants("batch", 1);
    store_named("code")->moved_ms = MOMENT_AGO;
    check_str(decide(), "");
    store_named("batch")->bytes = 40 * GIB;
    check_str(decide(), "promote batch, +wake batch");
}

TAP_TEST(it_leaves_to_the_tier_with_a_copy_or_room)
{
    make_full();
    model_named("other")->class = POOL_CLASS_STANDARD;
    wants("code", 12);
    store_named("batch")->places = GOVERNOR_DEVICE;
    check(strstr(decide(), "drain batch>host") != NULL);
    world.now.host_free = 39 * GIB;
    check(strstr(decide(), "sleep other, +drain other>host") != NULL);
    store_named("other")->pinned = true;
    check_str(decide(), "");
    world.now.disk_bytes = 100 * GIB;
    world.now.disk_free = 40 * GIB;
    check(strstr(decide(), "drain batch>disk") != NULL);
    world.now.disk_free = 0;
    store_named("batch")->places = GOVERNOR_DEVICE | GOVERNOR_DISK;
    check(strstr(decide(), "drain batch>disk") != NULL);
}

TAP_TEST(memory_of_graphs_is_discarded_and_never_copied)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_store("graphs", "default", 70, GOVERNOR_DEVICE)->scratch = true;
    check_str(decide(), ""); /* no spare is made */
    wants("code", 1);
    check_str(decide(), "demote graphs>none, +promote code, +wake code");
    world.now.host_free = world.now.host_bytes = 0; /* it needs no room elsewhere */
    check_str(decide(), "demote graphs>none, +promote code, +wake code");
}

TAP_TEST(a_store_without_bytes_is_reported)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, 0);
    wants("code", 2);
    check_str(decide(), "");
    check_str(deeds[0].reason,
              "code has 2 requests waiting and is not on the device: its store has "
              "no bytes; load it");
    world.stores[0].name = "gone";
    check_str(decide(), "");
    check_str(deeds[0].reason, "code has demand, and the mount has no store code");
}

TAP_TEST(reasons_hold_no_control_characters)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_store("\033[2Jx", "default", 70, ALL_BUT_DISK);
    wants("code", 1);
    decide();
    check_int(deeds[0].kind, GOVERNOR_DEMOTE);
    check(strstr(deeds[0].reason, "store ?[2Jx (standard, idle) leaves for it") != NULL);
}

/* ---- the limits of a round ------------------------------------------------------------------- */

/* As many stores as a mount has, of 1 GiB each; the first is a model's, and needs half of all. */
static void make_many(void)
{
    static struct governor_store many[GOVERNOR_MAX_STORES];
    static char names[GOVERNOR_MAX_STORES][8];

    world_begin(GOVERNOR_MAX_STORES);
    world_add_model("code", POOL_CLASS_CRITICAL, GOVERNOR_MAX_STORES / 2, GOVERNOR_HOST);
    many[0] = world.stores[0];
    for (size_t i = 1; i < GOVERNOR_MAX_STORES; i++) {
        snprintf(names[i], sizeof names[i], "s%04zu", i);
        many[i] = many[0];
        many[i].name = names[i];
        many[i].bytes = GIB;
        many[i].places = ALL_BUT_DISK;
        many[i].last_used_ms = LONG_AGO;
    }
    world.now.stores = many;
    world.now.store_count = GOVERNOR_MAX_STORES;
    world.now.device_free = GIB;
    wants("code", 1);
}

TAP_TEST(actions_beyond_a_round_are_for_the_next)
{
    make_many();
    decide();
    check_int(deed_count, GOVERNOR_MAX_DEEDS);
    for (size_t i = 0; i < deed_count; i++)
        require(deeds[i].kind == GOVERNOR_DEMOTE);
    check_str(deeds[0].store, "s0001");
    check(strstr(deeds[0].reason, "others later") != NULL);
    world.now.device_free = (GOVERNOR_MAX_STORES / 2 - 3) * GIB;
    world.config.high = 100;
    check_str(decide(), "demote s0001>host, +demote s0002>host, +demote s0003>host, +promote code, "
                        "+wake code");
}

TAP_TEST(more_stores_than_a_mount_has_are_not_looked_at)
{
    make_full();
    wants("code", 1);
    world.now.store_count = GOVERNOR_MAX_STORES + 1;
    check_str(decide(), "");
}
