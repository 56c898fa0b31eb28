/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state as bytes: magic and version, then little-endian integers of fixed width, and the length
 * before every text. The same state always gives the same bytes. Derived members are not written:
 * counts, indexes, shares, locks' sessions, the encoding and hash of a committed layout, and sleep
 * in a lock, which each record derives again. Nor are effects that are still in the queue.
 */
#include "core/core_fields.h"
#include "core/core_internal.h"

#include "base/array.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct output {
    uint8_t *bytes;
    size_t used, room;
    bool failed;
};

static void put_raw(struct output *output, const void *bytes, size_t size)
{
    if (size == 0 || output->failed)
        return;
    if (ARRAY_RESERVE(output->bytes, output->room, output->used + size) < 0) {
        output->failed = true;
        return;
    }
    memcpy(output->bytes + output->used, bytes, size);
    output->used += size;
}

static void put_u8(struct output *output, uint8_t number)
{
    put_raw(output, &number, sizeof number);
}

static void put_u32(struct output *output, uint32_t number)
{
    uint32_t little = htole32(number);

    put_raw(output, &little, sizeof little);
}

static void put_u64(struct output *output, uint64_t number)
{
    uint64_t little = htole64(number);

    put_raw(output, &little, sizeof little);
}

/* Every bound of a length is far below 4 GiB. */
static void put_bytes(struct output *output, const void *bytes, size_t size)
{
    put_u32(output, (uint32_t)size);
    put_raw(output, bytes, size);
}

static void put_text(struct output *output, const char *text)
{
    put_bytes(output, text, strlen(text));
}

static void put_process(struct output *output, struct core_process process)
{
    put_u64(output, process.pid);
    put_u64(output, process.start);
}

static void put_field(struct output *output, const struct core_field *field, const uint8_t *at)
{
    switch (field->kind) {
    case CORE_FIELD_U64:
        put_u64(output, *(const uint64_t *)at);
        break;
    case CORE_FIELD_U32:
        put_u32(output, *(const uint32_t *)at);
        break;
    case CORE_FIELD_BOOL:
        put_u8(output, *(const bool *)at);
        break;
    case CORE_FIELD_CHOICE:
        put_u8(output, (uint8_t) * (const uint32_t *)at);
        break;
    case CORE_FIELD_TEXT:
        put_text(output, (const char *)at);
        break;
    default:
        put_raw(output, at, field->size);
        break;
    }
}

static void put_fields(struct output *output, const struct core_field *fields, const void *object)
{
    for (const struct core_field *field = fields; field->kind != CORE_FIELD_END; field++)
        put_field(output, field, (const uint8_t *)object + field->at);
}

static void put_allocation(struct output *output, const struct layout_allocation *allocation)
{
    put_u64(output, allocation->serial);
    put_u64(output, allocation->slot);
    put_u64(output, allocation->memory);
    put_u64(output, allocation->size_bytes);
    put_u64(output, allocation->aligned_bytes);
    put_u8(output, allocation->spool);
    put_text(output, allocation->name);
    put_text(output, allocation->tag);
    put_text(output, allocation->wire_id ? allocation->wire_id : "");
}

static void put_entry(struct output *output, const struct layout_entry *entry)
{
    put_u64(output, entry->serial);
    put_u64(output, entry->slot);
    put_u64(output, entry->offset);
    put_bytes(output, entry->key, entry->key_bytes);
    put_bytes(output, entry->value, entry->value_bytes);
}

static void put_layout(struct output *output, const struct layout *layout)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    put_u8(output, layout != NULL);
    if (!layout)
        return;
    put_u64(output, layout_next_slot(layout));
    put_u64(output, layout_count_changes(layout));
    put_u32(output, (uint32_t)layout_count_allocations(layout));
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        put_allocation(output, layout_at_rank(layout, i));
    put_u32(output, (uint32_t)layout_count_entries(layout));
    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor)))
        put_entry(output, entry);
}

/* The oldest first, at any position in the ring. */
static void put_history(struct output *output, const struct core_history *history)
{
    put_u32(output, (uint32_t)history->count);
    for (size_t i = 0; i < history->count; i++) {
        put_u8(output, (uint8_t)core_history_get(history, i)->type);
        put_u32(output, core_history_get(history, i)->allocations);
    }
}

static void put_drain(struct output *output, const struct core_drain *drain)
{
    put_u8(output, drain->is_on);
    if (!drain->is_on)
        return;
    put_fields(output, core_drain_fields, drain);
}

/* Spares differ from the committed layout only in their memories. */
static void put_places(struct output *output, const struct core_places *places)
{
    put_u8(output, (uint8_t)places->place);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++) {
        const struct layout *spare = places->spares[tier];

        put_u8(output, spare != NULL);
        for (size_t i = 0; spare && i < layout_count_allocations(spare); i++)
            put_u64(output, layout_at_rank(spare, i)->memory);
    }
    put_fields(output, core_places_fields, places);
}

static void put_store(struct output *output, const struct core_store *store)
{
    put_u64(output, store->id);
    put_fields(output, core_store_fields, store);
    put_layout(output, store->fixed);
    put_u8(output, store->lock.sealed);
    put_u8(output, store->fixed && layout_is_immutable(store->fixed));
    put_layout(output, store->working);
    put_fields(output, core_commit_fields, store);
    put_u32(output, (uint32_t)store->writer_count);
    for (size_t i = 0; i < store->writer_count; i++)
        put_process(output, store->writers[i]);
    put_history(output, &store->history);
    put_drain(output, &store->drain);
    put_fields(output, core_use_fields, &store->use);
    put_places(output, &store->places);
}

/* Their number, then each: its id and its members in `fields`. */
static void put_items(struct output *output, const struct idvec *items,
                      const struct core_field *fields)
{
    put_u32(output, (uint32_t)items->count);
    for (size_t i = 0; i < items->count; i++) {
        put_u64(output, *(const uint64_t *)items->items[i]);
        put_fields(output, fields, items->items[i]);
    }
}

/* Their references are derived from the files. */
static void put_regions(struct output *output, const struct idvec *regions)
{
    put_u32(output, (uint32_t)regions->count);
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *region = regions->items[i];

        put_u64(output, region->id);
        put_bytes(output, region->name, region->name_bytes);
        put_bytes(output, region->key, region->key_bytes);
        put_fields(output, core_region_fields, region);
    }
}

/* A store's lock has its waiters in the same order. */
static void put_waiters(struct output *output, const struct core *core)
{
    size_t next[CORE_MAX_STORES] = {0};

    put_u32(output, (uint32_t)core->waiters.count);
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_store(core, waiter->store);
        size_t at = core_find_index(&core->stores, waiter->store);

        assert(store->lock.waiters[next[at]].id == waiter->id);
        put_u64(output, waiter->id);
        put_fields(output, core_waiter_fields, waiter);
        put_fields(output, core_queued_fields, &store->lock.waiters[next[at]++]);
    }
}

/* Memories are derived from the layouts, except that they may be suspect. */
static void put_suspects(struct output *output, const struct core *core)
{
    put_u32(output, (uint32_t)core->suspect);
    for (size_t i = 0; i < core->memories.count; i++) {
        const struct core_memory *memory = core->memories.items[i];

        if (memory->suspect != 0)
            put_u64(output, memory->id);
    }
}

/* All events in the ring; next_event determines which those are. */
static void put_events(struct output *output, const struct core *core)
{
    for (uint64_t seq = core_first_event(core); seq < core->next_event; seq++)
        put_fields(output, core_event_fields, core_find_event(core, seq));
}

static void put_head(struct output *output, const struct core *core)
{
    put_raw(output, CORE_STATE_MAGIC, CORE_STATE_MAGIC_BYTES);
    put_u32(output, CORE_STATE_VERSION);
    put_fields(output, core_options_fields, &core->options);
    put_fields(output, core_head_fields, core);
}

static void put_times_of(struct output *output, const struct core_times_of *of,
                         struct layout_times times)
{
    if (!layout_has_times(&times))
        return;
    put_u8(output, true);
    put_u64(output, of->store);
    put_u8(output, of->working);
    put_u64(output, of->slot);
    put_u64(output, (uint64_t)times.access_ns);
    put_u64(output, (uint64_t)times.change_ns);
}

/* The times of a layout's allocations by slot, then of their directory. */
static void put_layout_times(struct output *output, const struct core_store *store, bool working)
{
    const struct layout *layout = working ? store->working : store->fixed;
    struct core_times_of of = {.store = store->id, .working = working};

    for (size_t i = 0; layout && i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);

        of.slot = allocation->slot;
        put_times_of(output, &of, allocation->times);
    }
    of.slot = LAYOUT_UNBOUND;
    if (layout)
        put_times_of(output, &of, layout_get_times(layout));
}

static void put_times(struct output *output, const struct core *core)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        put_layout_times(output, core->stores.items[i], false);
        put_layout_times(output, core->stores.items[i], true);
    }
    put_u8(output, false);
}

static void put_contents(struct output *output, const struct core *core)
{
    put_u64(output, core->next_contents);
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        put_u64(output, store->contents);
        if (store->contents != 0)
            put_raw(output, store->contents_id, sizeof store->contents_id);
    }
}

int core_encode(const struct core *core, uint8_t **bytes, size_t *size)
{
    struct output output = {0};

    put_head(&output, core);
    put_items(&output, &core->pools.items, core_pool_fields);
    put_u32(&output, (uint32_t)core->stores.count);
    for (size_t i = 0; i < core->stores.count; i++)
        put_store(&output, core->stores.items[i]);
    put_suspects(&output, core);
    put_items(&output, &core->sessions, core_session_fields);
    put_items(&output, &core->files, core_file_fields);
    put_regions(&output, &core->regions.items);
    put_waiters(&output, core);
    put_items(&output, &core->tickets, core_ticket_fields);
    put_events(&output, core);
    put_times(&output, core);
    put_contents(&output, core);
    if (output.failed) {
        free(output.bytes);
        return -ENOMEM;
    }
    *bytes = output.bytes;
    *size = output.used;
    return 0;
}
