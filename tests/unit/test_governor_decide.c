/* SPDX-License-Identifier: Apache-2.0 */
/* What the governor would do: one situation, and the deeds that it leads to. */
#include "governor_fixture.h"

/* A device that batch and other, which both serve, nearly fill; code is on the host. */
static void make_full(void)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("batch", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    world_add_model("other", POOL_CLASS_CRITICAL, 30, ALL_BUT_DISK);
    serves("batch");
    serves("other");
}

/* ---- (1) who is left alone ------------------------------------------------------------------ */

TAP_TEST(without_demand_nothing_is_done)
{
    make_full();
    check_str(decide(), "");
}

TAP_TEST(a_model_whose_metrics_are_unknown_is_not_brought)
{
    make_full();
    wants("code", 12);
    demand_of("code")->is_known = false;
    check_str(decide(), "");
}

TAP_TEST(a_model_whose_metrics_are_unknown_is_no_victim)
{
    make_full();
    wants("code", 12);
    demand_of("batch")->is_known = false;
    check_str(decide(), "");
    check_int(deeds[0].kind, GOVERNOR_REPORT);
}

TAP_TEST(who_moved_less_than_a_cooldown_ago_is_no_victim)
{
    make_full();
    wants("code", 12);
    store_named("batch")->moved_ms = NOW - 29999;
    check_str(decide(), "");
    store_named("batch")->moved_ms = NOW - 30000;
    check_str(decide(), "sleep batch, +drain batch>host, +promote code, +wake code");
}

TAP_TEST(who_left_less_than_a_cooldown_ago_does_not_come_back)
{
    make_full();
    wants("code", 12);
    store_named("code")->moved_ms = MOMENT_AGO;
    check_str(decide(), "");
}

TAP_TEST(who_was_woken_less_than_a_cooldown_ago_is_no_victim)
{
    make_full();
    wants("code", 12);
    demand_of("batch")->done_ms = MOMENT_AGO;
    check_str(decide(), "");
}

TAP_TEST(a_failure_is_not_repeated_for_a_cooldown)
{
    make_full();
    wants("code", 12);
    demand_of("code")->failed_ms = MOMENT_AGO;
    check_str(decide(), "");
    demand_of("code")->failed_ms = NOW - 30000;
    check_str(decide(), "sleep batch, +drain batch>host, +promote code, +wake code");
    demand_of("batch")->failed_ms = MOMENT_AGO;
    check_str(decide(), "");
}

/* ---- (2) who has demand --------------------------------------------------------------------- */

TAP_TEST(who_waits_and_fits_comes_and_is_woken)
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

TAP_TEST(a_waiter_at_the_lock_is_demand_of_who_is_awake)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    store_named("code")->waiting = 1;
    check_str(decide(), "promote code");
}

TAP_TEST(who_sleeps_over_a_store_on_the_device_is_only_woken)
{
    make_full();
    wants("other", 1);
    demand_of("other")->running = 0;
    store_named("other")->held = 0;
    check_str(decide(), "wake other");
}

TAP_TEST(who_sleeps_over_a_store_that_others_hold_is_woken)
{
    make_full();
    wants("other", 1);
    check_str(decide(), "");
    demand_of("other")->running = 0;
    check_str(decide(), "wake other");
    demand_of("other")->done_ms = MOMENT_AGO;
    check_str(decide(), "");
}

TAP_TEST(who_was_woken_is_not_woken_again_while_it_takes_its_time)
{
    make_full();
    wants("other", 1);
    demand_of("other")->running = 0;
    demand_of("other")->woken_ms = NOW - 10 * GOVERNOR_WAKING_MS;
    check_str(decide(), ""); /* somebody holds its store */
    store_named("other")->held = 0;
    check_str(decide(), "wake other");
    demand_of("other")->woken_ms = NOW - GOVERNOR_WAKING_MS + 1;
    check_str(decide(), "");
}

TAP_TEST(who_was_woken_and_has_left_the_device_is_woken_when_it_is_back)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_HIGH, 40, GOVERNOR_HOST);
    wants("code", 1);
    demand_of("code")->woken_ms = NOW - 1;
    check_str(decide(), "promote code, +wake code");
}

TAP_TEST(who_is_on_the_device_and_awake_gets_nothing)
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

TAP_TEST(who_goes_for_whom_is_told)
{
    make_full();
    wants("code", 12);
    decide();
    check_str(deeds[0].reason,
              "code has 12 requests waiting and is not on the device; batch (batch) goes for it");
    check_str(deeds[2].reason,
              "code has 12 requests waiting and is not on the device; room was made for it");
    check_int(deeds[0].model, model_named("batch") - world.models);
    check_int(deeds[2].model, model_named("code") - world.models);
}

TAP_TEST(a_store_that_nobody_holds_is_demoted_at_once)
{
    make_full();
    wants("code", 12);
    demand_of("batch")->running = 0;
    demand_of("batch")->idle_since_ms = LONG_AGO;
    store_named("batch")->held = 0;
    check_str(decide(), "demote batch>host, +promote code, +wake code");
}

TAP_TEST(only_as_many_go_as_are_needed)
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

TAP_TEST(the_least_important_go_first_and_of_these_the_idle_ones)
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

TAP_TEST(of_one_class_the_idle_go_before_those_in_use_and_min_one_behind_the_other_idle)
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

TAP_TEST(nobody_goes_for_the_less_important)
{
    world_begin(80);
    world_add_model("batch", POOL_CLASS_BATCH, 40, GOVERNOR_HOST);
    world_add_model("code", POOL_CLASS_CRITICAL, 60, ALL_BUT_DISK);
    wants("batch", 1000);
    check_str(decide(), "");
    check_int(deed_count, 1);
    check_str(deeds[0].reason,
              "batch has 1000 requests waiting and is not on the device: it needs 40.0 GiB, 20.0 "
              "GiB are free, and who may go for it does not make up for it");
}

TAP_TEST(of_the_same_class_only_the_idle_go)
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

TAP_TEST(of_models_in_use_one_goes_a_round_and_the_room_is_kept)
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

TAP_TEST(a_second_one_in_use_does_not_go_for_another_wanter)
{
    world_begin(80);
    world_add_model("c1", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("c2", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_model("a", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    world_add_model("b", POOL_CLASS_BATCH, 40, ALL_BUT_DISK);
    serves("a");
    serves("b");
    wants("c1", 1);
    wants("c2", 1);
    check_str(decide(), "sleep a, +drain a>host, +promote c1, +wake c1");
}

TAP_TEST(the_most_important_comes_first_then_who_was_away_for_longest)
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

TAP_TEST(what_may_not_leave_is_no_victim)
{
    make_full();
    model_named("other")->class = POOL_CLASS_STANDARD;
    wants("code", 12);
    store_named("batch")->pinned = true;
    check_str(decide(), "sleep other, +drain other>host, +promote code, +wake code");
    struct governor_store *other = store_named("other");
    other->moving = true;
    check_str(decide(), "");
    other->moving = false, other->suspect = true;
    check_str(decide(), "");
    other->suspect = false, other->draining = true;
    check_str(decide(), "");
    other->draining = false, other->committed = false;
    check_str(decide(), "");
}

TAP_TEST(a_store_of_no_model_goes_only_when_nobody_holds_it)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_store("files", "default", 70, ALL_BUT_DISK)->held = 1;
    wants("code", 1);
    check_str(decide(), "");
    store_named("files")->held = 0;
    check_str(decide(), "demote files>host, +promote code, +wake code");
    store_named("files")->waiting = 1;
    check_str(decide(), "");
}

TAP_TEST(what_is_free_is_kept_while_room_comes)
{
    make_full();
    world_add_model("small", POOL_CLASS_HIGH, 10, GOVERNOR_HOST);
    wants("code", 12);
    wants("small", 1);
    store_named("batch")->moved_ms = MOMENT_AGO;
    check_str(decide(), "");
    check(strstr(deeds[0].reason, "moved a moment ago") != NULL);
    check(strstr(deeds[1].reason, "what is free is kept for code") != NULL);
    demand_of("batch")->is_known = false; /* nobody knows when: small need not wait for that */
    check_str(decide(), "promote small, +wake small");
}

TAP_TEST(room_is_kept_for_who_may_come_back_soon)
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

TAP_TEST(it_goes_where_there_is_a_copy_or_room)
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

TAP_TEST(reasons_hold_nothing_that_a_terminal_obeys)
{
    world_begin(80);
    world_add_model("code", POOL_CLASS_CRITICAL, 40, GOVERNOR_HOST);
    world_add_store("\033[2Jx", "default", 70, ALL_BUT_DISK);
    wants("code", 1);
    decide();
    check_int(deeds[0].kind, GOVERNOR_DEMOTE);
    check(strstr(deeds[0].reason, "store ?[2Jx (standard, idle) goes for it") != NULL);
}

/* ---- pools' limits -------------------------------------------------------------------------- */

TAP_TEST(what_lacks_room_in_its_pool_gets_it_from_its_pool)
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

TAP_TEST(what_other_pools_are_guaranteed_is_not_taken)
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

TAP_TEST(nobody_goes_of_whom_his_pool_is_guaranteed_a_part)
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

TAP_TEST(what_a_pool_is_guaranteed_shrinks_by_what_comes)
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

/* ---- (3) the watermarks --------------------------------------------------------------------- */

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

TAP_TEST(below_high_nothing_leaves)
{
    make_idle(9);
    check_str(decide(), "");
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

TAP_TEST(above_high_nobody_goes_who_could_stay)
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

TAP_TEST(above_high_only_who_is_idle_for_a_cooldown_and_may_go_does)
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

TAP_TEST(whose_idle_time_is_over_goes_for_anybody)
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

/* ---- (4) ahead ------------------------------------------------------------------------------ */

TAP_TEST(spares_are_made_of_what_is_not_critical_while_the_host_has_room)
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

TAP_TEST(four_spares_are_made_a_round)
{
    static const char *const names[] = {"s1", "s2", "s3", "s4", "s5"};

    world_begin(100);
    for (size_t i = 0; i < 5; i++)
        world_add_store(names[i], "default", 1, GOVERNOR_DEVICE);
    check_str(decide(), "spare s1>host, spare s2>host, spare s3>host, spare s4>host");
}

TAP_TEST(spares_wait_while_somebody_moves)
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
    check_str(deeds[0].reason, "store l2 was granted 7 times of late, number 2 of its pool; its "
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

TAP_TEST(adapters_come_up_to_low_and_to_what_their_pool_may_have)
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

/* ---- (5) pools' max ------------------------------------------------------------------------- */

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
    check_str(deeds[0].reason, "m.code lacks room in pool code: first the max of batch comes down "
                               "from 60.0 GiB to 55.0 GiB");
    /* The next round: it has come down, and its 55 GiB are all that it uses. */
    world.pools[1].max_bytes = 55 * GIB;
    world.pools[1].changed_ms = MOMENT_AGO;
    check_str(decide(), "max code=45");
}

TAP_TEST(a_max_is_not_raised_before_the_use_has_come_down)
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

TAP_TEST(a_max_is_never_lowered_below_min_or_what_its_models_need)
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

TAP_TEST(the_more_important_gives_only_what_it_does_not_use)
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

TAP_TEST(what_a_round_cannot_hold_is_for_the_next)
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
