/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_model - what must hold of a core after every record, kept beside it in the simplest way
 *
 * For test_records.c. model_take_all follows the outcome and the effects of one record; the checks
 * compare what the core then is with what they say. They change nothing and end the test at once.
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
    bool announced[MAX_IDS];                          /* EFFECT_STATE in this step */
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
    case EFFECT_EVENT:
        break;
    }
}

static void model_take_all(void)
{
    memset(model.announced, 0, sizeof model.announced);
    /* Who waits since this record, or again. */
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

/* Of the core, before the record. */
static uint64_t reserved_before;

/* What is set aside is a writer's, was free, and nobody waits for what is there. */
static void check_reservations(int error)
{
    uint64_t sum = 0, taken, left;
    size_t reserving = 0;

    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];

        sum += session->reserved_bytes;
        require(session->mode == LOCK_MODE_RW ||
                (session->reserved_bytes == 0 && session->due_bytes == 0));
    }
    require(sum == core->reserved_bytes);
    taken = sum > reserved_before ? sum - reserved_before : 0;
    require(taken <= device_free);
    left = device_free - taken;
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_find_store(core, waiter->store);
        bool free_for = lock_is_free_for(&store->lock, waiter->id);

        reserving += waiter->reserve_bytes > 0;
        if (!core_waiter_counts(waiter) || waiter->reserve_bytes == 0 || error < 0 ||
            lock_get_wish_mode(&store->lock, waiter->wish) != LOCK_MODE_RW)
            continue;
        /* The first whose lock is free may lack memory; those behind it wait for it. Who looks
         * around is not granted what is there. */
        if (free_for && left != UINT64_MAX) {
            bool lacks = waiter->reserve_bytes >
                         left + (store->committed ? layout_total_bytes(store->committed) : 0);
            require(lacks || waiter->away);
            left = lacks ? UINT64_MAX : left;
        }
    }
    require(reserving == core->reserving);
}

static void count_layout(const struct layout *layout, uint32_t counts[MAX_IDS])
{
    for (size_t i = 0; layout && i < layout_count_allocations(layout); i++) {
        uint64_t memory = layout_at_rank(layout, i)->memory;
        require(memory < MAX_IDS);
        counts[memory]++;
    }
}

/* Memory is counted as often as layouts reach it, and what none reaches was freed. */
static void check_memories(void)
{
    static uint32_t counts[MAX_IDS];

    memset(counts, 0, sizeof counts[0] * (next_memory + 1));
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        count_layout(store->committed, counts);
        count_layout(store->working, counts);
    }
    for (uint64_t id = 1; id < next_memory; id++) {
        const struct core_memory *memory = core_memory(core, id);
        require((memory ? memory->refs : 0) == counts[id]);
        require((memory != NULL) == (model.memories[id] == FATE_LIVE));
    }
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        for (size_t rank = 0; store->committed && rank < layout_count_allocations(store->committed);
             rank++)
            require(core_is_committed_memory(core, store,
                                             layout_at_rank(store->committed, rank)->memory));
    }
}

static void check_sessions(void)
{
    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];
        const struct core_store *store = core_find_store(core, session->store);
        uint64_t files = 0;

        require(store != NULL && session->id < MAX_IDS);
        require(lock_find_session(&store->lock, session->id)->mode == session->mode);
        require(model.sessions[session->id] != FATE_OVER);
        for (size_t j = 0; j < core->files.count; j++)
            files += ((const struct core_file *)core->files.items[j])->session == session->id;
        require(files == session->files && (files > 0 || session->ending));
        if (session->exclusive && !session->ending)
            require(core_find_file(core, session->opener)->session == session->id);
    }
}

static void check_waiters(void)
{
    size_t in_locks = 0;

    for (size_t i = 0; i < core->stores.count; i++)
        in_locks += ((const struct core_store *)core->stores.items[i])->lock.waiter_count;
    require(in_locks == core->waiters.count);
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_find_store(core, waiter->store);
        const struct lock_waiter *queued = lock_find_waiter(&store->lock, waiter->id);

        require(queued && (queued->kept_until_ms != 0) == waiter->away);
        require(queued->looking == (waiter->away && core_waiter_counts(waiter)));
        require(waiter->id < MAX_IDS);
        require((model.waiters[waiter->id] == FATE_LIVE) == !waiter->away);
        if (waiter->file)
            require(core_find_file(core, waiter->file) != NULL);
    }
    /* Nobody who was to be answered was lost. */
    for (uint64_t id = 1; id < core->next_waiter; id++)
        require(model.waiters[id] != FATE_LIVE || core_find_waiter(core, id) != NULL);
}

/* Serials are handed out once: none that exists is still to come. */
static void check_serials(const struct layout *layout)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    for (size_t i = 0; layout && i < layout_count_allocations(layout); i++)
        require(layout_at_rank(layout, i)->serial < core->next_id);
    if (layout)
        layout_cursor_first(&cursor, layout);
    while (layout && (entry = layout_cursor_next(&cursor)))
        require(entry->serial < core->next_id);
}

static void check_stores(void)
{
    size_t in_locks = 0;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        const struct core_session *writer = core_get_writer(core, store->id);

        in_locks += store->lock.session_count;
        require(store->id < MAX_IDS);
        require(!writer || store->lock.session_count == 1);
        require(!store->working || writer);
        require((store->committed != NULL) == store->lock.committed);
        require((store->committed != NULL) == (store->encoding != NULL));
        check_serials(store->committed);
        check_serials(store->working);
        require(store->generation >= model.generations[store->id]);
        require((store->version != model.versions[store->id]) == model.announced[store->id]);
        model.generations[store->id] = store->generation;
        model.versions[store->id] = store->version;
    }
    require(in_locks == core->sessions.count);
    for (size_t i = 0; i < core->tickets.count; i++)
        require(
            core_find_session(core, ((const struct core_ticket *)core->tickets.items[i])->session));
}

/* After the time was told, nobody waits who need not. */
static void check_nobody_is_due(void)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        enum lock_mode mode;
        uint64_t waiter;
        bool kept;

        require(!lock_next_grant(&store->lock, now, &waiter, &mode));
        require(!lock_next_expired(&store->lock, now, &waiter, &kept));
    }
    require(core_next_moment(core, now) > now);
}

#endif
