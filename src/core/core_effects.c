/* SPDX-License-Identifier: Apache-2.0 */
/* core_effects - the queue of work outside the core; its room is made before a record is applied */
#include "core/core_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One record answers each waiter at most once, frees each memory once, ends each session once (also
 * those that it makes), changes each store once, and adds events: one for the connect or disconnect
 * of each session, for each store that is cleared, dropped or suspected, for the device's health,
 * and for the record's own action. A region that ends makes an event and an effect. Changes of a
 * store's copies make up to four: new place, end of a move, and two events. */
static size_t effect_bound(const struct core *core)
{
    size_t sessions = core->sessions.count + core->waiters.count + 1;

    return core->waiters.count + core->memories.count + 3 * sessions + 7 * core->stores.count +
           2 * core->regions.items.count + 5;
}

/* Returns the growth of the bound by one more object of each kind and `memories` memories. */
static size_t effect_growth(size_t memories)
{
    return 1 + memories + 3 + 2 + 2 + 4;
}

int core_reserve_effects(struct core *core, size_t next_memories)
{
    size_t bound = effect_bound(core);
    size_t next = next_memories ? bound + effect_growth(next_memories) : 0;
    size_t wanted = core->effect_count + bound + next;
    struct effect *effects;

    if (core->effect_first > 0) {
        memmove(core->effects, core->effects + core->effect_first,
                core->effect_count * sizeof *core->effects);
        core->effect_first = 0;
    }
    if (wanted <= core->effect_room)
        return 0;
    wanted += wanted / 2;
    /* Not realloc(3): it would also copy, and so allocate pages for, the unused room. */
    effects = malloc(wanted * sizeof *effects);
    if (!effects)
        return -ENOMEM;
    if (core->effect_count > 0)
        memcpy(effects, core->effects, core->effect_count * sizeof *effects);
    free(core->effects);
    core->effects = effects;
    core->effect_room = wanted;
    return 0;
}

void core_push_effect(struct core *core, struct effect effect)
{
    assert(core->effect_first + core->effect_count < core->effect_room);
    core->effects[core->effect_first + core->effect_count++] = effect;
}

const struct effect *core_peek_effect(const struct core *core, size_t at)
{
    return at < core->effect_count ? &core->effects[core->effect_first + at] : NULL;
}

bool core_next_effect(struct core *core, struct effect *effect)
{
    if (core->effect_count == 0)
        return false;
    *effect = core->effects[core->effect_first];
    core->effect_count--;
    core->effect_first = core->effect_count > 0 ? core->effect_first + 1 : 0;
    return true;
}
