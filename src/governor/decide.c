/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/decide.h"

#include "base/size.h"
#include "core/core.h"
#include "governor/decide_round.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES 256u

/* A model with demand that is not served: not on the device, or asleep. */
struct wanter {
    size_t model, store;
    enum pool_class class;
    uint64_t last_use_ms;
    const char *name;
};

static const char *class_of(const struct decide_round *round, size_t store)
{
    return core_pool_class_name(round->facts[store].class);
}

/* ---- models with demand ---------------------------------------------------------------------- */

/* Returns true if it was woken for these requests and is still starting, or hangs: waking again
 * would not help. */
static bool is_waking(const struct decide_round *round, size_t model)
{
    uint64_t woken_ms = round->now->demand[model].woken_ms, now_ms = round->now->now_ms;

    return woken_ms != 0 && decide_is_on_device(round, round->store_of[model]) &&
           (round->now->stores[round->store_of[model]].held > 0 || woken_ms > now_ms ||
            now_ms - woken_ms < GOVERNOR_WAKING_MS);
}

/* Returns true if no session holds the model's store, or one does but requests wait and none is
 * served. Waiters for the store's lock do not count: an engine that waits is awake. */
static bool needs_wake(const struct decide_round *round, size_t model)
{
    const struct governor_demand *demand = &round->now->demand[model];

    return round->config->models[model].wake && decide_has_requests(round, model) &&
           !is_waking(round, model) &&
           (round->now->stores[round->store_of[model]].held == 0 ||
            (demand->waiting > 0 && demand->running == 0));
}

/* "code has 12 requests waiting" */
static void tell_demand(const struct decide_round *round, size_t model, char why[WHY_BYTES])
{
    const struct governor_demand *demand = &round->now->demand[model];
    const char *name = round->config->models[model].name;

    if (demand->waiting > 0)
        snprintf(why, WHY_BYTES, "%s has %" PRIu64 " request%s waiting", name, demand->waiting,
                 demand->waiting == 1 ? "" : "s");
    else if (decide_has_requests(round, model))
        snprintf(why, WHY_BYTES, "%s takes %" PRIu64 " ms to the first token, not %" PRIu64, name,
                 demand->ttft_ms, round->config->models[model].ttft_ms);
    else
        snprintf(why, WHY_BYTES, "%s has a waiter for its store's lock", name);
}

static int compare_wanters(const void *left, const void *right)
{
    const struct wanter *a = left, *b = right;

    if (a->class != b->class)
        return a->class > b->class ? -1 : 1;
    if (a->last_use_ms != b->last_use_ms)
        return a->last_use_ms < b->last_use_ms ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool is_wanter(struct decide_round *round, size_t model)
{
    size_t store = round->store_of[model];

    if (!round->now->demand[model].is_known || !decide_has_demand(round, model))
        return false;
    if (store == NO_INDEX) {
        decide_add(round,
                   (struct governor_deed){.kind = GOVERNOR_REPORT,
                                          .model = model,
                                          .store = round->config->models[model].store},
                   "%s has demand, and the mount has no store %s",
                   round->config->models[model].name, round->config->models[model].store);
        return false;
    }
    if (decide_is_frozen(round, store))
        return false;
    return !decide_is_on_device(round, store) || needs_wake(round, model);
}

static size_t gather_wanters(struct decide_round *round, struct wanter *wanters)
{
    size_t count = 0;

    for (size_t i = 0; i < round->config->model_count; i++) {
        size_t store = round->store_of[i];
        if (is_wanter(round, i))
            wanters[count++] =
                (struct wanter){.model = i,
                                .store = store,
                                .class = round->facts[store].class,
                                .last_use_ms = round->now->stores[store].last_used_ms,
                                .name = round->config->models[i].name};
    }
    qsort(wanters, count, sizeof *wanters, compare_wanters);
    return count;
}

/* ---- bringing a store to the device ---------------------------------------------------------- */

/* Reports why nothing can be done for it. */
static void report(struct decide_round *round, const struct wanter *wanter, const char *why,
                   const char *cause)
{
    decide_add(round, decide_deed(round, wanter->store, GOVERNOR_REPORT),
               "%s and is not on the device: %s", why, cause);
}

static void report_no_room(struct decide_round *round, const struct wanter *wanter, const char *why)
{
    char needed[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], kept[SIZE_TEXT_BYTES], cause[WHY_BYTES];
    size_t pool = round->facts[wanter->store].pool;
    uint64_t reserved = decide_get_reserved(round, wanter->store);

    size_format_apart((struct size_text[]){{round->now->stores[wanter->store].bytes, needed},
                                           {round->room.device_free, left},
                                           {reserved, kept}},
                      3);
    if (decide_pool_has_room(round, wanter->store) && reserved > 0 && round->room.device_free > 0)
        snprintf(
            cause, sizeof cause,
            "it needs %s, %s are free, less %s that other pools' min keeps, and the stores that "
            "may leave for it are too small",
            needed, left, kept);
    else if (decide_pool_has_room(round, wanter->store))
        snprintf(cause, sizeof cause,
                 "it needs %s, %s are free, and the stores that may leave for it are too small",
                 needed, left);
    else
        snprintf(cause, sizeof cause, "it needs %s, which its pool %.40s has no room for", needed,
                 round->now->pools[pool].name);
    report(round, wanter, why, cause);
}

/* Counts the leavers in use. */
static size_t count_in_use(const struct decide_round *round)
{
    size_t count = 0;

    for (size_t i = 0; i < round->leaver_count; i++)
        count += round->leavers[i].in_use;
    return count;
}

static size_t count_deeds(const struct decide_round *round)
{
    size_t count = 2; /* PROMOTE and WAKE */

    for (size_t i = 0; i < round->leaver_count; i++)
        count += decide_count_deeds(round, &round->leavers[i]);
    return count;
}

/* Records as many leavers as a round may have. Returns true if these are all. */
static bool add_leavers(struct decide_round *round, const char *why)
{
    bool is_complete = decide_has_room_for(round, count_deeds(round)), follows = false;
    size_t in_use = count_in_use(round);

    is_complete &= in_use <= 1;
    for (size_t i = 0; i < round->leaver_count; i++) {
        const struct decide_leaver *leaver = &round->leavers[i];
        char all[WHY_BYTES];

        if ((leaver->in_use && round->has_preempted) ||
            !decide_has_room_for(round, decide_count_deeds(round, leaver)))
            continue;
        snprintf(all, sizeof all, "%.90s and is not on the device; %s (%s%s) leaves for it%s", why,
                 decide_name_of(round, leaver->store).text, class_of(round, leaver->store),
                 leaver->in_use ? "" : ", idle", is_complete ? "" : ", others later");
        decide_add_leaver(round, leaver, follows, all);
        round->has_preempted |= leaver->in_use;
        follows = true;
    }
    return is_complete;
}

static void add_wake(struct decide_round *round, const struct wanter *wanter, bool follows,
                     const char *why)
{
    struct governor_deed deed = decide_deed(round, wanter->store, GOVERNOR_WAKE);

    deed.follows = follows;
    decide_add(round, deed, "%s and %s", why,
               follows ? "sleeps; its store is on the device then" : "sleeps");
    round->has_moved = true;
}

static void add_promotion(struct decide_round *round, const struct wanter *wanter, const char *why)
{
    struct governor_deed deed = decide_deed(round, wanter->store, GOVERNOR_PROMOTE);

    deed.follows = round->leaver_count > 0;
    decide_add(round, deed, "%s and is not on the device; %s", why,
               deed.follows ? "room was made for it" : "it fits");
    if (needs_wake(round, wanter->model))
        add_wake(round, wanter, true, why);
    round->facts[wanter->store].comes = true;
    round->has_moved = true;
    decide_bring_in(round, wanter->store);
}

/* Returns true if it will fit after the cooldown of recently moved stores: no less important store
 * may take the free memory meanwhile. */
static bool is_worth_waiting(struct decide_round *round, const struct wanter *wanter)
{
    struct decide_room before = round->room;
    bool fits = decide_make_room(round, wanter->store, true);

    round->room = before;
    round->leaver_count = 0;
    return fits;
}

static void bring(struct decide_round *round, const struct wanter *wanter)
{
    struct decide_room before = round->room;
    char why[WHY_BYTES];

    tell_demand(round, wanter->model, why);
    if (!decide_make_room(round, wanter->store, false)) {
        if (is_worth_waiting(round, wanter)) {
            round->kept_for = wanter->store;
            report(round, wanter, why,
                   "stores that could leave for it moved a moment ago, and stay for a while");
        } else {
            report_no_room(round, wanter, why);
        }
        return;
    }
    if (round->has_preempted && count_in_use(round) > 0) {
        round->room = before;
        round->kept_for = wanter->store;
        report(round, wanter, why, "a store in use leaves for another model already");
        return;
    }
    if (round->leaver_count > 0 && !add_leavers(round, why))
        round->kept_for = wanter->store;
    else
        add_promotion(round, wanter, why);
}

/* Keeps room for a store that left, or was put to sleep, a moment ago and is wanted again. */
static void keep_room(struct decide_round *round, const struct wanter *wanter)
{
    if (decide_is_on_device(round, wanter->store))
        return;
    if (decide_pool_has_room(round, wanter->store) && decide_device_has_room(round, wanter->store))
        decide_keep_room(round, wanter->store);
    else
        round->kept_for = wanter->store;
}

/* ---- the rules ------------------------------------------------------------------------------ */

static void serve(struct decide_round *round, const struct wanter *wanter)
{
    const struct governor_store *seen = &round->now->stores[wanter->store];
    char why[WHY_BYTES], cause[WHY_BYTES];

    tell_demand(round, wanter->model, why);
    if (!seen->committed || seen->places == 0) {
        report(round, wanter, why, "its store has no bytes; load it");
        return;
    }
    if (!decide_is_free_to_move(round, wanter->store) || !decide_has_room_for(round, 2))
        return;
    if (decide_is_resting(round, wanter->store)) {
        keep_room(round, wanter);
        return;
    }
    if (decide_is_on_device(round, wanter->store)) {
        add_wake(round, wanter, false, why);
        round->facts[wanter->store].comes = true; /* makes room for no other store in this round */
        return;
    }
    if (round->kept_for == NO_INDEX) {
        bring(round, wanter);
        return;
    }
    snprintf(cause, sizeof cause, "the free memory is kept for %s",
             decide_name_of(round, round->kept_for).text);
    report(round, wanter, why, cause);
}

static void serve_demand(struct decide_round *round)
{
    struct wanter wanters[GOVERNOR_MAX_MODELS];
    size_t count = gather_wanters(round, wanters);

    for (size_t i = 0; i < count; i++)
        serve(round, &wanters[i]);
}

static void keep_below_high(struct decide_round *round)
{
    char why[WHY_BYTES];

    if (decide_get_used(round) <= decide_get_percent(round, round->config->high))
        return;
    decide_lower_use(round, decide_get_percent(round, round->config->low));
    for (size_t i = 0; i < round->leaver_count; i++) {
        const struct decide_leaver *leaver = &round->leavers[i];

        if (!decide_has_room_for(round, decide_count_deeds(round, leaver)))
            return;
        snprintf(why, sizeof why,
                 "more than %u%% of the device is in use; %s (%s) is idle and unused for longest",
                 round->config->high, decide_name_of(round, leaver->store).text,
                 class_of(round, leaver->store));
        decide_add_leaver(round, leaver, false, why);
    }
}

/* Puts idle engines to sleep; their stores stay until their room is needed. */
static void put_to_sleep(struct decide_round *round)
{
    for (size_t i = 0; i < round->config->model_count; i++) {
        const struct governor_model *model = &round->config->models[i];
        const struct governor_demand *demand = &round->now->demand[i];
        size_t store = round->store_of[i];

        if (!model->sleep || store == NO_INDEX || !decide_is_over(round, store) ||
            !decide_is_free_to_move(round, store) || round->now->stores[store].held == 0 ||
            decide_is_frozen(round, store) || decide_is_resting(round, store))
            continue;
        decide_add(round, decide_deed(round, store, GOVERNOR_SLEEP),
                   "%s had no demand for %" PRIu64 " s", model->name,
                   (round->now->now_ms - demand->idle_since_ms) / 1000);
    }
}

size_t governor_decide(const struct governor_snapshot *now, const struct governor_config *config,
                       struct governor_deed *deeds)
{
    struct decide_round round;

    if (now->store_count > GOVERNOR_MAX_STORES || now->pool_count > EVICT_MAX_POOLS ||
        config->model_count > GOVERNOR_MAX_MODELS)
        return 0;
    decide_begin(&round, now, config, deeds);
    decide_count_room(&round);
    serve_demand(&round);
    keep_below_high(&round);
    put_to_sleep(&round);
    if (!round.has_moved && round.kept_for == NO_INDEX) {
        decide_prefetch(&round);
        decide_spares(&round);
    }
    decide_pools(&round);
    return round.count;
}
