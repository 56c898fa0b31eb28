/* SPDX-License-Identifier: Apache-2.0 */
/* core_effects - the queue of what has to be done outside, with room before a record is applied */
#include "core/core_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One record answers each waiter at most once, frees each memory once, ends each session once (also
 * those that it makes), changes each store once, and adds some events: a connect or disconnect for
 * each session, one for each store that is begun anew, and for each that is dropped or judged, one
 * for the device's health, and one for its own deed. A region that ends is an event and what it
 * had. What is told of a store's copies: that they are others, that a move is over, and two events.
 */
static size_t effect_bound(const struct core *core)
{
    size_t sessions = core->sessions.count + core->waiters.count + 1;

    return core->waiters.count + core->memories.count + 3 * sessions + 7 * core->stores.count +
           2 * core->regions.items.count + 5;
}

/* What one record more of everything, with `memories` of them, adds to the bound. */
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
    /* No realloc(3): it would copy, and so take pages for, the room that nothing was put into. */
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
