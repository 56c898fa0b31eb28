/* SPDX-License-Identifier: Apache-2.0 */
/* Tickets: made for a session's memory, used once, dropped at their expiry or the session's end. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct core_ticket *find_secret(const struct core *core, const uint8_t secret[16])
{
    for (size_t i = 0; i < core->tickets.count; i++) {
        struct core_ticket *ticket = core->tickets.items[i];

        if (memcmp(ticket->secret, secret, sizeof ticket->secret) == 0)
            return ticket;
    }
    return NULL;
}

/* Frees the tickets for which `match` is true; the others keep their order. */
static void drop_matching(struct core *core,
                          bool (*match)(const struct core_ticket *ticket, uint64_t key),
                          uint64_t key)
{
    struct idvec *tickets = &core->tickets;
    size_t kept = 0;

    for (size_t i = 0; i < tickets->count; i++) {
        struct core_ticket *ticket = tickets->items[i];

        if (!match(ticket, key)) {
            tickets->items[kept++] = ticket;
            continue;
        }
        core_note_ticket_gone(core, ticket);
        share_give(&core->shares[CORE_BOUND_TICKETS], ticket->holder, 1);
        free(ticket);
    }
    tickets->count = kept;
}

static bool is_of_session(const struct core_ticket *ticket, uint64_t session)
{
    return ticket->session == session;
}

static bool is_writable_of_session(const struct core_ticket *ticket, uint64_t session)
{
    return ticket->session == session && ticket->writable;
}

static bool is_expired(const struct core_ticket *ticket, uint64_t now_ms)
{
    return ticket->expires_ms <= now_ms;
}

void apply_drop_tickets(struct core *core, uint64_t session, bool only_writable)
{
    const struct core_session *held = core_session(core, session);

    if (!held || held->tickets > 0)
        drop_matching(core, only_writable ? is_writable_of_session : is_of_session, session);
}

static bool is_of_region(const struct core_ticket *ticket, uint64_t region)
{
    return ticket->region == region;
}

void apply_drop_region_tickets(struct core *core, uint64_t region)
{
    drop_matching(core, is_of_region, region);
}

void apply_expire_tickets(struct core *core, uint64_t now_ms)
{
    if (core_ticket_moment(core) <= now_ms)
        drop_matching(core, is_expired, now_ms);
}

/* Sets the ticket's ranks from the record's serial or range. */
static int find_range(const struct record *record, const struct layout *layout,
                      struct core_ticket *ticket)
{
    size_t total = layout_count_allocations(layout);
    const struct layout_allocation *one;
    size_t rank;

    if (record->serial != 0) {
        one = layout_find_serial(layout, record->serial);
        if (!one)
            return -ENOENT;
        layout_find_slot(layout, one->slot, &rank);
        ticket->first = rank;
        ticket->count = 1;
        return 0;
    }
    if (record->offset > total || record->count > total - record->offset)
        return -EINVAL;
    ticket->first = record->offset;
    ticket->count = record->count ? record->count : total - record->offset;
    return 0;
}

/* Checks that each allocation has memory, on the device unless the session was admitted in any
 * tier. *committed: true if the ticket is writable and some of it is part of the committed layout.
 */
static int check_memory(const struct core *core, const struct core_store *store,
                        const struct layout *layout, const struct core_ticket *ticket, bool any,
                        bool *committed)
{
    bool is_there = any || store->places.place == CORE_PLACE_DEVICE;

    *committed = false;
    for (uint64_t i = 0; i < ticket->count; i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, ticket->first + i);

        if (allocation->memory == LAYOUT_NO_MEMORY)
            return store->lock.bare && allocation->size_bytes > 0 ? -ENODATA : -EINVAL;
        if (!is_there && core_memory(core, allocation->memory)->tier != CORE_PLACE_DEVICE)
            return -EAGAIN;
        *committed |= ticket->writable && core_is_fixed_memory(core, store, allocation->memory);
    }
    return 0;
}

static int check_writable(const struct core_file *file, const struct core_session *session)
{
    if (!(file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    return session->mode != LOCK_MODE_RO ? 0 : -ENOLCK;
}

static int make_ticket(struct apply *apply, const struct core_file *file,
                       struct core_session *session, struct core_ticket *ticket)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, session->store);
    const struct layout *layout = core_get_layout(apply->core, store);
    bool committed;

    *ticket = (struct core_ticket){
        .session = session->id,
        .uid = record->uid,
        .holder = file->uid,
        .serial = record->serial,
        .writable = (record->flags & CORE_TICKET_WRITABLE) != 0,
        .expires_ms = number_add(record->now_ms, CORE_TICKET_MS),
    };
    memcpy(ticket->secret, record->bytes16, sizeof ticket->secret);
    int error = ticket->writable ? check_writable(file, session) : 0;
    if (error == 0)
        error = find_range(record, layout, ticket);
    if (error == 0)
        error = check_memory(apply->core, store, layout, ticket, session->any, &committed);
    if (error < 0)
        return error;
    if (committed && session->mode == LOCK_MODE_RW)
        core_touch_bytes(apply->core, session);
    core_hold(apply->core, session);
    store->exports++;
    return 0;
}

/* Makes a ticket for the region's descriptor. */
static int make_region_ticket(struct apply *apply, const struct core_file *file,
                              struct core_ticket *ticket)
{
    const struct record *record = apply->record;
    const struct region *region = core_find_region(apply->core, file->serial);

    if (!region)
        return -ESTALE;
    if (region->memory == 0)
        return -ENODATA;
    if (record->flags || record->serial != 0)
        return -EINVAL;
    *ticket = (struct core_ticket){
        .region = region->id,
        .uid = record->uid,
        .holder = file->uid,
        .count = 1,
        .expires_ms = number_add(record->now_ms, CORE_TICKET_MS),
    };
    memcpy(ticket->secret, record->bytes16, sizeof ticket->secret);
    return 0;
}

int apply_ticket_add(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    const struct core_file *file = core_file(core, record->file);
    struct core_session *session;
    struct core_ticket *ticket;

    if (!file)
        return -EBADF;
    if (file->session == 0 && !file->holds)
        return -ENOLCK;
    session = core_session(core, file->session);
    if (!session && file->session != 0)
        return -ESTALE;
    if (find_secret(core, record->bytes16))
        return -EEXIST;
    ticket = malloc(sizeof *ticket);
    if (!ticket)
        return -ENOMEM;
    int error = apply_take(apply, CORE_BOUND_TICKETS, core_store(core, file->store), file->uid, 1);
    if (error == 0) {
        error = session ? make_ticket(apply, file, session, ticket)
                        : make_region_ticket(apply, file, ticket);
        if (error < 0)
            share_give(&core->shares[CORE_BOUND_TICKETS], file->uid, 1);
    }
    if (error < 0) {
        free(ticket);
        return error;
    }
    ticket->id = core->next_ticket++;
    idvec_append(&core->tickets, ticket);
    core_note_ticket(core, ticket);
    apply->out->ticket = *ticket;
    apply->out->count = ticket->count;
    apply->out->ticket_first = ticket->first;
    return 0;
}

int apply_ticket_use(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct core_ticket *ticket = find_secret(core, record->bytes16);

    if (!ticket || ticket->expires_ms <= record->now_ms)
        return -ESTALE;
    if (ticket->uid != record->uid)
        return -EACCES;
    apply->out->ticket = *ticket;
    apply->out->session = ticket->session;
    apply->out->serial = ticket->serial;
    apply->out->count = ticket->count;
    apply->out->ticket_first = ticket->first;
    core_note_ticket_gone(core, ticket);
    share_give(&core->shares[CORE_BOUND_TICKETS], ticket->holder, 1);
    free(idvec_remove(&core->tickets, ticket->id));
    return 0;
}
