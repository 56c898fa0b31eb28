/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes stores: their layouts, the results of their commits, and their memory. */
#include "core/core_input.h"

#include "base/array.h"
#include "meta/pieces.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* ---- stores --------------------------------------------------------------------------------- */

#define ALLOCATION_BYTES (5 * 8 + 1 + 4 + 4 + 4u) /* least bytes of one */
#define ENTRY_BYTES      (3 * 8 + 4 + 4u)

static void read_allocation(struct input *input, struct layout *layout)
{
    struct layout_restored from = {.serial = input_u64(input)};
    int error;

    from.slot = input_u64(input);
    from.memory = input_u64(input);
    from.size_bytes = input_u64(input);
    from.aligned_bytes = input_u64(input);
    from.spool = input_bool(input);
    from.name = input_bytes(input, 255, &from.name_bytes);
    from.tag = input_bytes(input, LAYOUT_MAX_TAG_BYTES, &from.tag_bytes);
    from.wire_id = input_bytes(input, LAYOUT_MAX_WIRE_ID_BYTES, &from.wire_id_bytes);
    if (input->error < 0)
        return;
    error = layout_restore_allocation(layout, &from);
    if (error == -EINVAL)
        input_refuse(input, "allocation %" PRIu64 " is invalid in this layout", from.serial);
    input_fail(input, error);
}

static void read_entry(struct input *input, struct layout_put *put)
{
    put->serial = input_u64(input);
    put->slot = input_u64(input);
    put->offset = input_u64(input);
    put->key = input_bytes(input, UINT16_MAX, &put->key_bytes);
    put->value = input_bytes(input, LAYOUT_MAX_VALUE_BYTES, &put->value_bytes);
}

static void read_entries(struct input *input, struct layout *layout)
{
    size_t count = input_count(input, LAYOUT_MAX_ENTRIES, ENTRY_BYTES), culprit;
    struct layout_put *puts = count ? calloc(count, sizeof *puts) : NULL;
    int error;

    if (!puts) {
        input_fail(input, count ? -ENOMEM : 0);
        return;
    }
    for (size_t i = 0; i < count && input->error == 0; i++)
        read_entry(input, &puts[i]);
    if (input->error == 0) {
        error = layout_restore_entries(layout, puts, count, &culprit);
        if (error == -EINVAL)
            input_refuse(input, "metadata entry %zu of %zu is invalid in this layout", culprit,
                         count);
        input_fail(input, error);
    }
    free(puts);
}

static struct layout *read_layout(struct input *input)
{
    struct layout *layout = NULL;
    uint64_t next_slot, changes;
    int error;

    if (!input_bool(input))
        return NULL;
    next_slot = input_u64(input);
    changes = input_u64(input);
    if (input->error < 0)
        return NULL;
    error = layout_restore(next_slot, changes, &layout);
    if (error == -EINVAL)
        input_refuse(input, "%" PRIu64 " slots are too many", next_slot);
    input_fail(input, error);
    size_t count = input_count(input, LAYOUT_MAX_ALLOCATIONS, ALLOCATION_BYTES);
    for (size_t i = 0; i < count && input->error == 0; i++)
        read_allocation(input, layout);
    if (input->error == 0)
        read_entries(input, layout);
    return layout;
}

static void read_immutable(struct input *input, struct layout *fixed)
{
    if (input->version < CORE_STATE_IMMUTABLE || !input_bool(input))
        return;
    if (fixed)
        layout_set_immutable(fixed);
    else
        input_refuse(input, "it is immutable without a layout");
}

/* Sets the members that a commit derives from the layout. */
static void derive_committed(struct input *input, struct core_store *store, bool sealed)
{
    if (sealed && !store->fixed)
        input_refuse(input, "it is sealed without a layout");
    else if (sealed && layout_is_immutable(store->fixed))
        input_refuse(input, "it is immutable and only sealed");
    lock_set_committed(&store->lock, store->fixed != NULL && !sealed);
    lock_set_sealed(&store->lock, sealed);
    if (!store->fixed || input->error != 0)
        return;
    store->pieces_bytes = pieces_text_bytes(store->fixed);
    input_fail(input,
               core_encode_layout(store->fixed, &store->encoding, store->hash, &store->made));
}

/* core_check checks their order. */
static void read_writers(struct input *input, struct core_store *store)
{
    store->writer_count = input_count(input, CORE_MAX_WRITERS, 16);
    store->writers = calloc(store->writer_count + 1, sizeof *store->writers);
    if (!store->writers) {
        store->writer_count = 0;
        input_fail(input, -ENOMEM);
    }
    for (size_t i = 0; i < store->writer_count; i++)
        store->writers[i] = input_process(input);
    core_note_writers(input->core, store);
}

static void read_history(struct input *input, struct core_history *history)
{
    size_t count = input_count(input, CORE_HISTORY_EVENTS, 5);

    for (size_t i = 0; i < count; i++) {
        struct core_past past = {
            .type = (enum core_event_type)input_choice(input, 0, CORE_EVENT_TYPE_COUNT - 1)};

        past.allocations = input_u32(input);
        core_history_add(history, past);
    }
}

static void read_drain(struct input *input, struct core_drain *drain)
{
    drain->is_on = input_bool(input);
    if (!drain->is_on)
        return;
    input_fields(input, core_drain_fields, drain);
}

static void read_use(struct input *input, struct core_store *store)
{
    uint64_t pool;

    input_fields(input, core_use_fields, &store->use);
    pool = store->use.pool;
    store->use.pool = 0; /* core_enter_pool() sets it */
    if (!core_pool(input->core, pool))
        input_refuse(input, "its pool %" PRIu64 " does not exist", pool);
    if (input->error == 0)
        core_enter_pool(input->core, store, pool);
}

void input_use(struct input *input, struct core_store *store, uint64_t bytes)
{
    const struct core_pool *pool = core_find_pool(input->core, store);

    if (bytes > UINT64_MAX - pool->used_bytes)
        input_refuse(input, "the use of its pool overflows");
    else
        core_use_more(input->core, store, bytes);
}

static struct layout *read_spare(struct input *input, const struct core_store *store)
{
    size_t count = store->fixed ? layout_count_allocations(store->fixed) : 0;
    struct layout *spare = NULL;
    uint64_t *memories;

    if (!input_bool(input) || input->error < 0)
        return NULL;
    if (count == 0 || count > input_left(input) / sizeof *memories) {
        input_refuse(input, "it has a spare without allocations");
        return NULL;
    }
    memories = calloc(count, sizeof *memories);
    for (size_t i = 0; memories && i < count; i++) {
        memories[i] = input_u64(input);
        if (memories[i] == LAYOUT_NO_MEMORY)
            input_refuse(input, "it has a spare without memory");
    }
    if (memories && input->error == 0)
        spare = core_make_copy(store->fixed, memories);
    if (input->error == 0 && !spare)
        input_fail(input, -ENOMEM);
    free(memories);
    return spare;
}

static void read_coming(struct input *input, const struct core_store *store)
{
    const struct core_pool *pool = core_find_pool(input->core, store);

    if (core_get_coming(store) > UINT64_MAX - pool->coming_bytes)
        input_refuse(input, "the promotions of its pool overflow");
    else
        core_count_coming(input->core, store, 1);
}

static void read_places(struct input *input, struct core_store *store)
{
    struct core_places *places = &store->places;
    enum core_place place =
        (enum core_place)input_choice(input, CORE_PLACE_DEVICE, CORE_PLACE_NONE);

    if (place != CORE_PLACE_DEVICE && !store->lock.committed)
        input_refuse(input, "it is in another tier without a committed layout");
    else if (input->error == 0)
        core_set_place(input->core, store, place);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT && input->error == 0; tier++)
        places->spares[tier] = read_spare(input, store);
    input_fields(input, core_places_fields, places);
    if (places->moves == 0 && places->moved_ms != 0)
        input_refuse(input, "it never moved and has a time of its last move");
    if (!store->fixed && places->move.id != 0)
        input_refuse(input, "it moves without a committed layout");
    if (input->error == 0)
        read_coming(input, store);
}

void input_store(struct input *input)
{
    struct core *core = input->core;
    uint64_t id = input_id(input, "store");
    struct core_store *store = input_new_item(input, sizeof *store);

    if (!store)
        return;
    store->id = id;
    lock_init(&store->lock, core->options.patience_ms);
    share_init(&store->sessions, core->options.limits.sessions);
    share_init(&store->waiters, core->options.limits.waiters);
    input_fail(input, core_index_reserve(core));
    if (!input_keep(input, &core->stores, store, core->next_id))
        return;
    input_fields(input, core_store_fields, store);
    core_enter_name(core, store);
    store->fixed = read_layout(input);
    bool sealed = input_bool(input);
    read_immutable(input, store->fixed);
    store->working = read_layout(input);
    input_fields(input, core_commit_fields, store);
    read_writers(input, store);
    read_history(input, &store->history);
    read_drain(input, &store->drain);
    lock_set_closed(&store->lock, store->drain.is_on, 0);
    read_use(input, store);
    derive_committed(input, store, sealed);
    read_places(input, store);
}

/* ---- times ---------------------------------------------------------------------------------- */

static bool is_behind(const struct core_times_of *of, const struct core_times_of *before)
{
    if (of->store != before->store)
        return of->store > before->store;
    if (of->working != before->working)
        return of->working;
    return of->slot > before->slot;
}

/* Also sets the times of the spares, which equal the committed layout's. */
static int set_times(const struct core_store *store, const struct core_times_of *of,
                     const struct layout_times *times)
{
    struct layout *layout = of->working ? store->working : store->fixed;
    int error = layout ? layout_set_times(layout, of->slot, times) : -ENOENT;

    for (unsigned tier = 0; !of->working && tier < CORE_TIER_COUNT && error == 0; tier++)
        if (store->places.spares[tier])
            error = layout_set_times(store->places.spares[tier], of->slot, times);
    return error;
}

void input_times(struct input *input)
{
    struct core_times_of before = {0};

    input->part = "its times";
    input->which = 0;
    while (input->error == 0 && input_bool(input)) {
        struct core_times_of of = {.store = input_u64(input)};
        const struct core_store *store = core_store(input->core, of.store);
        struct layout_times times;

        of.working = input_bool(input);
        of.slot = input_u64(input);
        times.access_ns = (int64_t)input_u64(input);
        times.change_ns = (int64_t)input_u64(input);
        if (input->error < 0)
            return;
        if (!store || !is_behind(&of, &before) || !layout_has_times(&times) ||
            set_times(store, &of, &times) < 0)
            input_refuse(input, "their store or slot does not exist, or they are not sorted");
        before = of;
    }
}

/* ---- contents ------------------------------------------------------------------------------- */

void input_contents(struct input *input)
{
    struct core *core = input->core;

    if (!core || input->version < CORE_STATE_CONTENTS)
        return;
    input->part = "its contents";
    input->which = 0;
    core->next_contents = input_u64(input);
    if (core->next_contents == 0 || core->next_contents > CORE_MAX_CONTENTS)
        input_refuse(input, "%" PRIu64 " is no number of contents", core->next_contents);
    for (size_t i = 0; i < core->stores.count && input->error == 0; i++) {
        struct core_store *store = core->stores.items[i];

        store->contents = input_u64(input);
        if (store->contents != 0) {
            const uint8_t *id = input_raw(input, sizeof store->contents_id);

            if (id)
                memcpy(store->contents_id, id, sizeof store->contents_id);
        }
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static void derive_memories(struct input *input, const struct core_memory_use *uses, size_t count)
{
    struct core_memory *memory = NULL;

    for (size_t i = 0; i < count && input->error == 0; i++) {
        if (!memory || memory->id != uses[i].memory) {
            memory = input_new_item(input, sizeof *memory);
            if (!memory)
                return;
            memory->id = uses[i].memory;
            memory->aligned_bytes = uses[i].allocation->aligned_bytes;
            memory->store = uses[i].store;
            memory->committed = uses[i].committed ? uses[i].store : 0;
            memory->tier = uses[i].tier;
            if (!input_keep(input, &input->core->memories, memory, UINT64_MAX))
                return;
            if (memory->tier == CORE_PLACE_DEVICE)
                input_use(input, core_store(input->core, memory->store), memory->aligned_bytes);
        }
        memory->refs++; /* core_check checks the number */
    }
}

/* Counts one suspect memory for its store. */
static void read_suspect(struct input *input, const struct core_memory_use *uses, size_t count,
                         uint64_t before)
{
    uint64_t id = input_id(input, "suspect memory");
    struct core_memory *memory = core_memory(input->core, id);
    struct core_store *store;
    size_t at = 0;

    if (!memory || id <= before)
        input_refuse(input, "its number is out of order");
    if (input->error < 0)
        return;
    ARRAY_SEARCH(at, count, uses[at].memory < id);
    store = core_store(input->core, uses[at].store);
    memory->suspect = store->id;
    store->suspect++;
    input->core->suspect++;
}

void input_memories(struct input *input)
{
    struct core_memory_use *uses;
    size_t count, suspects;
    uint64_t before = 0;

    if (input->error == 0)
        input_fail(input, core_collect_uses(input->core, &uses, &count));
    if (input->error < 0)
        return;
    input->part = "its memory";
    derive_memories(input, uses, count);
    suspects = input_count(input, SIZE_MAX, 8);
    for (size_t i = 0; i < suspects && input->error == 0; i++) {
        read_suspect(input, uses, count, before);
        before = input->which;
    }
    free(uses);
}
