/* SPDX-License-Identifier: Apache-2.0 */
/*
 * governor_laws - laws that the deeds of every round obey
 *
 * Written apart from the code that decides: memory is counted anew from the snapshot and the
 * deeds. Returns the name of a broken law; NULL: none. Checks law by law over the deeds in
 * their order, each in the world as it is after the deeds before.
 */
#ifndef GMSFS_TESTS_UNIT_GOVERNOR_LAWS_H
#define GMSFS_TESTS_UNIT_GOVERNOR_LAWS_H

#include "governor_fixture.h"

/* A round as it is carried out. */
struct course {
    const struct world *seen;
    const struct governor_deed *deeds;
    size_t count;
    bool gone[WORLD_STORES], come[WORLD_STORES];
};

static size_t law_store(const struct world *seen, const char *name)
{
    for (size_t i = 0; i < seen->now.store_count; i++) {
        if (strcmp(seen->stores[i].name, name) == 0)
            return i;
    }
    return SIZE_MAX;
}

static size_t law_model(const struct world *seen, size_t store)
{
    for (size_t i = 0; i < seen->config.model_count; i++) {
        if (strcmp(seen->models[i].store, seen->stores[store].name) == 0)
            return i;
    }
    return SIZE_MAX;
}

static bool law_recent(const struct world *seen, uint64_t ms)
{
    return ms > 0 && ms + seen->config.cooldown_ms > seen->now.now_ms;
}

/* Returns true if it must be left alone: unknown, failed or moved a moment ago. */
static bool law_is_untouchable(const struct world *seen, size_t store)
{
    size_t model = law_model(seen, store);

    if (law_recent(seen, seen->stores[store].moved_ms))
        return true;
    if (model == SIZE_MAX)
        return law_recent(seen, seen->stores[store].failed_ms);
    return !seen->demand[model].is_known || law_recent(seen, seen->demand[model].failed_ms) ||
           law_recent(seen, seen->demand[model].done_ms);
}

static bool law_has_demand(const struct world *seen, size_t model)
{
    const struct governor_demand *demand = &seen->demand[model];
    size_t store = law_store(seen, seen->models[model].store);

    return demand->waiting > 0 || seen->stores[store].waiting > 0 ||
           (seen->models[model].ttft_ms > 0 && demand->ttft_ms > seen->models[model].ttft_ms);
}

static bool law_is_idle(const struct world *seen, size_t store)
{
    size_t model = law_model(seen, store);

    if (seen->stores[store].waiting > 0)
        return false;
    if (model == SIZE_MAX || !seen->models[model].metrics)
        return seen->stores[store].held == 0;
    return !law_has_demand(seen, model) && seen->demand[model].running == 0 &&
           seen->demand[model].idle_since_ms > 0;
}

static enum pool_class law_class(const struct world *seen, size_t store)
{
    size_t model = law_model(seen, store);

    if (model != SIZE_MAX)
        return seen->models[model].class;
    for (size_t i = 0; i < seen->now.pool_count; i++) {
        if (strcmp(seen->pools[i].name, seen->stores[store].pool) == 0)
            return seen->pools[i].class;
    }
    return POOL_CLASS_STANDARD;
}

/* ---- memory --------------------------------------------------------------------------------- */

static uint64_t law_free(const struct course *course)
{
    uint64_t bytes = course->seen->now.device_free;

    for (size_t i = 0; i < course->seen->now.store_count; i++) {
        bytes += course->gone[i] ? course->seen->stores[i].bytes : 0;
        bytes -= course->come[i] ? course->seen->stores[i].bytes : 0;
    }
    return bytes > INT64_MAX ? 0 : bytes;
}

static void law_pool(const struct course *course, size_t pool, uint64_t *used, uint64_t *resident)
{
    const struct world *seen = course->seen;

    *used = seen->pools[pool].used_bytes;
    *resident = seen->pools[pool].resident;
    for (size_t i = 0; i < seen->now.store_count; i++) {
        if (strcmp(seen->stores[i].pool, seen->pools[pool].name) != 0)
            continue;
        *used += course->come[i] ? seen->stores[i].bytes : 0;
        *used -= course->gone[i] ? seen->stores[i].bytes : 0;
        *resident += course->come[i];
        *resident -= course->gone[i];
    }
}

/* Returns true if the store fits now, on the device and in its pool. */
static bool law_fits(const struct course *course, size_t store)
{
    const struct world *seen = course->seen;
    uint64_t bytes = seen->stores[store].bytes, kept = 0, used, resident;

    for (size_t i = 0; i < seen->now.pool_count; i++) {
        const struct governor_pool *pool = &seen->pools[i];

        law_pool(course, i, &used, &resident);
        if (strcmp(pool->name, seen->stores[store].pool) != 0)
            kept += used < pool->min_bytes ? pool->min_bytes - used : 0;
        else if ((pool->slots > 0 && resident >= pool->slots) || bytes > pool->max_bytes ||
                 used > pool->max_bytes - bytes)
            return false;
    }
    return bytes + kept <= law_free(course);
}

/* Counts as come all models with demand that left a moment ago: room may be kept for them. */
static void law_keep_room(struct course *course)
{
    const struct world *seen = course->seen;

    for (size_t i = 0; i < seen->config.model_count; i++) {
        size_t store = law_store(seen, seen->models[i].store);
        course->come[store] |= law_has_demand(seen, i) && law_is_untouchable(seen, store) &&
                               !(seen->stores[store].places & GOVERNOR_DEVICE);
    }
}

/* ---- laws of stores that leave -------------------------------------------------------------- */

static bool law_leaves(const struct governor_deed *deed)
{
    return deed->kind == GOVERNOR_DEMOTE || deed->kind == GOVERNOR_DRAIN;
}

static const char *law_of_victim(const struct world *seen, const struct governor_deed *deed)
{
    size_t index = law_store(seen, deed->store);
    const struct governor_store *store = &seen->stores[index];

    if (!(store->places & GOVERNOR_DEVICE) || !store->committed)
        return "a store that leaves is on the device";
    if (store->pinned)
        return "no pinned store leaves";
    if (store->moving || store->suspect || store->draining)
        return "no store leaves that moves, is suspect, or is drained";
    if (law_is_untouchable(seen, index))
        return "no store leaves that is frozen or in its cooldown";
    if (store->held > 0 && law_model(seen, index) == SIZE_MAX)
        return "no held store without a model leaves";
    if ((store->held > 0) != (deed->kind == GOVERNOR_DRAIN))
        return "held stores are drained, and no others";
    if (store->scratch != (deed->tier == GOVERNOR_NONE))
        return "scratch is given up, and nothing else";
    if (!store->scratch && deed->tier != GOVERNOR_HOST && deed->tier != GOVERNOR_DISK)
        return "a store that leaves has a tier to go to";
    return NULL;
}

/* The host tier and the disk have room for all stores that go there without a copy. */
static const char *law_of_tiers(const struct course *course)
{
    uint64_t host = 0, disk = 0;

    for (size_t i = 0; i < course->count; i++) {
        const struct governor_deed *deed = &course->deeds[i];
        if (!law_leaves(deed) && deed->kind != GOVERNOR_SPARE)
            continue;
        const struct governor_store *store =
            &course->seen->stores[law_store(course->seen, deed->store)];
        if (store->scratch && deed->kind == GOVERNOR_SPARE)
            return "scratch has no spare";
        if (store->bytes == 0 && deed->kind == GOVERNOR_SPARE)
            return "a store without bytes has no spare";
        if (!store->scratch && !(store->places & deed->tier))
            *(deed->tier == GOVERNOR_HOST ? &host : &disk) += store->bytes;
    }
    if (host > course->seen->now.host_free || disk > course->seen->now.disk_free)
        return "a store that leaves has room in its tier";
    return NULL;
}

/* Returns the promotion for which these deeds make room; SIZE_MAX: none. */
static size_t law_chain_end(const struct course *course, size_t at)
{
    for (; at < course->count; at++) {
        const struct governor_deed *deed = &course->deeds[at];

        if (deed->kind == GOVERNOR_PROMOTE && deed->follows)
            return at;
        if (at + 1 < course->count && !course->deeds[at + 1].follows)
            return SIZE_MAX;
    }
    return SIZE_MAX;
}

static bool law_may_go_for(const struct world *seen, size_t victim, size_t wanter)
{
    size_t model = law_model(seen, victim);

    if (model != SIZE_MAX && seen->models[model].idle_ms > 0 && law_is_idle(seen, victim) &&
        seen->demand[model].idle_since_ms + seen->models[model].idle_ms <= seen->now.now_ms &&
        seen->demand[model].idle_since_ms > 0 && !seen->models[model].min_one)
        return true; /* idle= is over */
    if (law_class(seen, victim) != law_class(seen, wanter))
        return law_class(seen, victim) < law_class(seen, wanter);
    return law_is_idle(seen, victim) && (model == SIZE_MAX || !seen->models[model].min_one);
}

/* Returns true if a model waits off the device, and the store may leave for it. */
static bool law_is_wanted(const struct world *seen, size_t victim)
{
    for (size_t i = 0; i < seen->config.model_count; i++) {
        size_t store = law_store(seen, seen->models[i].store);
        if (seen->demand[i].is_known && law_has_demand(seen, i) &&
            !(seen->stores[store].places & GOVERNOR_DEVICE) && law_may_go_for(seen, victim, store))
            return true;
    }
    return false;
}

static bool law_is_above(const struct course *course, unsigned percent)
{
    const struct world *seen = course->seen;

    return (seen->now.device_bytes - law_free(course)) > seen->now.device_bytes / 100 * percent;
}

/* Checks a leaver without a store that comes in this round: the device is too full, or more rounds
 * are needed. */
static const char *law_of_lonely(const struct course *course, size_t store, bool above_high)
{
    const struct world *seen = course->seen;

    if (law_is_wanted(seen, store))
        return NULL;
    if (!above_high)
        return "below high a store leaves only for another";
    if (!law_is_idle(seen, store))
        return "above high only the idle leave";
    if (!law_is_above(course, seen->config.low))
        return "no store leaves below low";
    return NULL;
}

/* Checks that the wanter would not fit if one of the leavers stayed. */
static const char *law_of_need(const struct course *course, size_t from, size_t end)
{
    struct course without = *course;
    size_t wanter = law_store(course->seen, course->deeds[end].store);

    law_keep_room(&without);
    if (!law_fits(course, wanter))
        return "room is made before a store comes";
    for (size_t i = from; i < end; i++) {
        if (!law_leaves(&course->deeds[i]))
            continue;
        size_t victim = law_store(course->seen, course->deeds[i].store);
        if (!law_may_go_for(course->seen, victim, wanter))
            return "no store leaves for a less important one, nor in use for an equal";
        without.gone[victim] = false;
        if (law_fits(&without, wanter))
            return "no store leaves that could stay";
        without.gone[victim] = true;
    }
    return NULL;
}

static const char *law_of_leaving(struct course *course)
{
    const struct world *seen = course->seen;
    size_t in_use = 0, from = 0;
    const char *broken = NULL;
    struct course last = *course; /* as at the end: the use without leaves above high */

    for (size_t i = 0; i < course->count; i++) {
        size_t store = law_store(seen, course->deeds[i].store);
        if (course->deeds[i].kind == GOVERNOR_PROMOTE)
            last.come[store] = true;
        if (law_leaves(&course->deeds[i]) && law_chain_end(course, i) != SIZE_MAX)
            last.gone[store] = true;
    }
    for (size_t i = 0; !broken && i < course->count; i++) {
        const struct governor_deed *deed = &course->deeds[i];
        size_t end = law_chain_end(course, i), store = law_store(seen, deed->store);

        from = deed->follows ? from : i;
        if (deed->kind == GOVERNOR_PROMOTE) {
            if (!deed->follows && !law_fits(course, store))
                return "a store that comes fits";
            broken = deed->follows ? law_of_need(course, from, i) : NULL;
            course->come[store] = true;
        }
        if (!law_leaves(deed))
            continue;
        broken = law_of_victim(seen, deed);
        if (course->gone[store] || course->come[store])
            return "a store is moved once";
        if (!broken && end == SIZE_MAX)
            broken = law_of_lonely(course, store, law_is_above(&last, seen->config.high));
        in_use += !law_is_idle(seen, store);
        course->gone[store] = true;
    }
    if (in_use > 1)
        return "one in use goes a round";
    return broken;
}

/* ---- laws of stores that come --------------------------------------------------------------- */

static const char *law_of_coming(const struct course *course, const struct governor_deed *deed)
{
    const struct world *seen = course->seen;
    size_t index = law_store(seen, deed->store), model = law_model(seen, index);
    const struct governor_store *store = &seen->stores[index];

    if (law_is_untouchable(seen, index))
        return "no model comes, sleeps or wakes that is frozen or in its cooldown";
    if (store->moving || store->draining || store->suspect || !store->committed ||
        store->places == 0)
        return "a store that comes, sleeps or wakes is at rest and has bytes";
    if (deed->kind == GOVERNOR_PROMOTE && store->places & GOVERNOR_DEVICE)
        return "a store that comes is not on the device";
    if (deed->kind != GOVERNOR_SLEEP && model != SIZE_MAX && !law_has_demand(seen, model))
        return "a model that comes or wakes has demand";
    if (deed->kind == GOVERNOR_WAKE && !(store->places & GOVERNOR_DEVICE) && !deed->follows)
        return "a model that wakes is on the device";
    if (deed->kind == GOVERNOR_WAKE && store->places & GOVERNOR_DEVICE &&
        seen->demand[model].woken_ms > 0 &&
        (store->held > 0 || seen->demand[model].woken_ms + GOVERNOR_WAKING_MS > seen->now.now_ms))
        return "no model is woken twice";
    return NULL;
}

/* The most important first: a model that fits and may come does not wait in a round without
 * moves. */
static const char *law_of_service(const struct course *course)
{
    const struct world *seen = course->seen;
    const struct course before = {.seen = seen};
    bool is_wanted = false;

    for (size_t i = 0; i < course->count; i++) {
        enum governor_deed_kind kind = course->deeds[i].kind;
        if (kind == GOVERNOR_PROMOTE || kind == GOVERNOR_WAKE || law_leaves(&course->deeds[i]))
            return NULL;
    }
    for (size_t i = 0; i < seen->config.model_count; i++) {
        size_t index = law_store(seen, seen->models[i].store);
        const struct governor_store *store = &seen->stores[index];

        if (!law_has_demand(seen, i) || store->places & GOVERNOR_DEVICE ||
            !seen->demand[i].is_known)
            continue;
        if (law_is_untouchable(seen, index) || store->moving || store->draining || store->suspect ||
            !store->committed || store->places == 0)
            return NULL; /* room may be kept for it */
        is_wanted |= law_fits(&before, index);
        if (!law_fits(&before, index))
            return NULL;
    }
    return is_wanted ? "a model that fits and has demand comes" : NULL;
}

/* ---- laws of budgets ------------------------------------------------------------------------ */

/* Returns the most that the pool may have: its max if models name it, else its use or its min. */
static uint64_t law_claim(const struct world *seen, const struct governor_pool *pool)
{
    bool is_named = false;

    for (size_t i = 0; i < seen->config.model_count; i++)
        is_named |= seen->models[i].pool && strcmp(seen->models[i].pool, pool->name) == 0;
    uint64_t limit = is_named && pool->max_bytes != UINT64_MAX ? pool->max_bytes : pool->min_bytes;
    return limit > pool->used_bytes ? limit : pool->used_bytes;
}

static const char *law_of_pools(const struct world *seen, const struct governor_deed *all,
                                size_t count)
{
    unsigned raised = 0, lowered = 0;
    uint64_t claims = 0;

    for (size_t i = 0; i < seen->now.pool_count; i++)
        claims += law_claim(seen, &seen->pools[i]);
    for (size_t i = 0; i < count; i++) {
        const struct governor_pool *pool = seen->pools;

        if (all[i].kind != GOVERNOR_POOL_MAX)
            continue;
        while (strcmp(pool->name, all[i].store) != 0)
            pool++;
        if (law_recent(seen, pool->changed_ms))
            return "a pool is changed once in a cooldown";
        if (all[i].bytes < pool->min_bytes)
            return "no max is below min";
        raised += all[i].bytes > pool->max_bytes;
        lowered += all[i].bytes < pool->max_bytes;
        if (all[i].bytes > pool->max_bytes &&
            claims - law_claim(seen, pool) + all[i].bytes > seen->now.device_bytes)
            return "a max is raised only by unclaimed memory";
    }
    return raised + (lowered > 0) > 1 ? "nothing is raised while something is lowered" : NULL;
}

static const char *law_of_words(const struct governor_deed *deed, bool is_first)
{
    if (is_first && deed->follows)
        return "the first deed follows none";
    if (deed->reason[0] == '\0')
        return "each deed has a reason";
    for (const char *at = deed->reason; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return "a reason is one line";
    }
    return NULL;
}

static const char *find_broken_law(const struct world *seen, const struct governor_deed *all,
                                   size_t count)
{
    struct course course = {.seen = seen, .deeds = all, .count = count};
    const char *broken = law_of_tiers(&course);

    broken = broken ? broken : law_of_pools(seen, all, count);
    for (size_t i = 0; !broken && i < count; i++) {
        broken = law_of_words(&all[i], i == 0);
        if (!broken && (all[i].kind == GOVERNOR_PROMOTE || all[i].kind == GOVERNOR_WAKE ||
                        all[i].kind == GOVERNOR_SLEEP))
            broken = law_of_coming(&course, &all[i]);
    }
    broken = broken ? broken : law_of_service(&course);
    return broken ? broken : law_of_leaving(&course);
}

#endif
