/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the bytes of core_encode without writing them. Walks only pools and stores: the texts of
 * layouts and of all other objects are counted when they are added and removed.
 */
#include "core/core_fields.h"
#include "core/core_internal.h"

#include <string.h>

#define COUNT_BYTES       4u  /* before every list and text */
#define ALLOCATION_BYTES  53u /* without its texts */
#define ENTRY_BYTES       32u /* without its key and value */
#define LAYOUT_BYTES      24u
#define TIMES_BYTES       34u
#define PAST_BYTES        5u
#define PROCESS_BYTES     16u
#define REGION_TEXT_BYTES (2u * COUNT_BYTES)

static uint64_t count_field(const struct core_field *field)
{
    switch (field->kind) {
    case CORE_FIELD_U64:
        return sizeof(uint64_t);
    case CORE_FIELD_U32:
        return sizeof(uint32_t);
    case CORE_FIELD_TEXT:
        return COUNT_BYTES;
    case CORE_FIELD_RAW:
        return field->size;
    default:
        return 1;
    }
}

/* Without the bytes of its texts. */
static uint64_t count_fields(const struct core_field *fields)
{
    uint64_t bytes = 0;

    for (const struct core_field *field = fields; field->kind != CORE_FIELD_END; field++)
        bytes += count_field(field);
    return bytes;
}

uint64_t core_count_texts(const struct core_field *fields, const void *object)
{
    uint64_t bytes = 0;

    for (const struct core_field *field = fields; field->kind != CORE_FIELD_END; field++)
        if (field->kind == CORE_FIELD_TEXT)
            bytes += strlen((const char *)object + field->at);
    return bytes;
}

static uint64_t count_layout(const struct layout *layout)
{
    if (!layout)
        return 1;
    return 1 + LAYOUT_BYTES + ALLOCATION_BYTES * layout_count_allocations(layout) +
           layout_text_bytes(layout) + ENTRY_BYTES * layout_count_entries(layout) +
           layout_entry_bytes(layout) + TIMES_BYTES * layout_count_times(layout);
}

/* Returns the bytes of an empty store. */
static uint64_t count_empty_store(void)
{
    return sizeof(uint64_t) + count_fields(core_store_fields) + 2 +
           count_fields(core_commit_fields) + 2 * COUNT_BYTES + 1 + count_fields(core_use_fields) +
           1 + CORE_TIER_COUNT + count_fields(core_places_fields);
}

/* Returns the bytes of this store beyond those. */
static uint64_t count_store(const struct core_store *store, uint64_t drain_bytes)
{
    uint64_t bytes = (store->contents ? sizeof store->contents_id : 0) +
                     core_count_texts(core_store_fields, store) +
                     core_count_texts(core_commit_fields, store) + count_layout(store->fixed) +
                     count_layout(store->working) + PROCESS_BYTES * store->writer_count +
                     PAST_BYTES * store->history.count + (store->drain.is_on ? drain_bytes : 0);

    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        if (store->places.spares[tier])
            bytes += sizeof(uint64_t) * layout_count_allocations(store->places.spares[tier]);
    return bytes;
}

static uint64_t count_stores(const struct idvec *stores)
{
    uint64_t drain_bytes = count_fields(core_drain_fields);
    uint64_t bytes = COUNT_BYTES + count_empty_store() * stores->count;

    for (size_t i = 0; i < stores->count; i++)
        bytes += count_store(stores->items[i], drain_bytes);
    return bytes;
}

/* Returns the bytes of `count` objects with their ids and the count itself. */
static uint64_t count_many(const struct core_field *fields, size_t count)
{
    return COUNT_BYTES + (sizeof(uint64_t) + count_fields(fields)) * count;
}

uint64_t core_count_encoded(const struct core *core)
{
    uint64_t bytes = CORE_STATE_MAGIC_BYTES + sizeof(uint32_t) + count_fields(core_options_fields) +
                     count_fields(core_head_fields) + core_count_texts(core_head_fields, core);

    bytes += count_many(core_pool_fields, core->pools.items.count);
    for (size_t i = 0; i < core->pools.items.count; i++)
        bytes += core_count_texts(core_pool_fields, core->pools.items.items[i]);
    bytes += count_stores(&core->stores);
    bytes += COUNT_BYTES + sizeof(uint64_t) * core->suspect;
    bytes += count_many(core_session_fields, core->sessions.count);
    bytes += count_many(core_file_fields, core->files.count);
    bytes += count_many(core_region_fields, core->regions.items.count) +
             REGION_TEXT_BYTES * core->regions.items.count +
             core->shares[CORE_BOUND_REGION_BYTES].taken;
    bytes += count_many(core_waiter_fields, core->waiters.count) +
             count_fields(core_queued_fields) * core->waiters.count;
    bytes += count_many(core_ticket_fields, core->tickets.count);
    bytes += sizeof(uint64_t) * (1 + core->stores.count); /* numbers of contents */
    bytes += core->comm_bytes + core->event_text_bytes;
    bytes += count_fields(core_event_fields) * (core->next_event - core_first_event(core));
    return bytes + 1; /* end mark of the times */
}
