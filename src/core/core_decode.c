/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes a state (core_encode.c) from bytes that are not trusted. Lengths, numbers and references
 * are checked while they are read, as far as building the state needs it; core_check checks the
 * others at the end.
 */
#include "core/core_input.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- head ----------------------------------------------------------------------------------- */

static void read_version(struct input *input)
{
    const uint8_t *magic = input_raw(input, CORE_STATE_MAGIC_BYTES);

    if (magic && memcmp(magic, CORE_STATE_MAGIC, CORE_STATE_MAGIC_BYTES) != 0)
        input_refuse(input, "this is not a state of gmsfs");
    input->version = input_u32(input);
    if (input->error == 0 &&
        (input->version < CORE_STATE_OLDEST || input->version > CORE_STATE_VERSION))
        input->error = failure_set(input->failure, -EPROTONOSUPPORT,
                                   "the saved state is of version %" PRIu32
                                   ", and this gmsfs reads versions %u to %u only",
                                   input->version, CORE_STATE_OLDEST, CORE_STATE_VERSION);
}

static void read_head(struct input *input)
{
    struct core_options options = {0};
    struct core *core;

    read_version(input);
    input_fields(input, core_options_fields, &options);
    if (input->error == 0)
        input_fail(input, core_new(&options, &input->core));
    if (input->error < 0)
        return;
    core = input->core;
    free(idvec_remove(&core->pools.items, CORE_DEFAULT_POOL)); /* it is read with the others */
    input_fields(input, core_head_fields, core);
    core->measured_event = core->next_event;
}

/* Reads an object of `size` bytes: its id, and its members in `fields`. NULL after an error. */
static void *read_object(struct input *input, const char *part, size_t size,
                         const struct core_field *fields)
{
    uint64_t id = input_id(input, part);
    uint64_t *object = input_new_item(input, size);

    if (!object)
        return NULL;
    *object = id;
    input_fields(input, fields, object);
    return object;
}

/* ---- pools ---------------------------------------------------------------------------------- */

static void read_pool(struct input *input)
{
    struct core *core = input->core;
    struct core_pool *pool = read_object(input, "pool", sizeof *pool, core_pool_fields);

    if (!pool)
        return;
    if (!input_keep(input, &core->pools.items, pool, core->pools.next_id))
        return;
    if (pool->min_bytes > INT64_MAX - core->pools.unfilled_bytes)
        input_refuse(input, "the sum of the pools' minimums is too large");
    else
        core_count_pool(core, pool, 1);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void derive_use(struct input *input, struct core_store *store, struct core_session *session,
                       bool holds)
{
    input_use(input, store, session->reserved_bytes);
    input_use(input, store, session->making_bytes);
    if (holds)
        core_hold(input->core, session);
}

static void read_session(struct input *input)
{
    struct core *core = input->core;
    struct core_session *session =
        read_object(input, "session", sizeof *session, core_session_fields);
    struct core_store *store;
    bool holds;

    if (!session)
        return;
    holds = session->holds;
    session->holds = false; /* core_hold() sets it */
    if (session->reserved_bytes > UINT64_MAX - core->reserved_bytes)
        input_refuse(input, "%" PRIu64 " is out of range", session->reserved_bytes);
    store = core_store(core, session->store);
    if (!store)
        input_refuse(input, "its store %" PRIu64 " does not exist", session->store);
    if (!input_keep(input, &core->sessions, session, core->next_session))
        return;
    core->reserved_bytes += session->reserved_bytes;
    core->comm_bytes += strlen(session->comm);
    derive_use(input, store, session, holds);
    int error = lock_restore_session(
        &store->lock, &(struct lock_session){.id = session->id, .mode = session->mode});
    if (error == -EINVAL)
        input_refuse(input, "it cannot coexist with the other sessions of its store");
    input_fail(input, error);
    input_take(input, &store->sessions, session->uid, 1);
}

static void read_file(struct input *input)
{
    struct core *core = input->core;
    struct core_file *file = read_object(input, "file", sizeof *file, core_file_fields);
    struct core_session *session;

    if (!file)
        return;
    if (!input_keep(input, &core->files, file, core->next_id))
        return;
    session = core_session(core, file->session);
    if (session)
        core_enter_session(session, file);
    input_take(input, &core->shares[CORE_BOUND_FILES], file->uid, 1);
    input_take(input, &core->shares[CORE_BOUND_GATHERED], file->uid, file->gathered_bytes);
}

static struct region *read_region_texts(struct input *input)
{
    size_t name_bytes, key_bytes;
    const char *name = input_bytes(input, REGION_MAX_NAME_BYTES, &name_bytes);
    const char *key = input_bytes(input, REGION_MAX_KEY_BYTES, &key_bytes);

    if (input->error < 0)
        return NULL;
    struct region *region = region_new(name, name_bytes, key, key_bytes);
    if (!region)
        input_fail(input, -ENOMEM);
    return region;
}

/* Adds it to the table, or frees it. */
static void keep_region(struct input *input, struct region *region)
{
    struct core *core = input->core;
    struct regions *regions = &core->regions;

    if (regions->items.count > 0 &&
        region->id <= *(const uint64_t *)regions->items.items[regions->items.count - 1])
        input_refuse(input, "its number is out of order");
    if (regions_find_name(regions, region->uid, region->name, region->name_bytes))
        input_refuse(input, "its owner has another region with its name");
    if (input->error == 0)
        input_fail(input, regions_reserve(regions));
    if (input->error < 0) {
        free(region);
        return;
    }
    regions_add(regions, region);
    region->references = core_count_references(core, region->id);
    input_take(input, &core->shares[CORE_BOUND_REGIONS], region->uid, 1);
    input_take(input, &core->shares[CORE_BOUND_REGION_BYTES], region->uid,
               region->name_bytes + region->key_bytes);
}

static void read_region(struct input *input)
{
    uint64_t id = input_id(input, "region");
    struct region *region = read_region_texts(input);

    if (!region)
        return;
    region->id = id;
    input_fields(input, core_region_fields, region);
    keep_region(input, region);
}

static void derive_waiter(struct input *input, struct core_store *store, struct core_waiter *waiter)
{
    const struct core_request request = {.file = waiter->file};

    input->core->reserving += waiter->reserve_bytes > 0;
    input->core->comm_bytes += strlen(waiter->comm);
    input_fail(input, apply_make_grant(&request, &waiter->grant));
    input_take(input, &store->waiters, waiter->uid, 1);
    if (input->error == 0)
        input_fail(input, share_pin(&store->sessions, waiter->uid));
    if (waiter->file == 0)
        input_take(input, &input->core->shares[CORE_BOUND_FILES], waiter->uid, 1);
}

static void read_place(struct input *input, struct core_store *store, struct core_waiter *waiter)
{
    struct lock_waiter queued = {.id = waiter->id, .wish = waiter->wish};
    int error;

    input_fields(input, core_queued_fields, &queued);
    waiter->away = queued.kept_until_ms != 0;
    queued.looking = waiter->away && core_waiter_counts(waiter);
    if (input->error < 0)
        return;
    if (!store) {
        input_refuse(input, "its store %" PRIu64 " does not exist", waiter->store);
        return;
    }
    error = lock_restore_waiter(&store->lock, &queued);
    if (error == -EINVAL)
        input_refuse(input, "it cannot wait behind the other waiters of its store");
    if (error == 0)
        core_note_waiters(input->core, store);
    input_fail(input, error);
}

static void read_waiter(struct input *input)
{
    struct core *core = input->core;
    struct core_waiter *waiter = read_object(input, "waiter", sizeof *waiter, core_waiter_fields);
    struct core_store *store;

    if (!waiter)
        return;
    store = core_store(core, waiter->store);
    read_place(input, store, waiter);
    if (input_keep(input, &core->waiters, waiter, core->next_waiter))
        derive_waiter(input, store, waiter);
}

static void read_ticket(struct input *input)
{
    struct core *core = input->core;
    struct core_ticket *ticket = read_object(input, "ticket", sizeof *ticket, core_ticket_fields);

    if (!ticket)
        return;
    if (!input_keep(input, &core->tickets, ticket, core->next_ticket))
        return;
    core_note_ticket(core, ticket);
    input_take(input, &core->shares[CORE_BOUND_TICKETS], ticket->holder, 1);
}

static void read_event(struct input *input, uint64_t seq)
{
    struct core_event *event = &input->core->events[seq % input->core->options.limits.events];

    input->part = "event";
    input->which = seq;
    event->seq = seq;
    input_fields(input, core_event_fields, event);
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void read_many(struct input *input, const char *part, size_t most,
                      void (*read_one)(struct input *input))
{
    input->part = part;
    input->which = 0;
    size_t count = input_count(input, most, 8);
    for (size_t i = 0; i < count && input->error == 0; i++)
        read_one(input);
}

static void read_events(struct input *input)
{
    struct core *core = input->core;

    for (uint64_t seq = core_first_event(core); seq < core->next_event && input->error == 0; seq++)
        read_event(input, seq);
    if (input->error == 0)
        core_count_event_texts(core);
}

/* Makes the room that earlier records would have left for an ending. */
static int make_room(struct core *core)
{
    if (core_reserve(&core->sessions, core->waiters.count + 2) < 0 ||
        core_reserve(&core->files, core->waiters.count + 2) < 0)
        return -ENOMEM;
    return core_reserve_effects(core, 1);
}

static void read_all(struct input *input)
{
    read_head(input);
    if (input->error < 0)
        return;
    read_many(input, "its pools", CORE_MAX_POOLS, read_pool);
    read_many(input, "its stores", CORE_MAX_STORES, input_store);
    input_memories(input);
    read_many(input, "its sessions", SIZE_MAX, read_session);
    read_many(input, "its files", SIZE_MAX, read_file);
    read_many(input, "its regions", CORE_MAX_REGIONS, read_region);
    read_many(input, "its waiters", SIZE_MAX, read_waiter);
    read_many(input, "its tickets", SIZE_MAX, read_ticket);
    read_events(input);
    if (input->version >= CORE_STATE_TIMES)
        input_times(input);
    input_contents(input);
    if (input->error == 0 && input_left(input) > 0)
        input_refuse(input, "%zu bytes follow after the end", input_left(input));
    if (input->error == 0)
        input_fail(input, make_room(input->core));
    if (input->error == 0)
        input->error = core_check(input->core, input->failure);
}

int core_decode(const void *bytes, size_t size, struct core **core, struct failure *failure)
{
    struct input input = {.start = bytes, .at = bytes, .failure = failure, .part = "its head"};

    input.end = input.start + size;
    read_all(&input);
    if (input.error == 0)
        *core = input.core;
    else
        core_free(input.core);
    return input.error;
}
