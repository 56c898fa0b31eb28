/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_model - a simple model beside a core, and the checks that must hold after every record
 *
 * For test_records.c. model_take_all follows the outcome and the effects of one record; the checks
 * compare the core with the model. They change nothing, and a failed check ends the test at once.
 */
#ifndef GMSFS_TESTS_UNIT_CORE_MODEL_H
#define GMSFS_TESTS_UNIT_CORE_MODEL_H

#include "core_fixture.h"

#include "core/core_internal.h"

#define MAX_IDS 8192u /* of each kind, in one run */

enum fate {
    FATE_NONE = 0,
    FATE_LIVE, /* waits, is held, is open */
    FATE_OVER, /* answered, freed, ended */
};

static struct {
    uint8_t waiters[MAX_IDS], memories[MAX_IDS], sessions[MAX_IDS];
    uint64_t generations[MAX_IDS], versions[MAX_IDS]; /* by store */
    enum lock_state states[MAX_IDS];
    uint64_t place_versions[MAX_IDS];
    bool announced[MAX_IDS]; /* EFFECT_STATE in this step */
    bool moved[MAX_IDS];     /* EFFECT_PLACE in this step */
} model;

static void model_take(const struct effect *effect)
{
    switch (effect->type) {
    case EFFECT_GRANTED:
    case EFFECT_REFUSED:
        require(effect->waiter < MAX_IDS && model.waiters[effect->waiter] == FATE_LIVE);
        require((effect->error < 0) == (effect->type == EFFECT_REFUSED));
        model.waiters[effect->waiter] = FATE_OVER;
        break;
    case EFFECT_FREE_MEMORY:
        require(effect->memory < MAX_IDS && model.memories[effect->memory] == FATE_LIVE);
        require(core_memory(core, effect->memory) == NULL);
        model.memories[effect->memory] = FATE_OVER;
        break;
    case EFFECT_SESSION_OVER:
        require(effect->session < MAX_IDS && model.sessions[effect->session] != FATE_OVER);
        require(core_find_session(core, effect->session) == NULL);
        model.sessions[effect->session] = FATE_OVER;
        break;
    case EFFECT_STATE:
        model.announced[effect->store] = true;
        break;
    case EFFECT_PLACE:
        model.moved[effect->store] = true;
        break;
    case EFFECT_MOVE_OVER: {
        const struct core_store *store = core_find_store(core, effect->store);
        require(effect->move != 0 && (!store || store->places.move.id != effect->move));
        break;
    }
    case EFFECT_EVENT:
        break;
    case EFFECT_REGION_OVER:
        for (size_t i = 0; i < core->regions.items.count; i++) {
            const struct region *region = core->regions.items.items[i];
            require(!effect->memory || region->memory != effect->memory);
            require(!effect->file || region->file != effect->file);
        }
        break;
    }
}

static void model_take_all(void)
{
    memset(model.announced, 0, sizeof model.announced);
    memset(model.moved, 0, sizeof model.moved);
    /* The waiter made or renewed by this record. */
    if (out.waiter > 0 && out.waiter < MAX_IDS && core_find_waiter(core, out.waiter))
        model.waiters[out.waiter] = FATE_LIVE;
    for (size_t i = 0; i < core->memories.count; i++) {
        uint64_t id = ((const struct core_memory *)core->memories.items[i])->id;
        require(id < MAX_IDS && model.memories[id] != FATE_OVER);
        model.memories[id] = FATE_LIVE;
    }
    for (size_t i = 0; i < logged_count; i++)
        model_take(&logged[i]);
    logged_count = 0;
}

/* The core's reserved bytes before the record. */
static uint64_t reserved_before;

/* Returns true if an earlier, still patient writer waits for other processes to exit. */
static bool waits_for_a_turn(const struct core_store *store, uint64_t waiter)
{
    const struct lock *lock = &store->lock;

    for (size_t i = 0; i < lock->waiter_count && lock->waiters[i].id != waiter; i++) {
        const struct lock_waiter *before = &lock->waiters[i];

        if (before->sleep == LOCK_ASLEEP_IN_TURN && now < before->hold_since_ms + PATIENCE_MS)
            return true;
    }
    return false;
}

/* Returns the unused part of a pool's min. */
static uint64_t unfilled_bytes(const struct core_pool *pool)
{
    return pool->min_bytes > pool->used_bytes ? pool->min_bytes - pool->used_bytes : 0;
}

/* Returns the bytes that the budget of the store's pool leaves for the store. */
static uint64_t budget_bytes(const struct core_store *store)
{
    const struct core_pool *pool = core_find_pool(core, store);

    if (pool->slots > 0 && pool->resident >= pool->slots && store->use.used_bytes == 0)
        return 0;
    return pool->max_bytes > pool->used_bytes ? pool->max_bytes - pool->used_bytes : 0;
}

/* Returns the part of `left` free bytes that is not reserved for other pools. */
static uint64_t shared_bytes(const struct core_store *store, uint64_t left)
{
    for (size_t i = 0; i < core->pools.items.count; i++) {
        const struct core_pool *pool = core->pools.items.items[i];

        if (pool->id != store->use.pool)
            left -= unfilled_bytes(pool) < left ? unfilled_bytes(pool) : left;
    }
    return left;
}

static bool is_claimed, pool_is_claimed[MAX_IDS];

/* Checks that a waiter whose lock is free has a reason to wait: memory, an earlier turn, or its
 * process is away. */
static void check_has_a_reason(const struct core_waiter *waiter, const struct core_store *store,
                               uint64_t left)
{
    const struct core_pool *pool = core_find_pool(core, store);
    bool is_there = store->fixed && store->places.place == CORE_PLACE_DEVICE;
    uint64_t replaced = is_there ? layout_total_bytes(store->fixed) : 0;
    bool of_pool = waiter->reserve_bytes > budget_bytes(store) + replaced &&
                   budget_bytes(store) <= UINT64_MAX - replaced;
    bool lacks = of_pool || waiter->reserve_bytes > shared_bytes(store, left) + replaced;

    if (pool_is_claimed[pool->id] || (is_claimed && waiter->reserve_bytes > unfilled_bytes(pool)))
        return;
    require(lacks || waiter->away || waits_for_a_turn(store, waiter->id));
    if (of_pool)
        pool_is_claimed[pool->id] = true;
    else if (lacks)
        is_claimed = true;
}

/* A waiter for its store's promotion claims the memory before later waiters, until the move begins.
 */
static void claim_place(const struct core_waiter *waiter, const struct core_store *store)
{
    const struct core_pool *pool = core_find_pool(core, store);
    enum lock_mode mode = lock_get_wish_mode(&store->lock, waiter->wish);

    if (!core_waiter_counts(waiter) || store->places.move.id != 0 ||
        core_get_writer(core, store->id) || core_is_fenced(core, store->name) ||
        !core_lacks_place(store, mode, waiter->kind, waiter->flags) ||
        layout_total_bytes(store->fixed) > pool->max_bytes)
        return;
    if (layout_total_bytes(store->fixed) > budget_bytes(store))
        pool_is_claimed[pool->id] = true;
    else
        is_claimed = true;
}

/* Checks that newly reserved bytes were free, and that no waiter waits for bytes that are free. */
static void check_reservations(int error)
{
    uint64_t now_bytes = core->reserved_bytes, taken, left;

    taken = now_bytes > reserved_before ? now_bytes - reserved_before : 0;
    require(taken <= device_free);
    left = device_free - taken;
    if (core->is_resuming)
        return; /* a client that has not come back may be next */
    is_claimed = false;
    memset(pool_is_claimed, 0, sizeof pool_is_claimed);
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_find_store(core, waiter->store);
        bool free_for = lock_is_free_for(&store->lock, waiter->id);

        claim_place(waiter, store);
        if (!core_waiter_counts(waiter) || waiter->reserve_bytes == 0 || error < 0 ||
            lock_get_wish_mode(&store->lock, waiter->wish) != LOCK_MODE_RW ||
            core_lacks_place(store, LOCK_MODE_RW, waiter->kind, waiter->flags))
            continue;
        /* The first waiter whose lock is free may lack memory; later ones wait behind it. A waiter
         * that only looks around is granted nothing. */
        if (free_for)
            check_has_a_reason(waiter, store, left);
    }
}

/* Checks that the core's memories are the announced ones, less the freed ones. */
static void check_memories(void)
{
    for (uint64_t id = 1; id < next_memory; id++)
        require((core_memory(core, id) != NULL) == (model.memories[id] == FATE_LIVE));
}

static void check_sessions(void)
{
    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];

        require(session->id < MAX_IDS && model.sessions[session->id] != FATE_OVER);
    }
}

/* Ends all waiters: a dead worker does not answer them, and their clients ask again. */
static void model_note_away(void)
{
    for (uint64_t id = 1; id < core->next_waiter; id++)
        if (model.waiters[id] == FATE_LIVE)
            model.waiters[id] = FATE_OVER;
}

static void check_waiters(void)
{
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];

        require(waiter->id < MAX_IDS);
        require((model.waiters[waiter->id] == FATE_LIVE) == !waiter->away);
    }
    /* No waiter was lost without an answer. */
    for (uint64_t id = 1; id < core->next_waiter; id++)
        require(model.waiters[id] != FATE_LIVE || core_find_waiter(core, id) != NULL);
}

static void check_stores(void)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        require(store->id < MAX_IDS);
        require(store->generation >= model.generations[store->id]);
        require((store->version != model.versions[store->id]) == model.announced[store->id]);
        /* A drain shows itself as well. */
        if (store->generation != model.generations[store->id] ||
            lock_get_state(&store->lock) != model.states[store->id])
            require(store->version != model.versions[store->id]);
        model.states[store->id] = lock_get_state(&store->lock);
        require((store->places.version != model.place_versions[store->id]) ==
                model.moved[store->id]);
        model.place_versions[store->id] = store->places.version;
        model.generations[store->id] = store->generation;
        model.versions[store->id] = store->version;
    }
}

/* Checks the core's own invariants. */
static void check_core(void)
{
    struct failure failure = {0};

    if (core_check(core, &failure) < 0)
        fprintf(stderr, "# %s\n", failure.text);
    require(failure.text[0] == '\0');
}

/* After the outcome `error` of one record. */
static void check_step(int error)
{
    model_take_all();
    check_reservations(error);
    check_memories();
    check_sessions();
    check_waiters();
    check_stores();
    check_core();
}

/* Checks that no waiter is grantable or expired after the core was told the time. */
static void check_no_waiter_is_due(void)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        enum lock_mode mode;
        uint64_t waiter;
        bool kept;

        require(core->is_resuming || !lock_next_grant(&store->lock, now, &waiter, &mode));
        require(!lock_next_expired(&store->lock, now, &waiter, &kept));
    }
    require(core->is_resuming || core_next_moment(core, now) > now);
}

#endif
