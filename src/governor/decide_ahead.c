/* SPDX-License-Identifier: Apache-2.0 */
/* decide_ahead - adapters and spares: moves made before a store is asked for */
#include "core/core.h"
#include "governor/decide_round.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Few, so that a running copy never delays a model for long. */
#define SPARES_A_ROUND 4u

/* ---- spares --------------------------------------------------------------------------------- */

/* Returns true for a store that may leave, but after a copy of its bytes alone. */
static bool lacks_spare(const struct decide_round *round, size_t store)
{
    const struct governor_store *seen = &round->now->stores[store];

    return decide_is_on_device(round, store) && decide_is_free_to_move(round, store) &&
           !(seen->places & GOVERNOR_HOST) && !seen->pinned && !seen->scratch && seen->bytes > 0 &&
           round->facts[store].class != POOL_CLASS_CRITICAL && !decide_is_frozen(round, store) &&
           !decide_is_resting(round, store) && !decide_is_recent(round, seen->failed_ms);
}

static int compare_spares(const void *left, const void *right)
{
    const struct decide_leaver *a = left, *b = right;

    if (a->class != b->class)
        return a->class < b->class ? -1 : 1;
    if (a->last_use_ms != b->last_use_ms)
        return a->last_use_ms < b->last_use_ms ? -1 : 1;
    return strcmp(a->name, b->name);
}

void decide_spares(struct decide_round *round)
{
    size_t made = 0;

    round->leaver_count = 0;
    for (size_t i = 0; i < round->now->store_count && round->now->host_bytes > 0; i++) {
        if (lacks_spare(round, i))
            round->leavers[round->leaver_count++] =
                (struct decide_leaver){.store = i,
                                       .class = round->facts[i].class,
                                       .last_use_ms = decide_last_use(round, i),
                                       .name = round->now->stores[i].name};
    }
    qsort(round->leavers, round->leaver_count, sizeof *round->leavers, compare_spares);
    for (size_t i = 0; i < round->leaver_count && made < SPARES_A_ROUND; i++) {
        size_t store = round->leavers[i].store;
        struct governor_deed deed = decide_deed(round, store, GOVERNOR_SPARE);

        if (deed.bytes > round->room.host_free)
            continue;
        round->room.host_free -= deed.bytes;
        deed.model = NO_INDEX;
        deed.tier = GOVERNOR_HOST;
        decide_add(round, deed, "%s (%s) has no copy on the host, so it could not leave at once",
                   decide_name_of(round, store).text,
                   core_pool_class_name(round->facts[store].class));
        made++;
    }
}

/* ---- adapters ------------------------------------------------------------------------------- */

struct adapter {
    size_t store;
    uint64_t grants, last_used_ms;
    const char *name;
};

/* Sorts the most granted first. */
static int compare_adapters(const void *left, const void *right)
{
    const struct adapter *a = left, *b = right;

    if (a->grants != b->grants)
        return a->grants > b->grants ? -1 : 1;
    if (a->last_used_ms != b->last_used_ms)
        return a->last_used_ms > b->last_used_ms ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Returns true without a base. Called only in rounds in which no store leaves. */
static bool is_base_there(const struct decide_round *round,
                          const struct governor_adapters *adapters)
{
    const struct governor_config *config = round->config;

    for (size_t i = 0; i < config->model_count && adapters->base; i++) {
        size_t store = round->store_of[i];
        if (strcmp(config->models[i].name, adapters->base) == 0)
            return store != NO_INDEX && decide_is_on_device(round, store) &&
                   !decide_is_frozen(round, store);
    }
    return !adapters->base;
}

static size_t gather_adapters(const struct decide_round *round, const char *pool,
                              struct adapter *rows)
{
    size_t count = 0;

    for (size_t i = 0; i < round->now->store_count; i++) {
        const struct governor_store *seen = &round->now->stores[i];
        if (seen->grants > 0 && round->facts[i].model == NO_INDEX && strcmp(seen->pool, pool) == 0)
            rows[count++] = (struct adapter){i, seen->grants, seen->last_used_ms, seen->name};
    }
    qsort(rows, count, sizeof *rows, compare_adapters);
    return count;
}

/* Allows prefetching up to `low`: above it, the store would soon have to leave again. */
static bool may_come(const struct decide_round *round, size_t store)
{
    uint64_t bytes = round->now->stores[store].bytes, used = decide_get_used(round);
    uint64_t low = decide_get_percent(round, round->config->low);

    return !decide_is_on_device(round, store) && decide_is_free_to_move(round, store) &&
           !decide_is_frozen(round, store) && !decide_is_resting(round, store) &&
           decide_pool_has_room(round, store) && decide_device_has_room(round, store) &&
           used <= low && bytes <= low - used;
}

static void prefetch(struct decide_round *round, const struct governor_adapters *adapters)
{
    static const char *const base_text[] = {"", "; its base is on the device"};
    struct adapter rows[GOVERNOR_MAX_STORES];
    size_t count = gather_adapters(round, adapters->pool, rows);

    for (size_t i = 0; i < count && i < adapters->prefetch; i++) {
        const struct governor_store *seen = &round->now->stores[rows[i].store];

        if (!may_come(round, rows[i].store) || !decide_has_room_for(round, 1))
            continue;
        decide_add(round, decide_deed(round, rows[i].store, GOVERNOR_PROMOTE),
                   "store %.60s was granted %" PRIu64 " times recently, number %zu of its pool%s",
                   seen->name, seen->grants, i + 1, base_text[adapters->base != NULL]);
        round->facts[rows[i].store].comes = true;
        decide_bring_in(round, rows[i].store);
    }
}

void decide_prefetch(struct decide_round *round)
{
    for (size_t i = 0; i < round->config->adapters_count; i++) {
        if (is_base_there(round, &round->config->adapters[i]))
            prefetch(round, &round->config->adapters[i]);
    }
}
