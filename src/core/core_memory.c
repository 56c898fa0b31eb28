/* SPDX-License-Identifier: Apache-2.0 */
/* Memories: their references from layouts, and their release with the last one. */
#include "core/core_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct core_memory *core_memory(const struct core *core, uint64_t memory)
{
    return idvec_find(&core->memories, memory);
}

size_t core_count_memories(const struct core *core)
{
    return core->memories.count;
}

struct core_memory_view core_get_memory(const struct core *core, size_t index)
{
    const struct core_memory *memory = core->memories.items[index];

    return (struct core_memory_view){.id = memory->id,
                                     .store = memory->store,
                                     .aligned_bytes = memory->aligned_bytes,
                                     .tier = memory->tier};
}

/* Helper threads make the handles, so they arrive slightly out of order. */
static void insert_memory(struct idvec *vec, struct core_memory *memory)
{
    size_t at = vec->count;

    while (at > 0 && ((const struct core_memory *)vec->items[at - 1])->id > memory->id)
        at--;
    memmove(&vec->items[at + 1], &vec->items[at], (vec->count - at) * sizeof *vec->items);
    vec->items[at] = memory;
    vec->count++;
}

/* Only memory on the device counts as use. */
static void use_more(struct core *core, const struct core_memory *held)
{
    if (held->tier == CORE_PLACE_DEVICE)
        core_use_more(core, core_store(core, held->store), held->aligned_bytes);
}

static void use_less(struct core *core, const struct core_memory *held)
{
    if (held->tier == CORE_PLACE_DEVICE)
        core_use_less(core, core_store(core, held->store), held->aligned_bytes);
}

int core_memory_add(struct core *core, struct core_store *store, uint64_t memory,
                    enum core_place tier, uint64_t aligned_bytes)
{
    struct core_memory *fresh;

    if (memory == LAYOUT_NO_MEMORY || core_memory(core, memory))
        return -EINVAL;
    if (core_reserve(&core->memories, 1) < 0)
        return -ENOMEM;
    fresh = malloc(sizeof *fresh);
    if (!fresh)
        return -ENOMEM;
    *fresh = (struct core_memory){
        .id = memory, .store = store->id, .tier = tier, .aligned_bytes = aligned_bytes};
    insert_memory(&core->memories, fresh);
    use_more(core, fresh);
    return 0;
}

void core_memory_forget(struct core *core, uint64_t memory)
{
    use_less(core, core_memory(core, memory));
    free(idvec_remove(&core->memories, memory));
}

void core_memory_resize(struct core *core, uint64_t memory, uint64_t aligned_bytes)
{
    struct core_memory *held = core_memory(core, memory);

    use_less(core, held);
    held->aligned_bytes = aligned_bytes;
    use_more(core, held);
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

        if (allocation->memory == LAYOUT_NO_MEMORY)
            continue;
        struct core_memory *held = core_memory(core, allocation->memory);
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

/* Drops a reference. True if it was the last one: the caller removes the memory from the table. */
static bool drop_ref(struct core *core, struct core_memory *held)
{
    assert(held && held->refs > 0);
    if (--held->refs > 0)
        return false;
    trust(core, held);
    use_less(core, held);
    core_push_effect(core, (struct effect){.type = EFFECT_FREE_MEMORY, .memory = held->id});
    return true;
}

void core_memory_unref(struct core *core, uint64_t memory)
{
    if (drop_ref(core, core_memory(core, memory)))
        free(idvec_remove(&core->memories, memory));
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

void core_memory_unref_layout(struct core *core, const struct layout *layout, bool is_fixed)
{
    size_t unreferenced = 0, at = 0;

    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory == LAYOUT_NO_MEMORY)
            continue;
        struct core_memory *held = idvec_find_near(&core->memories, allocation->memory, &at);
        if (is_fixed)
            held->committed = 0;
        unreferenced += drop_ref(core, held);
    }
    /* In one pass: removing them one by one would move the later ones each time. */
    if (unreferenced > 0)
        idvec_remove_if(&core->memories, free_unreferenced, NULL);
}

void core_mark_committed(struct core *core, const struct layout *layout, uint64_t store)
{
    size_t at = 0;

    for (size_t i = 0; i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory == LAYOUT_NO_MEMORY)
            continue;
        struct core_memory *held = idvec_find_near(&core->memories, allocation->memory, &at);
        held->committed = store;
    }
}
