/* SPDX-License-Identifier: Apache-2.0 */
/* decide_leave - chooses the stores that leave: to make room for another, or above `high` */
#include "governor/decide_round.h"

#include <stdlib.h>
#include <string.h>

/* ---- stores that may leave ------------------------------------------------------------------- */

static const struct governor_model *model_of(const struct decide_round *round, size_t store)
{
    size_t model = round->facts[store].model;

    return model == NO_INDEX ? NULL : &round->config->models[model];
}

/* Returns true if the store could leave at all; with `rested`, ignores cooldowns. */
static bool may_leave(const struct decide_round *round, size_t store, bool rested)
{
    const struct governor_store *seen = &round->now->stores[store];

    if (!decide_is_on_device(round, store) || !decide_is_free_to_move(round, store) ||
        seen->pinned || seen->bytes == 0)
        return false;
    if (decide_is_frozen(round, store) || (!rested && decide_is_resting(round, store)))
        return false;
    /* The holder of a store without a model gives no signs of being idle. */
    return model_of(round, store) || decide_is_idle(round, store);
}

/* Returns the class that protects it; after its idle= time, the lowest. */
static enum pool_class class_for_leaving(const struct decide_round *round, size_t store)
{
    return decide_is_over(round, store) ? POOL_CLASS_BATCH : round->facts[store].class;
}

/* Returns true if the store is less important than `wanter`, or idle and as important. After its
 * idle= time every store with demand is more important. */
static bool may_go_for(const struct decide_round *round, size_t store, size_t wanter)
{
    const struct governor_model *model = model_of(round, store);
    enum pool_class class = class_for_leaving(round, store);

    if (store == wanter || class > round->facts[wanter].class)
        return false;
    if (class < round->facts[wanter].class)
        return true;
    return decide_is_idle(round, store) && !(model && model->min_one);
}

/* Idle for a cooldown, so that a short pause does not count; and its holder can be put to sleep. */
static bool may_go_for_being_idle(const struct decide_round *round, size_t store)
{
    const struct governor_model *model = model_of(round, store);

    if (!decide_is_idle(round, store) || decide_is_recent(round, decide_last_use(round, store)))
        return false;
    if (!model)
        return true;
    return !model->min_one && (round->now->stores[store].held == 0 || model->sleep);
}

/* ---- order ----------------------------------------------------------------------------------- */

static struct decide_leaver make_leaver(const struct decide_round *round, size_t store)
{
    const struct governor_model *model = model_of(round, store);

    return (struct decide_leaver){.store = store,
                                  .class = class_for_leaving(round, store),
                                  .in_use = !decide_is_idle(round, store),
                                  .min_one = model && model->min_one,
                                  .last_use_ms = decide_last_use(round, store),
                                  .name = round->now->stores[store].name};
}

static int compare_use(const void *left, const void *right)
{
    const struct decide_leaver *a = left, *b = right;

    if (a->last_use_ms != b->last_use_ms)
        return a->last_use_ms < b->last_use_ms ? -1 : 1;
    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Sorts the most expendable first. */
static int compare_worth(const void *left, const void *right)
{
    const struct decide_leaver *a = left, *b = right;

    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->in_use != b->in_use)
        return a->in_use ? 1 : -1;
    if (a->min_one != b->min_one)
        return a->min_one ? 1 : -1;
    return compare_use(a, b);
}

static void gather_for(struct decide_round *round, size_t wanter, bool rested)
{
    round->leaver_count = 0;
    for (size_t i = 0; i < round->now->store_count; i++) {
        if (may_leave(round, i, rested) && may_go_for(round, i, wanter))
            round->leavers[round->leaver_count++] = make_leaver(round, i);
    }
    qsort(round->leavers, round->leaver_count, sizeof *round->leavers, compare_worth);
}

static void gather_idle(struct decide_round *round)
{
    round->leaver_count = 0;
    for (size_t i = 0; i < round->now->store_count; i++) {
        if (may_leave(round, i, false) && may_go_for_being_idle(round, i))
            round->leavers[round->leaver_count++] = make_leaver(round, i);
    }
    qsort(round->leavers, round->leaver_count, sizeof *round->leavers, compare_use);
}

/* ---- the choice ---------------------------------------------------------------------------- */

static void let_go(struct decide_round *round, struct decide_leaver *leaver)
{
    leaver->tier = decide_get_tier(round, leaver->store);
    if (leaver->tier == 0)
        return;
    leaver->goes = true;
    decide_take_out(round, leaver->store, leaver->tier);
}

static void let_stay(struct decide_round *round, struct decide_leaver *leaver)
{
    leaver->goes = false;
    decide_put_back(round, leaver->store, leaver->tier);
}

/* Drops the others, and keeps the order. */
static void drop_stayers(struct decide_round *round)
{
    size_t kept = 0;

    for (size_t i = 0; i < round->leaver_count; i++) {
        if (round->leavers[i].goes)
            round->leavers[kept++] = round->leavers[i];
    }
    round->leaver_count = kept;
}

/* Returns true if its pool's min covers it, so that others could not use its room. */
static bool is_protected(const struct decide_round *round, size_t store, size_t wanter)
{
    size_t pool = round->facts[store].pool;

    return pool != NO_INDEX && pool != round->facts[wanter].pool &&
           round->room.pool_used[pool] <
               round->now->pools[pool].min_bytes + round->now->stores[store].bytes;
}

static bool fits(const struct decide_round *round, size_t store)
{
    return decide_pool_has_room(round, store) && decide_device_has_room(round, store);
}

/* Takes stores of the wanter's own pool while that pool lacks room, then any. */
static void take_until_it_fits(struct decide_round *round, size_t wanter)
{
    size_t pool = round->facts[wanter].pool;

    for (size_t i = 0; i < round->leaver_count && !decide_pool_has_room(round, wanter); i++) {
        if (round->facts[round->leavers[i].store].pool == pool)
            let_go(round, &round->leavers[i]);
    }
    for (size_t i = 0; i < round->leaver_count && !decide_device_has_room(round, wanter); i++) {
        if (!round->leavers[i].goes && !is_protected(round, round->leavers[i].store, wanter))
            let_go(round, &round->leavers[i]);
    }
}

bool decide_make_room(struct decide_round *round, size_t store, bool rested)
{
    struct decide_room before = round->room;

    round->leaver_count = 0;
    if (fits(round, store))
        return true;
    gather_for(round, store, rested);
    take_until_it_fits(round, store);
    if (!fits(round, store)) {
        round->room = before;
        round->leaver_count = 0;
        return false;
    }
    /* A store chosen before a larger one may not be needed; the most valuable stays first. */
    for (size_t i = round->leaver_count; i > 0; i--) {
        struct decide_leaver *leaver = &round->leavers[i - 1];
        if (!leaver->goes)
            continue;
        let_stay(round, leaver);
        if (!fits(round, store))
            let_go(round, leaver);
    }
    drop_stayers(round);
    return true;
}

void decide_lower_use(struct decide_round *round, uint64_t limit_bytes)
{
    gather_idle(round);
    for (size_t i = 0; i < round->leaver_count && decide_get_used(round) > limit_bytes; i++)
        let_go(round, &round->leavers[i]);
    for (size_t i = round->leaver_count; i > 0; i--) {
        struct decide_leaver *leaver = &round->leavers[i - 1];
        if (!leaver->goes)
            continue;
        let_stay(round, leaver);
        if (decide_get_used(round) > limit_bytes)
            let_go(round, leaver);
    }
    drop_stayers(round);
}

/* ---- deeds --------------------------------------------------------------------------------- */

/* Returns true for an engine that holds its store and has a sleep hook. */
static bool is_put_to_sleep(const struct decide_round *round, size_t store)
{
    const struct governor_model *model = model_of(round, store);

    return model && model->sleep && round->now->stores[store].held > 0;
}

size_t decide_count_deeds(const struct decide_round *round, const struct decide_leaver *leaver)
{
    return is_put_to_sleep(round, leaver->store) ? 2 : 1;
}

void decide_add_leaver(struct decide_round *round, const struct decide_leaver *leaver, bool follows,
                       const char *why)
{
    struct governor_deed deed = decide_deed(round, leaver->store, GOVERNOR_DEMOTE);

    deed.tier = leaver->tier;
    deed.follows = follows;
    if (is_put_to_sleep(round, leaver->store)) {
        deed.kind = GOVERNOR_SLEEP;
        deed.tier = 0;
        decide_add(round, deed, "%s", why);
        deed.tier = leaver->tier;
        deed.follows = true;
    }
    /* Another session may hold it too, or the engine releases it late. */
    if (round->now->stores[leaver->store].held > 0)
        deed.kind = GOVERNOR_DRAIN;
    decide_add(round, deed, "%s", why);
    round->facts[leaver->store].goes = true;
    round->has_moved = true;
}
