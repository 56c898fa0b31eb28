/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/decide_round.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- facts ---------------------------------------------------------------------------------- */

static size_t find_pool(const struct governor_snapshot *now, const char *name)
{
    for (size_t i = 0; i < now->pool_count; i++) {
        if (strcmp(now->pools[i].name, name) == 0)
            return i;
    }
    return NO_INDEX;
}

static size_t find_model(const struct governor_config *config, const char *store)
{
    for (size_t i = 0; i < config->model_count; i++) {
        if (strcmp(config->models[i].store, store) == 0)
            return i;
    }
    return NO_INDEX;
}

void decide_begin(struct decide_round *round, const struct governor_snapshot *now,
                  const struct governor_config *config, struct governor_deed *deeds)
{
    round->now = now;
    round->config = config;
    round->deeds = deeds;
    round->count = round->leaver_count = 0;
    round->has_preempted = round->has_moved = false;
    round->kept_for = NO_INDEX;
    for (size_t i = 0; i < config->model_count; i++)
        round->store_of[i] = NO_INDEX;
    for (size_t i = 0; i < now->store_count; i++) {
        size_t model = find_model(config, now->stores[i].name);
        size_t pool = find_pool(now, now->stores[i].pool);
        enum pool_class class = pool == NO_INDEX ? POOL_CLASS_STANDARD : now->pools[pool].class;

        if (model != NO_INDEX) {
            round->store_of[model] = i;
            class = config->models[model].class;
        }
        round->facts[i] = (struct decide_fact){.model = model, .pool = pool, .class = class};
    }
}

bool decide_is_recent(const struct decide_round *round, uint64_t ms)
{
    return ms != 0 &&
           (ms > round->now->now_ms || round->now->now_ms - ms < round->config->cooldown_ms);
}

bool decide_is_frozen(const struct decide_round *round, size_t store)
{
    size_t model = round->facts[store].model;

    if (model == NO_INDEX)
        return decide_is_recent(round, round->now->stores[store].failed_ms);
    return !round->now->demand[model].is_known ||
           decide_is_recent(round, round->now->demand[model].failed_ms);
}

bool decide_is_resting(const struct decide_round *round, size_t store)
{
    size_t model = round->facts[store].model;

    return decide_is_recent(round, round->now->stores[store].moved_ms) ||
           (model != NO_INDEX && decide_is_recent(round, round->now->demand[model].done_ms));
}

bool decide_has_requests(const struct decide_round *round, size_t model)
{
    const struct governor_demand *demand = &round->now->demand[model];
    uint64_t target_ms = round->config->models[model].ttft_ms;

    return demand->waiting > 0 || (target_ms > 0 && demand->ttft_ms > target_ms);
}

bool decide_has_demand(const struct decide_round *round, size_t model)
{
    size_t store = round->store_of[model];

    return decide_has_requests(round, model) ||
           (store != NO_INDEX && round->now->stores[store].waiting > 0);
}

/* Without metrics an engine that holds its store counts as in use. */
bool decide_is_idle(const struct decide_round *round, size_t store)
{
    const struct governor_store *seen = &round->now->stores[store];
    size_t model = round->facts[store].model;

    if (seen->waiting > 0)
        return false;
    if (model == NO_INDEX || !round->config->models[model].metrics)
        return seen->held == 0;
    return round->now->demand[model].running == 0 && round->now->demand[model].idle_since_ms > 0 &&
           !decide_has_demand(round, model);
}

bool decide_is_over(const struct decide_round *round, size_t store)
{
    size_t model = round->facts[store].model;

    if (model == NO_INDEX || round->config->models[model].idle_ms == 0 ||
        !decide_is_idle(round, store))
        return false;
    uint64_t since_ms = round->now->demand[model].idle_since_ms, now_ms = round->now->now_ms;
    return since_ms > 0 && since_ms <= now_ms &&
           now_ms - since_ms >= round->config->models[model].idle_ms;
}

bool decide_is_on_device(const struct decide_round *round, size_t store)
{
    return (round->now->stores[store].places & GOVERNOR_DEVICE) != 0;
}

uint64_t decide_last_use(const struct decide_round *round, size_t store)
{
    uint64_t used_ms = round->now->stores[store].last_used_ms;
    size_t model = round->facts[store].model;
    uint64_t idle_ms = model == NO_INDEX ? 0 : round->now->demand[model].idle_since_ms;

    return idle_ms > 0 && idle_ms < used_ms ? idle_ms : used_ms;
}

bool decide_is_free_to_move(const struct decide_round *round, size_t store)
{
    const struct governor_store *seen = &round->now->stores[store];
    const struct decide_fact *fact = &round->facts[store];

    return seen->committed && !seen->moving && !seen->draining && !seen->suspect &&
           seen->places != 0 && !fact->goes && !fact->comes;
}

struct decide_name decide_name_of(const struct decide_round *round, size_t store)
{
    struct decide_name name;
    size_t model = round->facts[store].model;

    if (model != NO_INDEX)
        snprintf(name.text, sizeof name.text, "%s", round->config->models[model].name);
    else
        snprintf(name.text, sizeof name.text, "store %.60s", round->now->stores[store].name);
    return name;
}

/* ---- deeds ---------------------------------------------------------------------------------- */

bool decide_has_room_for(const struct decide_round *round, size_t deeds)
{
    return GOVERNOR_MAX_DEEDS - round->count >= deeds;
}

struct governor_deed decide_deed(const struct decide_round *round, size_t store,
                                 enum governor_deed_kind kind)
{
    const struct governor_store *seen = &round->now->stores[store];

    return (struct governor_deed){.kind = kind,
                                  .model = round->facts[store].model,
                                  .store = seen->name,
                                  .bytes = seen->bytes};
}

void decide_add(struct decide_round *round, struct governor_deed deed, const char *format, ...)
{
    va_list arguments;

    if (!decide_has_room_for(round, 1))
        return;
    va_start(arguments, format);
    vsnprintf(deed.reason, sizeof deed.reason, format, arguments);
    va_end(arguments);
    for (char *at = deed.reason; *at; at++) {
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = '?';
    }
    round->deeds[round->count++] = deed;
}
