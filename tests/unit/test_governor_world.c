/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the governor's snapshot of a mount and its engines, and the commands that it makes of
 * deeds. */
#include "governor/act.h"
#include "governor/observe.h"
#include "governor/shell.h"

#include "base/failure.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

static struct governor_past past;
static struct governor_config config;
static struct governor_seen seen;
static struct failure failure;
static char told[4096];

static void tell(const char *text)
{
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", text);
}

static void configure(const char *text)
{
    governor_config_free(&config);
    require(governor_config_parse(text, strlen(text), &config, &failure) == 0);
    require(governor_past_follow(&past, &config) == 0);
}

static void ask(uint64_t now_ms)
{
    told[0] = '\0';
    check_int(governor_ask(&past, &config, "/nowhere", now_ms, tell), 0);
}

static int see(const char *text, uint64_t now_ms)
{
    json_t *look = json_loads(text, 0, NULL);
    int error;

    require(look != NULL);
    governor_seen_free(&seen);
    error = governor_see(&past, &config, look, now_ms, &seen, &failure);
    json_decref(look);
    return error;
}

static void end(void)
{
    governor_seen_free(&seen);
    governor_past_free(&past);
    governor_config_free(&config);
}

#define LOOK(device, stores, pools)                                                       \
    "{\"mount\":\"/mnt/g\",\"health\":\"ok\",\"device\":{" device "},\"stores\":[" stores \
    "],\"pools\":[" pools "]}"
#define A_STORE(name, more) "{\"name\":\"" name "\",\"pool\":\"p\",\"sessions\":[]" more "}"

TAP_AFTER_EACH(end)

TAP_TEST(a_mount_is_seen_as_its_files_tell)
{
    configure("");
    require(
        see(LOOK("\"total_bytes\":100,\"used_bytes\":30,\"reserved_bytes\":5,\"free_bytes\":50,"
                 "\"host_total_bytes\":200,\"host_used_bytes\":60,\"spill_total_bytes\":300,"
                 "\"spill_used_bytes\":400",
                 "{\"name\":\"a\",\"pool\":\"p\",\"bytes\":7,\"committed\":true,"
                 "\"pinned\":true,\"draining\":false,\"suspect\":true,\"held\":2,"
                 "\"residency\":[\"device\",\"disk\"],\"moving\":{\"to\":\"host\"},"
                 "\"last_used_ms\":11,\"moved_ms\":12,\"sessions\":[{\"status\":\"held\"},"
                 "{\"status\":\"waiting\"},{\"status\":\"waiting\"}]},"
                 "{\"name\":\"gone\",\"errno\":\"EIO\",\"error\":\"x\",\"sessions\":[]},"
                 "{\"name\":\"b\",\"pool\":\"q\",\"moving\":null,\"moved_ms\":null,"
                 "\"last_used_ms\":null,\"residency\":[],\"scratch\":true,\"sessions\":[]}",
                 "{\"name\":\"p\",\"class\":\"high\",\"min\":1,\"max\":9,\"used\":3,\"slots\":4,"
                 "\"resident\":1},{\"name\":\"q\",\"class\":\"batch\",\"max\":null,"
                 "\"slots\":null}"),
            99) == 0);
    const struct governor_snapshot *now = &seen.snapshot;
    check_int(now->now_ms, 99);
    check_int(now->device_bytes, 100);
    check_int(now->device_free, 50); /* other programs use some */
    check_int(now->host_free, 140);
    check_int(now->disk_free, 0);
    require(now->store_count == 2 && now->pool_count == 2);
    const struct governor_store *a = &now->stores[0], *b = &now->stores[1];
    check_str(a->name, "a");
    check_str(a->pool, "p");
    check(a->committed && a->pinned && !a->draining && a->suspect && a->moving);
    check(a->bytes == 7 && a->held == 2 && a->waiting == 2);
    check(a->places == (GOVERNOR_DEVICE | GOVERNOR_DISK));
    check(a->last_used_ms == 11 && a->moved_ms == 12);
    check_str(b->name, "b");
    check(b->scratch && !a->scratch);
    check(!b->moving && b->places == 0 && b->last_used_ms == 0 && b->moved_ms == 0);
    check(now->pools[0].class == POOL_CLASS_HIGH && now->pools[0].min_bytes == 1);
    check(now->pools[0].max_bytes == 9 && now->pools[0].slots == 4);
    check(now->pools[1].class == POOL_CLASS_BATCH && now->pools[1].max_bytes == UINT64_MAX);
    check_int(now->pools[1].slots, 0);
}

TAP_TEST(a_mount_that_cannot_be_governed_is_named_with_the_reason)
{
    static const struct {
        const char *look;
        int error;
        const char *says;
    } looks[] = {
        {"{\"mount\":\"/m\",\"health\":\"dead\",\"device\":null}", -ENOTCONN, "/m: its daemon"},
        {"{\"mount\":\"/m\",\"health\":\"silent\",\"device\":null}", -EIO,
         "/m: it does not answer"},
        {"{\"mount\":\"/m\",\"health\":\"no access\",\"device\":null,\"error\":\"Permission "
         "denied\"}",
         -EIO, "Permission denied"},
        {"{\"mount\":\"/m\",\"health\":\"ok\",\"device\":{\"draining\":true}}", -EIO, "drained"},
        {"{\"mount\":\"/m\",\"health\":\"ok\",\"device\":{\"fenced\":true}}", -EIO, "fenced"},
        {"{}", -EIO, "no answer"},
    };

    configure("");
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        check_int(see(looks[i].look, 1), looks[i].error);
        check(strstr(failure.text, looks[i].says) != NULL);
    }
}

TAP_TEST(an_engine_whose_metrics_fail_is_unknown_and_reported_once)
{
    configure("model a store=a metrics='echo refused >&2; exit 7'\n"
              "model b store=b metrics='echo vllm:num_requests_waiting 4'\n"
              "model c store=c metrics='echo hello'\n");
    ask(1);
    check(strstr(told, "a: its metrics (") != NULL && strstr(told, "refused") != NULL);
    check(strstr(told, "c: its metrics (") != NULL && strstr(told, "sglang") != NULL);
    check(strstr(told, "b: ") == NULL);
    require(see(LOOK("", "", ""), 1) == 0);
    check(!seen.demand[0].is_known && seen.demand[1].is_known && !seen.demand[2].is_known);
    check_int(seen.demand[1].waiting, 4);
    ask(2);
    check_str(told, "");
}

TAP_TEST(without_metrics_waiters_are_demand_and_an_engine_that_holds_is_not_idle)
{
    configure("model a store=a; model b store=b; model c store=c");
    ask(1);
    require(
        see(LOOK("",
                 "{\"name\":\"a\",\"sessions\":[{\"status\":\"waiting\"}]}," A_STORE(
                     "b", ",\"held\":1,\"last_used_ms\":40") "," A_STORE("c",
                                                                         ",\"last_used_ms\":40"),
                 ""),
            50) == 0);
    for (size_t i = 0; i < 3; i++)
        check(seen.demand[i].is_known);
    check(seen.demand[0].waiting == 1 && seen.demand[0].idle_since_ms == 0);
    check(seen.demand[1].waiting == 0 && seen.demand[1].idle_since_ms == 0);
    check_int(seen.demand[2].idle_since_ms, 40);
}

TAP_TEST(an_engine_is_waking_until_it_serves_or_has_nothing_to_serve_or_sleeps_or_leaves)
{
    char there[] = LOOK("", A_STORE("a", ",\"residency\":[\"device\"]"), "");
    char away[] = LOOK("", A_STORE("a", ",\"residency\":[\"host\"]"), "");
    struct governor_deed wake = {.kind = GOVERNOR_WAKE, .model = 0, .store = "a"};
    struct governor_deed sleep = {.kind = GOVERNOR_SLEEP, .model = 0, .store = "a"};
    const char *const ends[] = {
        "echo vllm:num_requests_waiting 3; echo vllm:num_requests_running 1",
        "echo vllm:num_requests_waiting 0; echo vllm:num_requests_running 0"};
    char conf[256];

    for (size_t i = 0; i < 2; i++) {
        configure("model a store=a metrics='echo vllm:num_requests_waiting 3; echo "
                  "vllm:num_requests_running 0'");
        ask(50);
        governor_note(&past, &wake, -EIO, 60);
        require(see(there, 65) == 0);
        check_int(seen.demand[0].woken_ms, 0);
        governor_note(&past, &wake, 0, 70);
        require(see(there, 75) == 0);
        check_int(seen.demand[0].woken_ms, 70);
        snprintf(conf, sizeof conf, "model a store=a metrics='%s'", ends[i]);
        configure(conf);
        ask(80);
        require(see(there, 85) == 0);
        check_int(seen.demand[0].woken_ms, 0);
    }
    configure("model a store=a metrics='echo vllm:num_requests_waiting 3'");
    ask(90);
    governor_note(&past, &wake, 0, 95);
    require(see(away, 96) == 0);
    check_int(seen.demand[0].woken_ms, 0);
    governor_note(&past, &wake, 0, 97);
    governor_note(&past, &sleep, 0, 98);
    require(see(there, 99) == 0);
    check_int(seen.demand[0].woken_ms, 0);
}

TAP_TEST(an_engine_is_idle_since_it_was_first_seen_without_requests)
{
    char held[] = LOOK("", A_STORE("a", ",\"held\":1,\"last_used_ms\":40"), "");
    struct governor_deed sleep = {.kind = GOVERNOR_SLEEP, .model = 0, .store = "a"};

    configure("model a store=a metrics='echo vllm:num_requests_waiting 0'");
    ask(50);
    require(see(held, 50) == 0);
    check_int(seen.demand[0].idle_since_ms, 50);
    require(see(held, 60) == 0);
    check_int(seen.demand[0].idle_since_ms, 50);
    /* A model keeps its past under another config that names it. */
    governor_note(&past, &sleep, 0, 70);
    governor_note(&past, &sleep, -EIO, 80);
    configure("model z store=z; model a store=a metrics='echo vllm:num_requests_running 1; echo "
              "vllm:num_requests_waiting 0'");
    require(see(held, 90) == 0);
    check_int(seen.demand[1].idle_since_ms, 50);
    check(seen.demand[1].done_ms == 70 && seen.demand[1].failed_ms == 80);
    check(seen.demand[0].done_ms == 0 && seen.demand[0].failed_ms == 0);
    ask(95);
    require(see(held, 95) == 0);
    check_int(seen.demand[1].idle_since_ms, 0);
}

TAP_TEST(an_engine_that_comes_is_not_idle_since_the_one_before_it)
{
    char held[] = LOOK("", A_STORE("a", ",\"held\":1,\"last_used_ms\":40"), "");
    char left[] = LOOK("", A_STORE("a", ",\"held\":0,\"last_used_ms\":55"), "");
    static const char *const tells = "model a store=a metrics='echo vllm:num_requests_waiting 0'";

    configure(tells);
    ask(50);
    require(see(held, 50) == 0);
    require(see(left, 60) == 0);
    check_int(seen.demand[0].idle_since_ms, 55);
    require(see(held, 70) == 0);
    check_int(seen.demand[0].idle_since_ms, 70);
    /* It has no metrics until it has its store. */
    configure("model a store=a metrics=false");
    ask(80);
    require(see(left, 80) == 0);
    require(see(held, 90) == 0);
    check_int(seen.demand[0].idle_since_ms, 0);
    configure(tells);
    ask(100);
    require(see(held, 100) == 0);
    check_int(seen.demand[0].idle_since_ms, 100);
    /* Missing metrics for a moment do not mean that it restarted. */
    configure("model a store=a metrics=false");
    ask(110);
    require(see(held, 110) == 0);
    configure(tells);
    ask(120);
    require(see(held, 120) == 0);
    check_int(seen.demand[0].idle_since_ms, 100);
}

TAP_TEST(grants_are_those_of_the_window)
{
    struct governor_grants grants = {0};
    uint64_t half_ms = GOVERNOR_WINDOW_MS / 2, now_ms = 1000000;
    static const char *const texts[] = {"gmsfs_store_grants_total{store=\"b\",mode=\"ro\"} 5\n"
                                        "gmsfs_store_grants_total{store=\"b\",mode=\"rw\"} 1\n"
                                        "gmsfs_store_grants_total{store=\"a\",mode=\"ro\"} 100\n",
                                        "gmsfs_store_grants_total{store=\"a\",mode=\"ro\"} 103\n",
                                        "gmsfs_store_grants_total{store=\"a\",mode=\"ro\"} 110\n",
                                        "gmsfs_store_grants_total{store=\"a\",mode=\"ro\"} 2\n"};
    static const uint64_t of_a[] = {100, 3, 7, 2};

    for (size_t i = 0; i < 4; i++) {
        check_int(governor_grants_take(&grants, texts[i], strlen(texts[i]), now_ms + i * half_ms),
                  0);
        if (i == 0)
            check_int(governor_grants_count(&grants, "b"), 6);
        check_int(governor_grants_count(&grants, "a"), of_a[i]);
    }
    check_int(governor_grants_count(&grants, "none"), 0);
    governor_grants_free(&grants);
}

TAP_TEST(a_quoted_word_is_one_word)
{
    static const char *const words[][2] = {{"/mnt/gms-0/a.b:c", "/mnt/gms-0/a.b:c"},
                                           {"", "''"},
                                           {"a b", "'a b'"},
                                           {"$(x)`y`", "'$(x)`y`'"},
                                           {"it's", "'it'\\''s'"},
                                           {"~", "'~'"}};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        char *quoted = shell_quote(words[i][0]);

        check_str(quoted, words[i][1]);
        free(quoted);
    }
}

static void check_command(struct governor_deed deed, const char *command)
{
    const struct governor_place place = {.mount = "/mnt/it's", .program = "gmsfs"};
    char *made = governor_deed_command(&deed, &config, &place);

    check_str(made, command);
    free(made);
}

TAP_TEST(deeds_are_commands_of_the_shell)
{
    configure("model m store=a sleep='curl -sX POST :1/sleep' wake='true; false &'");
    check_command((struct governor_deed){.kind = GOVERNOR_SLEEP, .store = "a"},
                  "sh -c 'curl -sX POST :1/sleep'");
    check_command((struct governor_deed){.kind = GOVERNOR_WAKE, .store = "a"},
                  "sh -c 'true; false &'");
    check_command((struct governor_deed){.kind = GOVERNOR_PROMOTE, .store = "a"},
                  "gmsfs promote -q --timeout 300 '/mnt/it'\\''s/a'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_DEMOTE, .store = "a", .tier = GOVERNOR_HOST},
        "gmsfs demote -q --to host --timeout 300 '/mnt/it'\\''s/a'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_DRAIN, .store = "a", .tier = GOVERNOR_DISK},
        "gmsfs drain -q --then demote --to disk --timeout 30 '/mnt/it'\\''s/a'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_DEMOTE, .store = "a", .tier = GOVERNOR_NONE},
        "gmsfs demote -q --to none --timeout 300 '/mnt/it'\\''s/a'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_DRAIN, .store = "a", .tier = GOVERNOR_NONE},
        "gmsfs drain -q --then none --timeout 30 '/mnt/it'\\''s/a'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_SPARE, .store = "a", .tier = GOVERNOR_HOST},
        "echo +host >'/mnt/it'\\''s/a/residency'");
    check_command((struct governor_deed){.kind = GOVERNOR_POOL_MAX, .store = "p", .bytes = 5},
                  "echo 'p max=5' >'/mnt/it'\\''s/pools'");
    check_command(
        (struct governor_deed){.kind = GOVERNOR_POOL_MAX, .store = "p", .bytes = UINT64_MAX},
        "echo 'p max=max' >'/mnt/it'\\''s/pools'");
    check_command((struct governor_deed){.kind = GOVERNOR_REPORT}, "");
}

TAP_TEST(a_deed_that_fails_is_reported_with_its_name_its_cause_and_the_next_attempt)
{
    const struct governor_place place = {.mount = "/m", .program = "gmsfs"};
    struct governor_deed deed = {.kind = GOVERNOR_WAKE, .store = "a"};

    configure("model m store=a sleep=true wake='echo no route >&2; exit 7'");
    check_int(governor_do(&deed, &config, &place, &failure), -EIO);
    check(strstr(failure.text, "cannot wake m: failed with status 7: no route;") != NULL);
    check(strstr(failure.text, "cooldown") != NULL);
    deed.kind = GOVERNOR_SLEEP;
    check_int(governor_do(&deed, &config, &place, &failure), 0);
}
