/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_world - a core, sound or broken, the facts that were seen of it, and one record on it
 *
 * For places_deeds.h and places_walk.h. What a record has changed is looked at, and judged by
 * places_laws.h. Time stands still.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_WORLD_H
#define GMSFS_TESTS_UNIT_PLACES_WORLD_H

#include "places_laws.h"
#include "record_bytes.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#define NOW_MS       1000u
#define GRAIN        4096u
#define FIRST_STATES (1u << 12) /* a power of two; doubled when full */
#define KEY_BYTES    10
#define UNDECODED    (1u << 31) /* a state that core_decode refuses: a law of its own */

/* A fact hidden from the evictor's choice, to break it on purpose. */
enum blindness {
    BLIND_TO_NOTHING,
    BLIND_TO_WAITERS,
    BLIND_TO_HOLDERS,
    BLIND_TO_PINS,
    BLIND_TO_MOVES,
    BLINDNESS_COUNT,
};

typedef int (*apply_fn)(struct core *core, const struct record *record, struct outcome *outcome);

/* Until it was expanded; of the others the key is enough. */
struct node {
    uint8_t *bytes;
    size_t size;
    struct facts *facts; /* without room for memories that there are not */
};

static struct {
    apply_fn apply;
    unsigned procs, stores;
    bool has_disk;
    bool keeps; /* also keeps expanded states */
    struct core *core;
    struct facts facts;
    struct outcome out;
    struct node *nodes;
    uint8_t (*keys)[KEY_BYTES];
    uint32_t *slots; /* of a hash table, twice as many as there is room for nodes */
    size_t node_count, taken, room;
    uint64_t steps, ended_moves, grants, evictions;
    unsigned victim,
        evictor; /* of this deed: the moved store and the store in need; STORES if none */
    bool chosen;
    int error;            /* its answer */
    enum blindness blind; /* of the choice: broken on purpose */
    unsigned broken;      /* laws, a bit each */
} walk;

/* ---- looking ------------------------------------------------------------------------------ */

static struct core_store *store_of(unsigned i)
{
    return walk.core->stores.items[i];
}

static void look_at_store(unsigned i)
{
    const struct core_store *store = store_of(i);
    struct sight *sight = &walk.facts.sights[i];
    const struct core_session *writer = core_get_writer(walk.core, store->id);
    const struct layout_allocation *only =
        store->fixed && layout_count_allocations(store->fixed) > 0 ? layout_at_rank(store->fixed, 0)
                                                                   : NULL;

    memset(sight, 0, sizeof *sight);
    sight->committed = store->lock.committed;
    sight->place = store->places.place;
    sight->generation = store->generation;
    sight->moves = store->places.moves;
    sight->move = store->places.move.id;
    sight->to = store->places.move.to;
    memcpy(sight->hash, store->hash, sizeof sight->hash);
    sight->slot = only ? only->slot : 0;
    sight->serial = only ? only->serial : 0;
    sight->memory = only && only->memory != LAYOUT_NO_MEMORY ? only->memory : 0;
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        if (store->places.spares[tier])
            sight->spares[tier] = layout_at_rank(store->places.spares[tier], 0)->memory;
    sight->writer = writer ? writer->id : 0;
    sight->sessions = store->lock.session_count;
    for (size_t s = 0; s < store->lock.session_count; s++) {
        const struct core_session *session =
            core_find_session(walk.core, store->lock.sessions[s].id);
        if (session->holds)
            sight->holder = session->id;
    }
    sight->suspect = store->suspect > 0;
    sight->pinned = store->use.pinned;
    sight->important = store->use.pool != CORE_DEFAULT_POOL;
    if (!sight->committed)
        walk.facts.wanted[i] = 0;
    if (!sight->move)
        walk.facts.source[i] = 0;
}

static void forget_memory(uint64_t id)
{
    struct facts *facts = &walk.facts;

    for (size_t i = 0; i < facts->memory_count; i++)
        if (facts->memories[i].id == id) {
            facts->memories[i] = facts->memories[--facts->memory_count];
            return;
        }
}

static void take_effects(void)
{
    struct effect effect;

    while (core_next_effect(walk.core, &effect)) {
        if (effect.type == EFFECT_FREE_MEMORY)
            forget_memory(effect.memory);
        for (unsigned p = 0; p < PROCS; p++) {
            struct proc *proc = &walk.facts.procs[p];
            proc->over |= effect.type == EFFECT_SESSION_OVER && proc->session == effect.session;
            if (!effect.waiter || proc->waiter != effect.waiter)
                continue;
            proc->waiter = 0;
            proc->session = effect.type == EFFECT_GRANTED ? effect.session : 0;
            proc->file = effect.type == EFFECT_GRANTED ? effect.file : 0;
            proc->way = effect.type == EFFECT_GRANTED ? proc->way : IDLE;
            walk.grants += effect.type == EFFECT_GRANTED;
        }
    }
}

/* ---- one record --------------------------------------------------------------------------- */

static uint64_t add_memory(uint64_t bytes, enum core_place tier)
{
    struct facts *facts = &walk.facts;
    uint64_t id = 1;

    for (size_t i = 0; i < facts->memory_count; i++)
        id = facts->memories[i].id >= id ? facts->memories[i].id + 1 : id;
    require(facts->memory_count < MEMORIES);
    facts->memories[facts->memory_count++] = (struct memory){id, bytes, tier};
    return id;
}

static int apply(struct record record)
{
    record.now_ms = NOW_MS;
    record.wall_ms = NOW_MS;
    record.free_bytes = UINT64_C(1) << 40;
    memset(&walk.out, 0, sizeof walk.out);
    return walk.apply(walk.core, &record, &walk.out);
}

static void judge(const struct record *record, unsigned store, int error,
                  const struct facts *before)
{
    struct step step = {.type = record->type,
                        .store = store,
                        .kind = record->kind,
                        .flags = record->flags,
                        .evictor = walk.evictor,
                        .chosen = walk.chosen,
                        .error = error,
                        .core = walk.core,
                        .before = before,
                        .after = &walk.facts};

    walk.steps++;
    for (unsigned law = 0; law < LAWS; law++)
        for (unsigned i = 0; i < walk.stores; i++)
            if (!laws[law].holds(&step, i))
                walk.broken |= 1u << law;
}

#endif
