/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A day of a GPU of 80 GiB with four models that do not fit together, second by second in virtual
 * time: requests come by a trace, engines on the device serve them, and the governor's deeds are
 * carried out one after the other, at the rates below. No model flaps, the critical model waits for
 * a bounded time, and batch gets the rest. Governors that are broken in one respect run the same
 * day, and break one of these bounds.
 */
#include "governor_fixture.h"

#define DAY        86400u
#define HOUR       3600u
#define CODE       0u
#define CHAT       1u
#define DOCS       2u
#define BATCH      3u
#define MODELS     4u
#define CAPACITY   8u  /* requests a second of an engine that is awake */
#define UP_GIB_S   50u /* host to device */
#define DOWN_GIB_S 10u /* a first copy to the host; with a spare a store is only dropped */
#define HOOK_MS    1000u
#define COOLDOWN_S 30u
#define INTERVAL_S 10u
#define MOVES_S    10u /* maximum of a round of deeds; a test checks it */
#define MOST_MOVES (HOUR / (COOLDOWN_S + INTERVAL_S)) /* of a store in an hour */
/* Possible leavers came a moment ago; then a round begins, after the one in progress. */
#define CODE_WAIT_S   (COOLDOWN_S + INTERVAL_S + MOVES_S)
#define OTHERS_WAIT_S 300u /* chat and docs take turns, when the other one has a pause */
#define DAYS          5u

struct engine {
    bool is_awake;
    bool is_active; /* its users send requests */
    uint64_t until_s;
    uint64_t queue, served;
    uint16_t came[DAY]; /* requests that arrived in that second */
    uint32_t oldest_s;  /* arrival of the oldest waiting request */
    uint64_t longest_wait_s;
    unsigned moves, most_moves; /* in this hour; maximum of any hour */
    uint64_t present_s;
};

struct day {
    struct engine engines[MODELS];
    uint64_t now_ms;     /* since midnight */
    uint64_t done_at_ms; /* of the deed in progress */
    uint64_t longest_round_ms;
    /* Time without demand of other models; of it, time in which batch serves */
    uint64_t rest_s, batch_rest_s;
    size_t at, count;
    bool last_done;
};

static struct day day;
static struct governor_deed todo[GOVERNOR_MAX_DEEDS];

/* Times at which users are active, and how long they are active and pause. */
static const struct {
    const char *name;
    enum pool_class class;
    uint64_t gib, idle_s;
    uint64_t from_h, to_h, active_s, pause_s, requests;
} kinds[MODELS] = {
    {"code", POOL_CLASS_CRITICAL, 30, 600, 7, 20, 300, 900, 3},
    {"chat", POOL_CLASS_HIGH, 35, 120, 8, 22, 40, 25, 2},
    {"docs", POOL_CLASS_HIGH, 40, 120, 9, 17, 30, 30, 2},
    {"batch", POOL_CLASS_BATCH, 45, 0, 0, 24, DAY, 1, 1},
};

static uint64_t day_ms(void)
{
    return NOW + day.now_ms;
}

/* ---- users and engines ---------------------------------------------------------------------- */

static uint64_t draw_requests(size_t model, uint64_t second)
{
    struct engine *engine = &day.engines[model];

    if (second < kinds[model].from_h * HOUR || second >= kinds[model].to_h * HOUR)
        return 0;
    if (second >= engine->until_s) {
        engine->is_active = !engine->is_active;
        uint64_t mean_s = engine->is_active ? kinds[model].active_s : kinds[model].pause_s;
        engine->until_s = second + mean_s / 2 + below(mean_s);
    }
    return engine->is_active ? below(2 * kinds[model].requests + 1) : 0;
}

/* First come, first served. */
static uint64_t serve_requests(struct engine *engine)
{
    uint64_t served = engine->queue < CAPACITY ? engine->queue : CAPACITY, left = served;

    while (left > 0) {
        uint64_t some = engine->came[engine->oldest_s];

        some = some < left ? some : left;
        engine->came[engine->oldest_s] -= (uint16_t)some;
        left -= some;
        if (left > 0)
            engine->oldest_s++;
    }
    engine->queue -= served;
    engine->served += served;
    return served;
}

static void note_wait(struct engine *engine, uint64_t second)
{
    while (engine->oldest_s < second && engine->came[engine->oldest_s] == 0)
        engine->oldest_s++;
    if (engine->queue > 0 && second - engine->oldest_s > engine->longest_wait_s)
        engine->longest_wait_s = second - engine->oldest_s;
}

static void live_a_second(uint64_t second)
{
    bool others_want = false;

    for (size_t i = 0; i < MODELS; i++) {
        struct engine *engine = &day.engines[i];
        uint64_t came = draw_requests(i, second), served = 0;

        engine->came[second] = (uint16_t)came;
        engine->queue += came;
        note_wait(engine, second);
        if (engine->is_awake)
            served = serve_requests(engine);
        others_want |= i != BATCH && (engine->queue > 0 || served > 0);
        world.demand[i].running = served;
        world.demand[i].waiting = engine->queue;
        if (served > 0 || engine->queue > 0)
            world.demand[i].idle_since_ms = 0;
        else if (world.demand[i].idle_since_ms == 0)
            world.demand[i].idle_since_ms = day_ms();
        if (engine->is_awake)
            world.stores[i].last_used_ms = day_ms();
        engine->present_s += engine->is_awake;
    }
    day.rest_s += !others_want;
    day.batch_rest_s += !others_want && day.engines[BATCH].is_awake;
    if (second % HOUR == 0)
        for (size_t i = 0; i < MODELS; i++)
            day.engines[i].moves = 0;
}

/* ---- deeds ---------------------------------------------------------------------------------- */

static size_t index_of(const struct governor_deed *deed)
{
    return (size_t)(store_named(deed->store) - world.stores);
}

static uint64_t count_ms(const struct governor_deed *deed)
{
    const struct governor_store *store = &world.stores[index_of(deed)];

    switch (deed->kind) {
    case GOVERNOR_SLEEP:
    case GOVERNOR_WAKE:
        return HOOK_MS;
    case GOVERNOR_PROMOTE:
        return store->bytes / GIB * 1000 / UP_GIB_S;
    case GOVERNOR_DRAIN:
    case GOVERNOR_DEMOTE:
    case GOVERNOR_SPARE:
        return store->places & GOVERNOR_HOST ? 10 : store->bytes / GIB * 1000 / DOWN_GIB_S;
    default:
        return 0;
    }
}

static void note_move(size_t model, unsigned places, uint64_t free_bytes)
{
    struct engine *engine = &day.engines[model];

    world.stores[model].places = places;
    world.stores[model].moved_ms = day_ms();
    world.now.device_free = free_bytes;
    if (++engine->moves > engine->most_moves)
        engine->most_moves = engine->moves;
}

/* As the daemon and an engine would; a store that is held, or does not fit, does not move. */
static bool do_deed(const struct governor_deed *deed)
{
    size_t i = index_of(deed);
    struct governor_store *store = &world.stores[i];

    switch (deed->kind) {
    case GOVERNOR_SLEEP:
        day.engines[i].is_awake = false;
        store->held = 0;
        world.demand[i].done_ms = day_ms();
        return true;
    case GOVERNOR_WAKE:
        if (!(store->places & GOVERNOR_DEVICE))
            return false;
        day.engines[i].is_awake = true;
        store->held = 1;
        world.demand[i].done_ms = day_ms();
        return true;
    case GOVERNOR_PROMOTE:
        if (store->bytes > world.now.device_free)
            return false;
        note_move(i, store->places | GOVERNOR_DEVICE, world.now.device_free - store->bytes);
        return true;
    case GOVERNOR_SPARE:
        store->places |= GOVERNOR_HOST;
        return true;
    case GOVERNOR_DRAIN:
    case GOVERNOR_DEMOTE:
        if (store->held > 0)
            return false;
        note_move(i, GOVERNOR_HOST, world.now.device_free + store->bytes);
        return true;
    default:
        return true;
    }
}

/* Finishes deeds that are done by now; false: none is in progress. */
static bool go_on(void)
{
    uint64_t now_ms = day.now_ms;

    while (day.at < day.count && day.done_at_ms <= now_ms) {
        bool is_skipped = todo[day.at].follows && !day.last_done;

        day.now_ms = day.done_at_ms;
        day.last_done = !is_skipped && do_deed(&todo[day.at]);
        if (!day.last_done && !is_skipped && todo[day.at].model != SIZE_MAX)
            world.demand[todo[day.at].model].failed_ms = day_ms();
        day.now_ms = now_ms;
        if (++day.at < day.count)
            day.done_at_ms += count_ms(&todo[day.at]);
    }
    return day.at < day.count;
}

/* ---- the day -------------------------------------------------------------------------------- */

static void begin_round(void (*forget)(struct world *w))
{
    struct world seen = world;
    uint64_t all_ms = 0;

    world_own(&seen);
    seen.now.now_ms = day_ms();
    if (forget)
        forget(&seen);
    day.count = governor_decide(&seen.now, &seen.config, todo);
    day.at = 0;
    day.last_done = true;
    for (size_t i = 0; i < day.count; i++)
        all_ms += count_ms(&todo[i]);
    if (all_ms > day.longest_round_ms)
        day.longest_round_ms = all_ms;
    day.done_at_ms = day.now_ms + (day.count ? count_ms(&todo[0]) : 0);
}

static void live_a_day(uint64_t seed, void (*forget)(struct world *w))
{
    uint64_t next_s = 0;

    memset(&day, 0, sizeof day);
    random_state = seed;
    world_begin(80);
    world.config.cooldown_ms = COOLDOWN_S * 1000;
    world.config.interval_ms = INTERVAL_S * 1000;
    for (size_t i = 0; i < MODELS; i++) {
        world_add_model(kinds[i].name, kinds[i].class, kinds[i].gib, GOVERNOR_HOST);
        world.models[i].idle_ms = kinds[i].idle_s * 1000;
    }
    for (uint64_t second = 0; second < DAY; second++) {
        day.now_ms = second * 1000;
        live_a_second(second);
        if (go_on() || second < next_s)
            continue;
        begin_round(forget);
        next_s = second + INTERVAL_S;
        go_on();
    }
}

static unsigned most_moves(void)
{
    unsigned most = 0;

    for (size_t i = 0; i < MODELS; i++)
        most = day.engines[i].most_moves > most ? day.engines[i].most_moves : most;
    return most;
}

static void tell_day(void)
{
    for (size_t i = 0; i < MODELS; i++)
        fprintf(stderr,
                "# %s: served %" PRIu64 ", waited %" PRIu64 " s at most, %u moves an hour at most, "
                "awake for %" PRIu64 " s\n",
                kinds[i].name, day.engines[i].served, day.engines[i].longest_wait_s,
                day.engines[i].most_moves, day.engines[i].present_s);
    fprintf(stderr, "# of %" PRIu64 " s that the others left, batch had %" PRIu64 "\n", day.rest_s,
            day.batch_rest_s);
}

/* Four fifths of the time that the others leave; and no request is left over at the end. */
static bool batch_got_the_rest(void)
{
    return day.batch_rest_s * 5 >= day.rest_s * 4 && day.engines[BATCH].queue < 60 * CAPACITY;
}

static void forget_cooldown(struct world *w)
{
    w->config.cooldown_ms = 0;
}

static void forget_classes(struct world *w)
{
    for (size_t i = 0; i < MODELS; i++)
        w->models[i].class = POOL_CLASS_STANDARD;
}

static void forget_idle(struct world *w)
{
    for (size_t i = 0; i < MODELS; i++)
        w->models[i].idle_ms = 0;
}

static void forget_batch(struct world *w)
{
    w->demand[BATCH].waiting = w->demand[BATCH].running = 0;
    w->demand[BATCH].idle_since_ms = LONG_AGO;
}

/* Checks a bound for each of some days; false: reported, with the day. */
static void check_days(bool (*holds)(void), void (*forget)(struct world *w), bool expected,
                       const char *name)
{
    bool all = true;

    for (uint64_t seed = 1; all && seed <= DAYS; seed++) {
        live_a_day(seed, forget);
        all = holds();
    }
    if (!tap_check(all == expected, __FILE__, __LINE__, name))
        tell_day();
}

static bool nothing_flaps(void)
{
    return most_moves() <= MOST_MOVES;
}

static bool code_waits_for_a_bounded_time(void)
{
    return day.engines[CODE].longest_wait_s <= CODE_WAIT_S;
}

static bool chat_and_docs_take_turns(void)
{
    return day.engines[CHAT].longest_wait_s <= OTHERS_WAIT_S &&
           day.engines[DOCS].longest_wait_s <= OTHERS_WAIT_S;
}

/* Without this the bounds would hold on a day with nothing to decide. */
static bool everybody_comes_and_goes(void)
{
    bool all = day.longest_round_ms > 0 && day.longest_round_ms <= MOVES_S * 1000;

    for (size_t i = 0; i < MODELS; i++)
        all &= day.engines[i].served > 10000 && day.engines[i].most_moves > 2;
    return all;
}

TAP_TEST(every_model_is_served_and_has_to_come_and_go_for_it)
{
    check_days(everybody_comes_and_goes, NULL, true, "everybody comes and goes");
}

TAP_TEST(no_model_flaps_as_it_would_without_a_cooldown)
{
    check_days(nothing_flaps, NULL, true, "nothing flaps");
    check_days(nothing_flaps, forget_cooldown, false, "without a cooldown models flap");
}

TAP_TEST(the_critical_model_waits_for_a_bounded_time_as_it_would_not_without_classes)
{
    check_days(code_waits_for_a_bounded_time, NULL, true, "code waits for a bounded time");
    check_days(code_waits_for_a_bounded_time, forget_classes, false,
               "without classes code waits for longer");
}

TAP_TEST(equals_take_turns)
{
    check_days(chat_and_docs_take_turns, NULL, true, "chat and docs take turns");
}

TAP_TEST(batch_gets_the_rest_as_it_would_not_unseen_or_behind_idle_models)
{
    check_days(batch_got_the_rest, NULL, true, "batch gets the rest");
    check_days(batch_got_the_rest, forget_batch, false, "unseen, batch gets nothing");
    check_days(batch_got_the_rest, forget_idle, false,
               "without idle= batch waits behind idle models");
}
