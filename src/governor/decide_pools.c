/* SPDX-License-Identifier: Apache-2.0 */
/*
 * decide_pools - which budgets grow, and which shrink first
 *
 * Concerns pools that models name by pool= and that have a max. A max is a promise, so the sum of
 * the claims of all pools (max, or the use if that is more) must not exceed the device: a raise
 * takes only memory that no pool claims. If there is too little, the max of others is lowered
 * first, and the raise follows when they use less.
 */
#include "base/size.h"
#include "governor/decide_round.h"

#include <stdlib.h>
#include <string.h>

/* A pool with less than 1/NEARLY_FULL of its max free is given 1/GROWTH more. */
#define NEARLY_FULL 16u
#define GROWTH      8u

/* A pool, with the facts that matter here. */
struct budget {
    const struct governor_pool *pool;
    bool is_governed, is_frozen, is_idle;
    enum pool_class class;  /* of its most important model */
    uint64_t lacks_bytes;   /* missing from its max */
    uint64_t floor_bytes;   /* lowest allowed max */
    uint64_t present_bytes; /* of its models on the device */
    const char *needy;      /* the model that lacks room */
};

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns the bytes that the pool may have without asking. */
static uint64_t count_claim(const struct budget *budget)
{
    const struct governor_pool *pool = budget->pool;

    return most(budget->is_governed ? pool->max_bytes : pool->min_bytes, pool->used_bytes);
}

/* Returns the bytes that the pool lacks: its store does not fit, or runs, has demand, and the pool
 * is nearly full. */
static uint64_t count_lack(const struct decide_round *round, size_t model,
                           const struct governor_pool *pool)
{
    size_t store = round->store_of[model];
    uint64_t left = pool->max_bytes > pool->used_bytes ? pool->max_bytes - pool->used_bytes : 0;

    if (!decide_has_demand(round, model) || round->facts[store].comes)
        return 0;
    if (decide_is_on_device(round, store))
        return left < pool->max_bytes / NEARLY_FULL ? most(pool->max_bytes / GROWTH, 1) : 0;
    return left < round->now->stores[store].bytes ? round->now->stores[store].bytes - left : 0;
}

/* Adds a model to the budget of its pool. */
static void add_model(const struct decide_round *round, size_t model, struct budget *budget)
{
    size_t store = round->store_of[model];
    const struct governor_model *row = &round->config->models[model];

    budget->is_governed = budget->pool->max_bytes != UINT64_MAX;
    budget->class = row->class > budget->class ? row->class : budget->class;
    if (store == NO_INDEX)
        return;
    budget->is_frozen |= decide_is_frozen(round, store);
    budget->is_idle &=
        decide_is_idle(round, store) && !decide_is_recent(round, decide_last_use(round, store));
    /* The largest must be able to return, and all on the device to stay. */
    budget->floor_bytes = most(budget->floor_bytes, round->now->stores[store].bytes);
    if (decide_is_on_device(round, store))
        budget->present_bytes = number_add(budget->present_bytes, round->now->stores[store].bytes);
    uint64_t lacks_bytes = count_lack(round, model, budget->pool);
    if (lacks_bytes <= budget->lacks_bytes)
        return;
    budget->lacks_bytes = lacks_bytes;
    budget->needy = row->name;
}

static void read_budgets(const struct decide_round *round, struct budget *budgets)
{
    const struct governor_snapshot *now = round->now;

    for (size_t i = 0; i < now->pool_count; i++) {
        struct budget *budget = &budgets[i];

        *budget = (struct budget){.pool = &now->pools[i],
                                  .class = POOL_CLASS_BATCH,
                                  .is_idle = true,
                                  .is_frozen = decide_is_recent(round, now->pools[i].changed_ms)};
        for (size_t k = 0; k < round->config->model_count; k++) {
            const char *name = round->config->models[k].pool;
            if (name && strcmp(name, now->pools[i].name) == 0)
                add_model(round, k, budget);
        }
        budget->floor_bytes =
            most(most(budget->floor_bytes, budget->present_bytes), now->pools[i].min_bytes);
    }
}

/* Returns the most important pool that lacks room; NULL: none. */
static const struct budget *find_needy(const struct budget *budgets, size_t count)
{
    const struct budget *needy = NULL;

    for (size_t i = 0; i < count; i++) {
        const struct budget *other = &budgets[i];

        if (!other->is_governed || other->is_frozen || other->lacks_bytes == 0)
            continue;
        if (!needy || other->class > needy->class ||
            (other->class == needy->class && strcmp(other->pool->name, needy->pool->name) < 0))
            needy = other;
    }
    return needy;
}

/* Returns the bytes that the budget could give to the needy one. */
static uint64_t count_gift(const struct budget *budget, const struct budget *needy)
{
    if (budget == needy || !budget->is_governed || budget->is_frozen ||
        budget->pool->max_bytes <= budget->floor_bytes)
        return 0;
    if (budget->class >= needy->class && !budget->is_idle)
        return 0;
    return budget->pool->max_bytes - budget->floor_bytes;
}

/* Sorts the least important first. */
static int compare_budgets(const void *left, const void *right)
{
    const struct budget *const *a = left, *const *b = right;

    if ((*a)->class != (*b)->class)
        return (*a)->class < (*b)->class ? -1 : 1;
    if ((*a)->is_idle != (*b)->is_idle)
        return (*a)->is_idle ? -1 : 1;
    return strcmp((*a)->pool->name, (*b)->pool->name);
}

static void change_max(struct decide_round *round, const struct budget *budget, uint64_t max_bytes,
                       const struct budget *needy)
{
    struct governor_deed deed = {.kind = GOVERNOR_POOL_MAX,
                                 .model = NO_INDEX,
                                 .store = budget->pool->name,
                                 .bytes = max_bytes};
    char before[SIZE_TEXT_BYTES], after[SIZE_TEXT_BYTES];

    size_format_apart((struct size_text[]){{budget->pool->max_bytes, before}, {max_bytes, after}},
                      2);
    if (budget == needy)
        decide_add(round, deed, "%s lacks room in pool %s: its max is raised from %s to %s",
                   needy->needy, budget->pool->name, before, after);
    else
        decide_add(round, deed,
                   "%s lacks room in pool %s: first the max of %s is lowered from %s to %s",
                   needy->needy, needy->pool->name, budget->pool->name, before, after);
}

/* Lowers the others by the missing bytes; does nothing if they cannot give that much. */
static void lower(struct decide_round *round, const struct budget *budgets, size_t count,
                  const struct budget *needy, uint64_t missing)
{
    const struct budget *givers[EVICT_MAX_POOLS];
    size_t giver_count = 0;
    uint64_t all = 0;

    for (size_t i = 0; i < count; i++) {
        if (count_gift(&budgets[i], needy) == 0)
            continue;
        givers[giver_count++] = &budgets[i];
        all = number_add(all, count_gift(&budgets[i], needy));
    }
    if (all < missing)
        return;
    qsort(givers, giver_count, sizeof *givers, compare_budgets);
    for (size_t i = 0; i < giver_count && missing > 0; i++) {
        uint64_t gift = count_gift(givers[i], needy);
        gift = gift < missing ? gift : missing;
        missing -= gift;
        change_max(round, givers[i], givers[i]->pool->max_bytes - gift, needy);
    }
}

void decide_pools(struct decide_round *round)
{
    struct budget budgets[EVICT_MAX_POOLS];
    size_t count = round->now->pool_count;
    uint64_t claimed = 0, coming = 0;

    read_budgets(round, budgets);
    const struct budget *needy = find_needy(budgets, count);
    if (!needy)
        return;
    for (size_t i = 0; i < count; i++) {
        const struct governor_pool *pool = budgets[i].pool;
        claimed = number_add(claimed, count_claim(&budgets[i]));
        if (&budgets[i] != needy && budgets[i].is_governed && pool->used_bytes > pool->max_bytes)
            /* lowered in an earlier round */
            coming = number_add(coming, pool->used_bytes - pool->max_bytes);
    }
    uint64_t all = round->now->device_bytes;
    if (claimed <= all && needy->lacks_bytes <= all - claimed) {
        change_max(round, needy, needy->pool->max_bytes + needy->lacks_bytes, needy);
        return;
    }
    uint64_t missing = number_add(claimed, needy->lacks_bytes) - all;
    if (missing > coming)
        lower(round, budgets, count, needy, missing - coming);
}
