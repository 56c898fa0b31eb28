/* SPDX-License-Identifier: Apache-2.0 */
/* Read-only views for the service and the front ends. */
#include "core/core_internal.h"

#include "base/array.h"

#include <string.h>

const struct core_store *core_find_store(const struct core *core, uint64_t id)
{
    return core_store(core, id);
}

const struct core_session *core_find_session(const struct core *core, uint64_t id)
{
    return core_session(core, id);
}

static bool is_drainer(const struct core_drainer *drainer, const uint8_t token[16])
{
    return !core_is_zero(token, sizeof drainer->token) &&
           memcmp(drainer->token, token, sizeof drainer->token) == 0;
}

const struct core_store *core_find_drained(const struct core *core, const uint8_t token[16])
{
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        if (store->drain.is_on && is_drainer(&store->drain.by, token))
            return store;
    }
    return NULL;
}

bool core_is_drainer(const struct core *core, const uint8_t token[16])
{
    return core->draining && is_drainer(&core->drainer, token);
}

bool core_has_drainer(const struct core *core)
{
    return core->draining && !core_is_zero(core->drainer.token, sizeof core->drainer.token);
}

const struct core_session *core_find_token(const struct core *core, const uint8_t token[16])
{
    /* A session without a token cannot be reached by one. */
    if (core_is_zero(token, 16))
        return NULL;
    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];

        if (memcmp(session->token, token, sizeof session->token) == 0)
            return session;
    }
    return NULL;
}

const struct region *core_find_region(const struct core *core, uint64_t id)
{
    return regions_find(&core->regions, id);
}

const struct layout_allocation *core_find_region_allocation(const struct core *core,
                                                            const struct region *region)
{
    const struct core_store *store = core_store(core, region->store);

    return store ? layout_find_serial(core_get_layout(core, store), region->serial) : NULL;
}

const struct region *core_find_session_region(const struct core *core,
                                              const struct core_session *session)
{
    const struct core_file *taker = session->exclusive ? core_file(core, session->opener) : NULL;
    const struct region *region =
        taker && taker->kind == CORE_KIND_CTL ? core_find_region(core, taker->serial) : NULL;

    return region && region->file == taker->id ? region : NULL;
}

enum core_health core_get_health(const struct core *core)
{
    if (core->lost)
        return CORE_HEALTH_LOST;
    return core->suspect > 0 ? CORE_HEALTH_SUSPECT : CORE_HEALTH_OK;
}

const struct core_session *core_get_writer(const struct core *core, uint64_t store)
{
    const struct core_store *found = core_store(core, store);

    for (size_t i = 0; found && i < found->lock.session_count; i++) {
        if (found->lock.sessions[i].mode != LOCK_MODE_RO)
            return core_session(core, found->lock.sessions[i].id);
    }
    return NULL;
}

const struct core_file *core_find_file(const struct core *core, uint64_t id)
{
    return core_file(core, id);
}

const struct core_waiter *core_find_waiter(const struct core *core, uint64_t id)
{
    return core_waiter(core, id);
}

bool core_waiter_counts(const struct core_waiter *waiter)
{
    return !waiter->away || (waiter->flags & CORE_OPEN_AGAIN) != 0;
}

uint64_t core_first_event(const struct core *core)
{
    uint64_t room = core->options.limits.events;

    return core->next_event > room ? core->next_event - room : 1;
}

const struct core_event *core_find_event(const struct core *core, uint64_t seq)
{
    const struct core_event *event = &core->events[seq % core->options.limits.events];

    return seq > 0 && event->seq == seq ? event : NULL;
}

uint64_t core_first_offset(const struct core *core)
{
    const struct core_event *first = core_find_event(core, core_first_event(core));

    return first ? first->at : core->event_bytes;
}

const struct core_event *core_find_event_at(const struct core *core, uint64_t offset)
{
    uint64_t after = core_first_event(core);

    if (offset >= core->event_bytes || offset < core_first_offset(core))
        return NULL;
    ARRAY_SEARCH(after, core->next_event, core_find_event(core, after)->at <= offset);
    return core_find_event(core, after - 1);
}

const struct layout *core_get_layout(const struct core *core, const struct core_store *store)
{
    if (store->working)
        return store->working;
    return store->fixed ? store->fixed : core->empty;
}

uint64_t core_count_entry_bytes(const struct core *core)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        bytes += store->fixed ? layout_entry_bytes(store->fixed) : 0;
        bytes += store->working ? layout_entry_bytes(store->working) : 0;
    }
    return bytes;
}

/* Returns the index of a process: 0 the client itself, 1.. its ancestors; `count` if none. */
static size_t find_rank(struct core_process process, const struct core_process *processes,
                        size_t count)
{
    size_t i = 0;

    while (i < count && !core_same_process(process, processes[i]))
        i++;
    return i;
}

/* Returns the store's session at `index` if other processes may join it; else NULL. */
static const struct core_session *get_joinable(const struct core *core,
                                               const struct core_store *store, size_t index)
{
    const struct core_session *session = core_session(core, store->lock.sessions[index].id);

    return session && !session->exclusive && !session->ending ? session : NULL;
}

struct nearest {
    const struct core_session *session; /* NULL if none yet */
    const struct core_file *file; /* the file that makes it a member; NULL if it is the owner */
    size_t rank;
};

/* Takes a file that is nearer than the best so far, or as near and older. */
static void look_at_files(const struct core_session *session, const struct core_process *processes,
                          size_t count, struct nearest *nearest)
{
    for (const struct core_file *file = session->first_file; file; file = file->next_in_session) {
        size_t most = nearest->rank < count ? nearest->rank + 1 : count;
        size_t rank = find_rank(file->opener, processes, most);

        if (rank < nearest->rank || (rank < most && nearest->file && file->id < nearest->file->id))
            *nearest = (struct nearest){.session = session, .file = file, .rank = rank};
    }
}

const struct core_session *core_find_membership(const struct core *core, uint64_t store_id,
                                                const struct core_process *processes, size_t count)
{
    const struct core_store *store = core_find_store(core, store_id);
    struct nearest nearest = {.rank = count};
    const struct core_session *session;

    for (size_t i = 0; store && i < store->lock.session_count; i++) {
        session = get_joinable(core, store, i);
        size_t rank = session ? find_rank(session->owner, processes, nearest.rank) : count;
        if (rank < nearest.rank)
            nearest = (struct nearest){.session = session, .rank = rank};
    }
    for (size_t i = 0; store && nearest.rank > 0 && i < store->lock.session_count; i++) {
        session = get_joinable(core, store, i);
        if (session)
            look_at_files(session, processes, count, &nearest);
    }
    return nearest.session;
}

bool core_has_joinable(const struct core *core, uint64_t store_id)
{
    const struct core_store *store = core_find_store(core, store_id);

    for (size_t i = 0; store && i < store->lock.session_count; i++) {
        if (get_joinable(core, store, i))
            return true;
    }
    return false;
}

bool core_is_fixed_memory(const struct core *core, const struct core_store *store, uint64_t memory)
{
    const struct core_memory *held = core_memory(core, memory);

    return held && held->committed == store->id;
}

uint64_t core_count_given_up_bytes(const struct core *core, const struct core_store *store)
{
    uint64_t bytes = 0;

    if (!store->fixed || !store->working || store->places.place != CORE_PLACE_DEVICE)
        return 0;
    for (size_t i = 0; i < layout_count_allocations(store->fixed); i++) {
        const struct layout_allocation *allocation = layout_at_rank(store->fixed, i);
        const struct core_memory *held = core_memory(core, allocation->memory);

        if (held && held->refs == 1)
            bytes += held->aligned_bytes;
    }
    return bytes;
}

/* Returns now_ms if the lock can grant or expire a waiter now; else its next moment. */
static uint64_t lock_moment(const struct lock *lock, uint64_t now_ms)
{
    enum lock_mode mode;
    uint64_t waiter;
    bool kept;

    if (lock_next_grant(lock, now_ms, &waiter, &mode) ||
        lock_next_expired(lock, now_ms, &waiter, &kept))
        return now_ms;
    return lock_next_moment(lock, now_ms);
}

/* Caches the result: the service asks after every record, and a lock may have thousands of
 * waiters. */
static uint64_t store_moment(struct core_store *store, uint64_t now_ms)
{
    if (store->lock.changed || now_ms >= store->moment_ms) {
        store->moment_ms = lock_moment(&store->lock, now_ms);
        store->lock.changed = false;
    }
    return store->moment_ms;
}

uint64_t core_next_moment(struct core *core, uint64_t now_ms)
{
    uint64_t moment_ms = UINT64_MAX;

    for (size_t i = 0; i < core->index.waited.count; i++) {
        uint64_t at_ms = store_moment(core->index.waited.items[i], now_ms);

        if (at_ms < moment_ms)
            moment_ms = at_ms;
    }
    uint64_t line_ms = core_line_moment(core, now_ms), ticket_ms = core_ticket_moment(core);

    moment_ms = line_ms < moment_ms ? line_ms : moment_ms;
    return ticket_ms < moment_ms ? ticket_ms : moment_ms;
}

bool core_is_left_to(const struct core_store *store, struct core_process process)
{
    return store->writer_count == 0 ||
           (store->writer_count == 1 && core_same_process(store->writers[0], process));
}

bool core_is_fenced(const struct core *core, const char *name)
{
    return core->fence.is_up &&
           (strcmp(core->fence.names[0], name) == 0 || strcmp(core->fence.names[1], name) == 0);
}
