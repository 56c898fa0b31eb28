/* SPDX-License-Identifier: Apache-2.0 */
/* core_tickets - counts the tickets of each session, and finds the next expiry */
#include "core/core_internal.h"

void core_note_ticket(struct core *core, const struct core_ticket *ticket)
{
    struct core_session *session = core_session(core, ticket->session);

    if (session)
        session->tickets++;
    if (core->knows_ticket_moment && ticket->expires_ms < core->ticket_moment_ms)
        core->ticket_moment_ms = ticket->expires_ms;
}

void core_note_ticket_gone(struct core *core, const struct core_ticket *ticket)
{
    struct core_session *session = core_session(core, ticket->session);

    if (session)
        session->tickets--;
    if (ticket->expires_ms <= core->ticket_moment_ms)
        core->knows_ticket_moment = false;
}

uint64_t core_ticket_moment(struct core *core)
{
    if (core->knows_ticket_moment)
        return core->ticket_moment_ms;
    core->ticket_moment_ms = UINT64_MAX;
    core->knows_ticket_moment = true;
    for (size_t i = 0; i < core->tickets.count; i++) {
        const struct core_ticket *ticket = core->tickets.items[i];

        if (ticket->expires_ms < core->ticket_moment_ms)
            core->ticket_moment_ms = ticket->expires_ms;
    }
    return core->ticket_moment_ms;
}
