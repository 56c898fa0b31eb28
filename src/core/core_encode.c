/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state as bytes: magic and version, then little-endian integers of fixed width, and the length
 * before every text. The same state always gives the same bytes. What follows from the rest is not
 * written: counts, indexes, shares, locks' sessions, the encoding and hash of what is committed,
 * and who sleeps in a lock, which each record finds anew. Nor are effects that were not taken yet.
 */
#include "core/core_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096u

struct output {
    uint8_t *bytes;
    size_t used, room;
    bool failed;
};

static bool make_room(struct output *output, size_t more)
{
    size_t room = output->room ? output->room : FIRST_ROOM;
    uint8_t *bytes;

    if (output->failed)
        return false;
    if (more <= output->room - output->used)
        return true;
    while (room - output->used < more)
        room *= 2;
    bytes = realloc(output->bytes, room);
    if (!bytes) {
        output->failed = true;
        return false;
    }
    output->bytes = bytes;
    output->room = room;
    return true;
}

static void put_raw(struct output *output, const void *bytes, size_t size)
{
    if (size == 0 || !make_room(output, size))
        return;
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

/* Of all that has a length, each bound is far below 4 GiB. */
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

/* The oldest first, wherever that stands in the ring. */
static void put_history(struct output *output, const struct core_history *history)
{
    put_u32(output, (uint32_t)history->count);
    for (size_t i = 0; i < history->count; i++) {
        put_u8(output, (uint8_t)core_history_get(history, i)->type);
        put_u32(output, core_history_get(history, i)->allocations);
    }
}

static void put_drainer(struct output *output, const struct core_drainer *drainer)
{
    put_raw(output, drainer->token, sizeof drainer->token);
    put_process(output, drainer->process);
    put_u32(output, drainer->uid);
}

static void put_drain(struct output *output, const struct core_drain *drain)
{
    put_u8(output, drain->is_on);
    if (!drain->is_on)
        return;
    put_u64(output, drain->id);
    put_u64(output, drain->since_ms);
    put_u64(output, drain->deadline_ms);
    put_drainer(output, &drain->by);
}

/* The spares are the committed layout but for their memories. */
static void put_places(struct output *output, const struct core_places *places)
{
    put_u8(output, (uint8_t)places->place);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++) {
        const struct layout *spare = places->spares[tier];

        put_u8(output, spare != NULL);
        for (size_t i = 0; spare && i < layout_count_allocations(spare); i++)
            put_u64(output, layout_at_rank(spare, i)->memory);
    }
    put_u64(output, places->move.id);
    put_u8(output, (uint8_t)places->move.to);
    put_u8(output, places->move.spare);
    put_u64(output, places->move.since_ms);
    put_u64(output, places->move.evictor);
    put_u64(output, places->moves);
    put_u64(output, places->moved_ms);
    put_u64(output, places->promote_ms);
    put_u64(output, places->promoted_ms);
    put_u64(output, places->version);
}

static void put_store(struct output *output, const struct core_store *store)
{
    put_u64(output, store->id);
    put_raw(output, store->uuid, sizeof store->uuid);
    put_text(output, store->name);
    put_u32(output, store->uid);
    put_u32(output, store->gid);
    put_u32(output, store->mode);
    put_u64(output, store->created_ms);
    put_u64(output, store->changed_ms);
    put_u64(output, store->generation);
    put_u64(output, store->version);
    put_layout(output, store->fixed);
    put_u8(output, store->lock.sealed);
    put_layout(output, store->working);
    put_raw(output, store->group, sizeof store->group);
    put_text(output, store->last_error);
    put_u64(output, store->grants_rw);
    put_u64(output, store->grants_ro);
    put_u64(output, store->commits);
    put_u64(output, store->aborts);
    put_u64(output, store->exports);
    put_u8(output, store->unseen_writer);
    put_u32(output, (uint32_t)store->writer_count);
    for (size_t i = 0; i < store->writer_count; i++)
        put_process(output, store->writers[i]);
    put_history(output, &store->history);
    put_drain(output, &store->drain);
    put_u64(output, store->use.pool);
    put_u8(output, store->use.pinned);
    put_u64(output, store->use.last_used_ms);
    put_places(output, &store->places);
}

/* What is used of it follows from the stores. */
static void put_pool(struct output *output, const struct core_pool *pool)
{
    put_u64(output, pool->id);
    put_text(output, pool->name);
    put_u8(output, (uint8_t)pool->class);
    put_u32(output, pool->sm_percent);
    put_u64(output, pool->evictions);
    put_u64(output, pool->min_bytes);
    put_u64(output, pool->max_bytes);
    put_u64(output, pool->slots);
}

static void put_session(struct output *output, const struct core_session *session)
{
    put_u64(output, session->id);
    put_u64(output, session->store);
    put_u8(output, (uint8_t)session->mode);
    put_u8(output, session->exclusive);
    put_u8(output, session->implicit);
    put_u8(output, session->touched);
    put_u8(output, session->owned);
    put_u8(output, session->ending);
    put_u8(output, session->holds);
    put_u8(output, session->any);
    put_u64(output, session->opener);
    put_raw(output, session->token, sizeof session->token);
    put_process(output, session->owner);
    put_u32(output, session->uid);
    put_text(output, session->comm);
    put_u64(output, session->since_ms);
    put_u64(output, session->reserved_bytes);
    put_u64(output, session->due_bytes);
    put_u64(output, session->making_bytes);
    put_u64(output, session->drawn_bytes);
}

static void put_file(struct output *output, const struct core_file *file)
{
    put_u64(output, file->id);
    put_u8(output, (uint8_t)file->kind);
    put_u64(output, file->store);
    put_u64(output, file->serial);
    put_u64(output, file->session);
    put_u32(output, file->flags);
    put_u32(output, file->uid);
    put_process(output, file->opener);
    put_u64(output, file->gathered_bytes);
    put_u8(output, file->holds);
}

/* How many hold it follows from the files. */
static void put_region(struct output *output, const struct region *region)
{
    put_u64(output, region->id);
    put_bytes(output, region->name, region->name_bytes);
    put_bytes(output, region->key, region->key_bytes);
    put_u32(output, region->uid);
    put_u8(output, (uint8_t)region->kind);
    put_u64(output, region->offset);
    put_u64(output, region->byte_size);
    put_u64(output, (uint64_t)region->device_id);
    put_raw(output, region->raw_handle, sizeof region->raw_handle);
    put_u64(output, region->memory);
    put_u8(output, region->writable);
    put_u64(output, region->store);
    put_u64(output, region->serial);
    put_u64(output, region->file);
    put_u64(output, region->registered_ms);
    put_u8(output, region->draining);
}

static void put_waiter(struct output *output, const struct core_waiter *waiter,
                       const struct lock_waiter *queued)
{
    put_u64(output, waiter->id);
    put_u64(output, waiter->store);
    put_u64(output, waiter->file);
    put_u8(output, (uint8_t)waiter->kind);
    put_u64(output, waiter->serial);
    put_u32(output, waiter->flags);
    put_u8(output, (uint8_t)waiter->wish);
    put_process(output, waiter->owner);
    put_u32(output, waiter->uid);
    put_text(output, waiter->comm);
    put_raw(output, waiter->token, sizeof waiter->token);
    put_u64(output, waiter->since_wall_ms);
    put_u64(output, waiter->reserve_bytes);
    put_u64(output, queued->since_ms);
    put_u64(output, queued->hold_since_ms);
    put_u64(output, queued->deadline_ms);
    put_u64(output, queued->kept_until_ms); /* 0: it is not away */
}

/* Those of one store stand in its lock in the same order. */
static void put_waiters(struct output *output, const struct core *core)
{
    size_t next[CORE_MAX_STORES] = {0};

    put_u32(output, (uint32_t)core->waiters.count);
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_store(core, waiter->store);
        size_t at = core_find_index(&core->stores, waiter->store);

        assert(store->lock.waiters[next[at]].id == waiter->id);
        put_waiter(output, waiter, &store->lock.waiters[next[at]++]);
    }
}

static void put_ticket(struct output *output, const struct core_ticket *ticket)
{
    put_u64(output, ticket->id);
    put_raw(output, ticket->secret, sizeof ticket->secret);
    put_u64(output, ticket->session);
    put_u32(output, ticket->uid);
    put_u32(output, ticket->holder);
    put_u64(output, ticket->first);
    put_u64(output, ticket->count);
    put_u64(output, ticket->serial);
    put_u64(output, ticket->region);
    put_u8(output, ticket->writable);
    put_u64(output, ticket->expires_ms);
}

/* Memories are known from the layouts, but for what the device's health says of them. */
static void put_suspects(struct output *output, const struct core *core)
{
    put_u32(output, (uint32_t)core->suspect);
    for (size_t i = 0; i < core->memories.count; i++) {
        const struct core_memory *memory = core->memories.items[i];

        if (memory->suspect != 0)
            put_u64(output, memory->id);
    }
}

static void put_event(struct output *output, const struct core_event *event)
{
    put_u64(output, event->at);
    put_u8(output, (uint8_t)event->type);
    put_u64(output, event->wall_ms);
    put_text(output, event->store);
    put_u64(output, event->session);
    put_u64(output, event->waiter);
    put_process(output, event->process);
    put_u32(output, event->uid);
    put_text(output, event->comm);
    put_u64(output, event->allocations);
    put_u64(output, event->bytes);
    put_u64(output, event->generation);
    put_process(output, event->by);
    put_u32(output, event->by_uid);
    put_text(output, event->bound);
    put_u8(output, event->is_share);
    put_text(output, event->pool);
    put_text(output, event->for_store);
    put_u32(output, event->resolved_by);
    put_u64(output, event->deadline_ms);
    put_u32(output, event->tier);
    put_u32(output, event->error);
    put_u64(output, event->took_ms);
    put_text(output, event->region);
    put_u64(output, event->resumes);
}

/* All that are remembered: which those are follows from the counter. */
static void put_events(struct output *output, const struct core *core)
{
    for (uint64_t seq = core_first_event(core); seq < core->next_event; seq++)
        put_event(output, core_find_event(core, seq));
}

static void put_head(struct output *output, const struct core *core)
{
    put_raw(output, CORE_STATE_MAGIC, CORE_STATE_MAGIC_BYTES);
    put_u32(output, CORE_STATE_VERSION);
    put_u64(output, core->options.patience_ms);
    put_u64(output, core->options.granularity_bytes);
    put_u64(output, core->options.limits.files);
    put_u64(output, core->options.limits.tickets);
    put_u64(output, core->options.limits.gathered_bytes);
    put_u64(output, core->options.limits.sessions);
    put_u64(output, core->options.limits.waiters);
    put_u64(output, core->options.limits.events);
    put_u64(output, core->options.limits.regions);
    put_u64(output, core->options.limits.region_bytes);
    put_u32(output, core->options.admin_uid);
    put_u64(output, core->next_id);
    put_u64(output, core->next_session);
    put_u64(output, core->next_waiter);
    put_u64(output, core->next_ticket);
    put_u64(output, core->next_event);
    put_u64(output, core->event_bytes);
    put_u8(output, core->draining);
    put_drainer(output, &core->drainer);
    put_u8(output, core->lost);
    put_u64(output, core->resumes);
    put_u8(output, core->is_resuming);
    put_text(output, core->health_reason);
    put_u8(output, core->fence.is_up);
    put_text(output, core->fence.names[0]);
    put_text(output, core->fence.names[1]);
    put_raw(output, core->fence.token, sizeof core->fence.token);
    put_u32(output, core->fence.resolved_by);
    put_u64(output, core->pools.next_id);
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

/* Those of a layout's allocations by slot, then that of their directory. */
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

/* Few have any. */
static void put_times(struct output *output, const struct core *core)
{
    for (size_t i = 0; i < core->stores.count; i++) {
        put_layout_times(output, core->stores.items[i], false);
        put_layout_times(output, core->stores.items[i], true);
    }
    put_u8(output, false);
}

#define PUT_ALL(output, vec, put)                    \
    do {                                             \
        put_u32((output), (uint32_t)(vec)->count);   \
        for (size_t i_ = 0; i_ < (vec)->count; i_++) \
            put((output), (vec)->items[i_]);         \
    } while (0)

int core_encode(const struct core *core, uint8_t **bytes, size_t *size)
{
    struct output output = {0};

    put_head(&output, core);
    PUT_ALL(&output, &core->pools.items, put_pool);
    PUT_ALL(&output, &core->stores, put_store);
    put_suspects(&output, core);
    PUT_ALL(&output, &core->sessions, put_session);
    PUT_ALL(&output, &core->files, put_file);
    PUT_ALL(&output, &core->regions.items, put_region);
    put_waiters(&output, core);
    PUT_ALL(&output, &core->tickets, put_ticket);
    put_events(&output, core);
    put_times(&output, core);
    if (output.failed) {
        free(output.bytes);
        return -ENOMEM;
    }
    *bytes = output.bytes;
    *size = output.used;
    return 0;
}
