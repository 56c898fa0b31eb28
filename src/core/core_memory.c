/* SPDX-License-Identifier: Apache-2.0 */
/* Which layouts hold which memory, and what becomes of it with the last of them. */
#include "core/core_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct core_memory *core_memory(const struct core *core, uint64_t memory)
{
    return idvec_find(&core->memories, memory);
}

/* Handles come from helper threads, so not quite in order. */
static void insert_memory(struct idvec *vec, struct core_memory *memory)
{
    size_t at = vec->count;

    while (at > 0 && ((const struct core_memory *)vec->items[at - 1])->id > memory->id)
        at--;
    memmove(&vec->items[at + 1], &vec->items[at], (vec->count - at) * sizeof *vec->items);
    vec->items[at] = memory;
    vec->count++;
}

int core_memory_add(struct core *core, uint64_t memory, uint64_t aligned_bytes)
{
    struct core_memory *fresh;

    if (memory == LAYOUT_NO_MEMORY || core_memory(core, memory))
        return -EINVAL;
    if (core_reserve(&core->memories, 1) < 0)
        return -ENOMEM;
    fresh = malloc(sizeof *fresh);
    if (!fresh)
        return -ENOMEM;
    *fresh = (struct core_memory){.id = memory, .aligned_bytes = aligned_bytes};
    insert_memory(&core->memories, fresh);
    return 0;
}

void core_memory_forget(struct core *core, uint64_t memory)
{
    free(idvec_remove(&core->memories, memory));
}

static void trust(struct core *core, struct core_memory *held)
{
    struct core_store *store = core_store(core, held->suspect);

    if (!store)
        return;
    held->suspect = 0;
    store->suspect--;
    core->suspect--;
}

void core_memory_trust(struct core *core, const struct layout *layout)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY)
            trust(core, core_memory(core, allocation->memory));
    }
}

void core_memory_suspect(struct core *core, struct core_store *store, const struct layout *layout)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        struct core_memory *held;

        if (allocation->memory == LAYOUT_NO_MEMORY)
            continue;
        held = core_memory(core, allocation->memory);
        if (held->suspect || held->tier != CORE_PLACE_DEVICE)
            continue;
        held->suspect = store->id;
        store->suspect++;
        core->suspect++;
    }
}

void core_memory_ref(struct core *core, uint64_t memory)
{
    struct core_memory *held = core_memory(core, memory);

    assert(held && held->refs < 2);
    held->refs++;
}

/* Whether that was the last one: then it is to be forgotten. */
static bool drop_ref(struct core *core, uint64_t memory)
{
    struct core_memory *held = core_memory(core, memory);

    assert(held && held->refs > 0);
    if (--held->refs > 0)
        return false;
    trust(core, held);
    core_push_effect(core, (struct effect){.type = EFFECT_FREE_MEMORY, .memory = memory});
    return true;
}

void core_memory_unref(struct core *core, uint64_t memory)
{
    if (drop_ref(core, memory))
        core_memory_forget(core, memory);
}

void core_memory_ref_layout(struct core *core, const struct layout *layout)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY)
            core_memory_ref(core, allocation->memory);
    }
}

static bool free_unreferenced(void *item, void *unused)
{
    struct core_memory *held = item;

    (void)unused;
    if (held->refs > 0)
        return false;
    free(held);
    return true;
}

void core_memory_unref_layout(struct core *core, const struct layout *layout)
{
    size_t unreferenced = 0;

    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY)
            unreferenced += drop_ref(core, allocation->memory);
    }
    /* All at once: each by itself would move those behind it. */
    if (unreferenced > 0)
        idvec_remove_if(&core->memories, free_unreferenced, NULL);
}

void core_mark_committed(struct core *core, const struct layout *layout, uint64_t store)
{
    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY)
            core_memory(core, allocation->memory)->committed = store;
    }
}

void core_drop_working(struct core *core, struct core_store *store)
{
    if (!store->working)
        return;
    core_memory_unref_layout(core, store->working);
    core_throw_layout(core, store->working);
    store->working = NULL;
}

void core_forget_writers(struct core_store *store)
{
    free(store->writers);
    store->writers = NULL;
    store->writer_count = 0;
    store->unseen_writer = false;
}

void core_drop_fixed(struct core *core, struct core_store *store)
{
    if (!store->fixed)
        return;
    core_end_move(core, store);
    core_drop_spares(core, store);
    core_set_place(core, store, CORE_PLACE_DEVICE);
    core_mark_committed(core, store->fixed, 0);
    core_memory_unref_layout(core, store->fixed);
    core_throw_layout(core, store->fixed);
    core_throw_blob(core, store->encoding);
    store->fixed = NULL;
    store->encoding = NULL;
    memset(store->hash, 0, sizeof store->hash);
    memset(store->group, 0, sizeof store->group);
    lock_set_committed(&store->lock, false);
    lock_set_sealed(&store->lock, false);
    if (!store->working)
        core_forget_writers(store);
}

void core_set_fixed(struct core *core, struct core_store *store, struct layout *layout)
{
    if (layout != store->fixed)
        core_drop_fixed(core, store);
    if (layout == store->working)
        store->working = NULL;
    store->fixed = layout;
    core_mark_committed(core, layout, store->id);
}
