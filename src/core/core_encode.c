/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state as bytes, in host byte order: every number as 8 bytes, every text and byte string with
 * its length first. The same state always gives the same bytes. Effects that were not taken yet are
 * not part of it.
 */
#include "core/core_internal.h"

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

static void put_number(struct output *output, uint64_t number)
{
    put_raw(output, &number, sizeof number);
}

static void put_bytes(struct output *output, const void *bytes, size_t size)
{
    put_number(output, size);
    put_raw(output, bytes, size);
}

static void put_text(struct output *output, const char *text)
{
    put_bytes(output, text, strlen(text));
}

static void put_process(struct output *output, struct core_process process)
{
    put_number(output, process.pid);
    put_number(output, process.start);
}

static void put_allocation(struct output *output, const struct layout_allocation *allocation)
{
    put_number(output, allocation->serial);
    put_number(output, allocation->slot);
    put_number(output, allocation->memory);
    put_number(output, allocation->size_bytes);
    put_number(output, allocation->aligned_bytes);
    put_number(output, allocation->bound_entries);
    put_number(output, allocation->spool);
    put_text(output, allocation->name);
    put_text(output, allocation->tag);
}

static void put_entry(struct output *output, const struct layout_entry *entry)
{
    put_number(output, entry->serial);
    put_number(output, entry->slot);
    put_number(output, entry->offset);
    put_bytes(output, entry->key, entry->key_bytes);
    put_bytes(output, entry->value, entry->value_bytes);
}

static void put_layout(struct output *output, const struct layout *layout)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    put_number(output, layout != NULL);
    if (!layout)
        return;
    put_number(output, layout_next_slot(layout));
    put_number(output, layout_count_allocations(layout));
    for (size_t i = 0; i < layout_count_allocations(layout); i++)
        put_allocation(output, layout_at_rank(layout, i));
    put_number(output, layout_count_entries(layout));
    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor)))
        put_entry(output, entry);
}

static void put_lock(struct output *output, const struct lock *lock)
{
    put_number(output, lock->committed);
    put_number(output, lock->patience_ms);
    put_number(output, lock->session_count);
    for (size_t i = 0; i < lock->session_count; i++) {
        put_number(output, lock->sessions[i].id);
        put_number(output, lock->sessions[i].mode);
    }
    put_number(output, lock->waiter_count);
    for (size_t i = 0; i < lock->waiter_count; i++) {
        const struct lock_waiter *waiter = &lock->waiters[i];

        put_number(output, waiter->id);
        put_number(output, waiter->wish);
        put_number(output, waiter->since_ms);
        put_number(output, waiter->hold_since_ms);
        put_number(output, waiter->deadline_ms);
        put_number(output, waiter->kept_until_ms);
        put_number(output, waiter->looking);
        /* `asleep` is no state: each record finds it anew from what it says is free. */
    }
}

static void put_store(struct output *output, const struct core_store *store)
{
    put_number(output, store->id);
    put_raw(output, store->uuid, sizeof store->uuid);
    put_text(output, store->name);
    put_number(output, store->uid);
    put_number(output, store->gid);
    put_number(output, store->mode);
    put_number(output, store->created_ms);
    put_number(output, store->changed_ms);
    put_number(output, store->generation);
    put_number(output, store->version);
    put_lock(output, &store->lock);
    put_layout(output, store->committed);
    put_layout(output, store->working);
    put_bytes(output, store->encoding ? store->encoding->bytes : NULL,
              store->encoding ? store->encoding->size : 0);
    put_raw(output, store->hash, sizeof store->hash);
    put_raw(output, store->group, sizeof store->group);
    put_text(output, store->last_error);
    put_number(output, store->suspect);
    put_number(output, store->grants_rw);
    put_number(output, store->grants_ro);
    put_number(output, store->commits);
    put_number(output, store->aborts);
    put_number(output, store->exports);
}

static void put_session(struct output *output, const struct core_session *session)
{
    put_number(output, session->id);
    put_number(output, session->store);
    put_number(output, session->mode);
    put_number(output, session->exclusive);
    put_number(output, session->implicit);
    put_number(output, session->touched);
    put_number(output, session->owned);
    put_number(output, session->ending);
    put_number(output, session->opener);
    put_raw(output, session->token, sizeof session->token);
    put_process(output, session->owner);
    put_number(output, session->uid);
    put_raw(output, session->comm, sizeof session->comm);
    put_number(output, session->since_ms);
    put_number(output, session->files);
    put_number(output, session->reserved_bytes);
    put_number(output, session->due_bytes);
}

static void put_file(struct output *output, const struct core_file *file)
{
    put_number(output, file->id);
    put_number(output, file->kind);
    put_number(output, file->store);
    put_number(output, file->serial);
    put_number(output, file->session);
    put_number(output, file->flags);
    put_number(output, file->uid);
    put_process(output, file->opener);
    put_number(output, file->gathered_bytes);
}

static void put_waiter(struct output *output, const struct core_waiter *waiter)
{
    put_number(output, waiter->id);
    put_number(output, waiter->store);
    put_number(output, waiter->file);
    put_number(output, waiter->kind);
    put_number(output, waiter->serial);
    put_number(output, waiter->flags);
    put_number(output, waiter->wish);
    put_process(output, waiter->owner);
    put_number(output, waiter->uid);
    put_raw(output, waiter->comm, sizeof waiter->comm);
    put_raw(output, waiter->token, sizeof waiter->token);
    put_number(output, waiter->since_wall_ms);
    put_number(output, waiter->reserve_bytes);
    put_number(output, waiter->away);
}

static void put_ticket(struct output *output, const struct core_ticket *ticket)
{
    put_number(output, ticket->id);
    put_raw(output, ticket->secret, sizeof ticket->secret);
    put_number(output, ticket->session);
    put_number(output, ticket->uid);
    put_number(output, ticket->holder);
    put_number(output, ticket->first);
    put_number(output, ticket->count);
    put_number(output, ticket->serial);
    put_number(output, ticket->writable);
    put_number(output, ticket->expires_ms);
}

static void put_memory(struct output *output, const struct core_memory *memory)
{
    put_number(output, memory->id);
    put_number(output, memory->refs);
    put_number(output, memory->aligned_bytes);
    put_number(output, memory->committed);
    put_number(output, memory->suspect);
}

static void put_event(struct output *output, const struct core_event *event)
{
    put_number(output, event->seq);
    put_number(output, event->type);
    put_number(output, event->wall_ms);
    put_text(output, event->store);
    put_number(output, event->session);
    put_number(output, event->waiter);
    put_process(output, event->process);
    put_number(output, event->uid);
    put_raw(output, event->comm, sizeof event->comm);
    put_number(output, event->allocations);
    put_number(output, event->bytes);
    put_number(output, event->generation);
    put_process(output, event->by);
    put_number(output, event->by_uid);
    put_text(output, event->bound);
    put_number(output, event->is_share);
}

static void put_events(struct output *output, const struct core *core)
{
    uint64_t room = core->options.limits.events;
    uint64_t first = core->next_event > room ? core->next_event - room : 1;

    for (uint64_t seq = first; seq < core->next_event; seq++)
        put_event(output, core_find_event(core, seq));
}

static void put_counters(struct output *output, const struct core *core)
{
    put_number(output, core->options.patience_ms);
    put_number(output, core->options.granularity_bytes);
    put_number(output, core->options.limits.files);
    put_number(output, core->options.limits.tickets);
    put_number(output, core->options.limits.gathered_bytes);
    put_number(output, core->options.limits.sessions);
    put_number(output, core->options.limits.waiters);
    put_number(output, core->options.limits.events);
    put_number(output, core->options.admin_uid);
    put_number(output, core->next_id);
    put_number(output, core->next_session);
    put_number(output, core->next_waiter);
    put_number(output, core->next_ticket);
    put_number(output, core->next_event);
    put_number(output, core->reserved_bytes);
    put_number(output, core->reserving);
    put_number(output, core->draining);
    put_number(output, core->lost);
    put_number(output, core->suspect);
    put_raw(output, core->health_reason, sizeof core->health_reason);
}

#define PUT_ALL(output, vec, put)                    \
    do {                                             \
        put_number((output), (vec)->count);          \
        for (size_t i_ = 0; i_ < (vec)->count; i_++) \
            put((output), (vec)->items[i_]);         \
    } while (0)

int core_encode(const struct core *core, uint8_t **bytes, size_t *size)
{
    struct output output = {0};

    put_counters(&output, core);
    PUT_ALL(&output, &core->stores, put_store);
    PUT_ALL(&output, &core->sessions, put_session);
    PUT_ALL(&output, &core->files, put_file);
    PUT_ALL(&output, &core->waiters, put_waiter);
    PUT_ALL(&output, &core->tickets, put_ticket);
    PUT_ALL(&output, &core->memories, put_memory);
    put_events(&output, core);
    if (output.failed) {
        free(output.bytes);
        return -ENOMEM;
    }
    *bytes = output.bytes;
    *size = output.used;
    return 0;
}
