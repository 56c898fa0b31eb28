/* SPDX-License-Identifier: Apache-2.0 */
/* Walks all layouts to make and check the table of memories, and to check ids and wire ids. */
#include "core/core_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------------------- */

static size_t count_allocations(const struct core *core)
{
    size_t count = 0;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        count += store->fixed ? layout_count_allocations(store->fixed) : 0;
        count += store->working ? layout_count_allocations(store->working) : 0;
        for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
            count += store->places.spares[tier]
                         ? layout_count_allocations(store->places.spares[tier])
                         : 0;
    }
    return count;
}

/* Adds the memories of one layout. */
static size_t note_layout(const struct core_store *store, const struct layout *layout,
                          enum core_place tier, struct core_memory_use *uses)
{
    size_t count = 0;

    for (size_t i = 0; layout && i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        if (allocation->memory != LAYOUT_NO_MEMORY)
            uses[count++] = (struct core_memory_use){.memory = allocation->memory,
                                                     .store = store->id,
                                                     .allocation = allocation,
                                                     .committed = layout == store->fixed,
                                                     .tier = tier};
    }
    return count;
}

static int compare_uses(const void *left, const void *right)
{
    const struct core_memory_use *a = left, *b = right;

    if (a->memory != b->memory)
        return a->memory < b->memory ? -1 : 1;
    return (a->committed ? 0 : 1) - (b->committed ? 0 : 1);
}

int core_collect_uses(const struct core *core, struct core_memory_use **uses, size_t *count)
{
    struct core_memory_use *made = calloc(count_allocations(core) + 1, sizeof *made);
    size_t noted = 0;

    if (!made)
        return -ENOMEM;
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        const struct core_places *places = &store->places;

        noted += note_layout(store, store->fixed, places->place, made + noted);
        noted += note_layout(store, store->working, CORE_PLACE_DEVICE, made + noted);
        for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
            noted += note_layout(store, places->spares[tier], (enum core_place)tier, made + noted);
    }
    qsort(made, noted, sizeof *made, compare_uses);
    *uses = made;
    *count = noted;
    return 0;
}

/* True if both are the same allocation: a working copy keeps committed memory unchanged, except its
 * name and tag. Spares share no memory with it. */
static bool are_one(const struct core_memory_use *a, const struct core_memory_use *b)
{
    const struct layout_allocation *left = a->allocation, *right = b->allocation;

    return a->store == b->store && a->committed && !b->committed && left->serial == right->serial &&
           left->slot == right->slot && left->size_bytes == right->size_bytes &&
           left->aligned_bytes == right->aligned_bytes && !left->spool && !right->spool &&
           b->tier == CORE_PLACE_DEVICE;
}

/* Checks `refs` uses of one memory. */
static int check_memory(struct check *check, const struct core_memory *memory,
                        const struct core_memory_use *uses, uint64_t refs)
{
    uint64_t committed = uses[0].committed ? uses[0].store : 0;

    check->id = uses[0].memory;
    if (refs > 2 || (refs == 2 && !are_one(&uses[0], &uses[1])))
        return core_wrong(check, "different allocations have it");
    if (!memory || memory->id != uses[0].memory || memory->refs != refs ||
        memory->aligned_bytes != uses[0].allocation->aligned_bytes ||
        memory->committed != committed || memory->store != uses[0].store ||
        memory->tier != uses[0].tier ||
        (memory->suspect != 0 && memory->tier != CORE_PLACE_DEVICE) ||
        (memory->suspect != 0 && memory->suspect != uses[0].store))
        return core_wrong(check, "its entry in the table of memories is wrong");
    return 0;
}

static int check_uses(struct check *check, const struct core_memory_use *uses, size_t count)
{
    const struct idvec *memories = &check->core->memories;
    size_t at = 0, known = 0;

    check->kind = "memory";
    while (at < count) {
        size_t end = at + 1;
        const struct core_memory *memory = known < memories->count ? memories->items[known] : NULL;

        while (end < count && uses[end].memory == uses[at].memory)
            end++;
        int error = check_memory(check, memory, &uses[at], end - at);
        if (error < 0)
            return error;
        known++;
        at = end;
    }
    if (known < memories->count) {
        check->id = ((const struct core_memory *)memories->items[known])->id;
        return core_wrong(check, "no layout refers to it");
    }
    check->kind = NULL;
    return 0;
}

static int check_suspect(struct check *check, const void *item)
{
    const struct core_store *store = item;

    return store->suspect == check->suspects[check->index]
               ? 0
               : core_wrong(check, "its count of suspect memories is wrong");
}

static int check_suspects(struct check *check)
{
    const struct core *core = check->core;
    uint64_t all = 0;

    for (size_t i = 0; i < core->memories.count; i++) {
        const struct core_memory *memory = core->memories.items[i];

        if (memory->suspect == 0)
            continue;
        check->suspects[core_find_index(&core->stores, memory->suspect)]++;
        all++;
    }
    if (core->suspect != all)
        return core_wrong(check, "the count of suspect memories is wrong");
    return core_check_each(check, "store", &core->stores, core->next_id, check_suspect);
}

int core_check_memories(struct check *check)
{
    struct core_memory_use *uses;
    size_t count;
    int error = core_collect_uses(check->core, &uses, &count);

    if (error < 0)
        return failure_no_memory(check->failure);
    error = check_uses(check, uses, count);
    free(uses);
    return error < 0 ? error : check_suspects(check);
}

/* ---- ids ------------------------------------------------------------------------------------ */

enum id_kind {
    ID_STORE,
    ID_FILE,
    ID_ALLOCATION,
    ID_ENTRY,
    ID_REGION,
};

struct id_use {
    uint64_t id, store;
    enum id_kind kind;
};

struct ids {
    struct id_use *uses;
    size_t count;
};

static size_t count_ids(const struct layout *layout)
{
    return layout ? layout_count_allocations(layout) + layout_count_entries(layout) : 0;
}

static void note_id(struct ids *ids, uint64_t id, uint64_t store, enum id_kind kind)
{
    ids->uses[ids->count++] = (struct id_use){.id = id, .store = store, .kind = kind};
}

static void note_layout_ids(struct ids *ids, const struct layout *layout, uint64_t store)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    if (!layout)
        return;
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        note_id(ids, layout_at_rank(layout, i)->serial, store, ID_ALLOCATION);
    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor)))
        note_id(ids, entry->serial, store, ID_ENTRY);
}

static int compare_ids(const void *left, const void *right)
{
    const struct id_use *a = left, *b = right;

    return a->id == b->id ? 0 : a->id < b->id ? -1 : 1;
}

static int collect_ids(const struct core *core, struct ids *ids)
{
    size_t most = core->stores.count + core->files.count + core->regions.items.count;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        most += count_ids(store->fixed) + count_ids(store->working);
    }
    *ids = (struct ids){.uses = calloc(most + 1, sizeof *ids->uses)};
    if (!ids->uses)
        return -ENOMEM;
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        note_id(ids, store->id, store->id, ID_STORE);
        note_layout_ids(ids, store->fixed, store->id);
        note_layout_ids(ids, store->working, store->id);
    }
    for (size_t i = 0; i < core->files.count; i++)
        note_id(ids, ((const struct core_file *)core->files.items[i])->id, 0, ID_FILE);
    for (size_t i = 0; i < core->regions.items.count; i++)
        note_id(ids, ((const struct region *)core->regions.items.items[i])->id, 0, ID_REGION);
    qsort(ids->uses, ids->count, sizeof *ids->uses, compare_ids);
    return 0;
}

/* Only the two layouts of one store may share an id; within a layout ids are unique (src/meta). */
static int check_id(const struct check *check, const struct id_use *use,
                    const struct id_use *before)
{
    if (use->id == 0 || use->id >= check->core->next_id)
        return failure_set(check->failure, -EINVAL,
                           "id %" PRIu64 " of store %" PRIu64 ": it was never given out", use->id,
                           use->store);
    if (before && before->id == use->id &&
        (before->store != use->store || before->kind != use->kind))
        return failure_set(check->failure, -EINVAL, "id %" PRIu64 ": two objects have it", use->id);
    return 0;
}

int core_check_ids(struct check *check)
{
    struct ids ids;
    int error = collect_ids(check->core, &ids);

    if (error < 0)
        return failure_no_memory(check->failure);
    for (size_t i = 0; i < ids.count && error == 0; i++)
        error = check_id(check, &ids.uses[i], i > 0 ? &ids.uses[i - 1] : NULL);
    free(ids.uses);
    return error;
}

/* ---- wire ids ------------------------------------------------------------------------------- */

static bool same_wire_id(const struct layout_allocation *a, const struct layout_allocation *b)
{
    if (!a->wire_id || !b->wire_id)
        return a->wire_id == b->wire_id;
    return strcmp(a->wire_id, b->wire_id) == 0;
}

/* True if committed allocations have the same wire ids in the working copy. */
static bool keeps_wire_ids(const struct layout *working, const struct layout *committed)
{
    for (size_t i = 0; i < layout_count_allocations(working); i++) {
        const struct layout_allocation *now = layout_at_rank(working, i);
        const struct layout_allocation *before = layout_find_serial(committed, now->serial);

        if (before && !same_wire_id(now, before))
            return false;
    }
    return true;
}

static bool is_kept(const struct layout *layout)
{
    return !layout || layout_check_wire_ids(layout) == 0;
}

static int check_wire_ids(struct check *check, const void *item)
{
    const struct core_store *store = item;
    const struct layout *committed = store->fixed, *working = store->working;

    if (!is_kept(committed) || !is_kept(working) ||
        (committed && working && !keeps_wire_ids(working, committed)))
        return core_wrong(check,
                          "the wire id of an allocation changed after the allocation was added");
    return 0;
}

int core_check_wire_ids(struct check *check)
{
    const struct core *core = check->core;

    return core_check_each(check, "store", &core->stores, core->next_id, check_wire_ids);
}
