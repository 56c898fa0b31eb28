/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that kill workers: a request that several workers in a row served when they ended is not
 * given to another one. */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "base/log.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>

/* Workers in a row that ended while they served it; 0 for no limit. */
struct limits {
    unsigned ended; /* ended by themselves: by signals of faults, with exit statuses */
    /* Killed from outside before they served, as the kernel does when memory is short. */
    unsigned unserved;
    /* Killed from outside later, which says little about the request; so also for. */
    unsigned killed;
    uint64_t killed_ms;
};

static const struct limits one_request = {
    .ended = 3, .unserved = 5, .killed = 6, .killed_ms = 60000};
/* A client continues, and is at another request at each death; but an innocent client is too. */
static const struct limits whole_client = {.ended = 10};

#define REFUSED_MS 60000u /* for requests on `.fds` */

/* Moves the request that was being served to those without an answer, because the next worker does
 * not serve it yet. If these take all places it stays, as does the place of one that waits. */
static void shelve_served(struct fs_ledger *ledger)
{
    struct fs_kept_request *requests = ledger->requests;
    uint64_t served = requests[0].unique;
    unsigned own = 0, unused = 0;

    for (unsigned i = 1; served && !own && i < ledger->slots; i++) {
        if (!requests[i].unique)
            unused = unused ? unused : i;
        else if (((requests[i].unique ^ served) & ~FS_RESENT_BIT) == 0)
            own = i;
    }
    if (!own && unused)
        requests[unused].since_ms = 0;
    if (own || unused) {
        requests[own ? own : unused].unique = served;
        requests[0].unique = 0;
    }
}

static bool ended_of_itself(int status)
{
    return !WIFSIGNALED(status) || (WTERMSIG(status) != SIGKILL && WTERMSIG(status) != SIGTERM);
}

static struct keeper_suspect *find_suspect(struct keeper_suspects *suspects, uint64_t request)
{
    for (size_t i = 0; i < suspects->count; i++)
        if (suspects->items[i].request == request)
            return &suspects->items[i];
    return NULL;
}

static bool is_asker(uint64_t request)
{
    return (request & (FS_AT_CONNECTION | FS_AT_ASKER)) == FS_AT_ASKER;
}

/* Returns the whole client: any frame of a GMS connection, any request of a user on `.fds`; 0 for a
 * request of the kernel. */
static uint64_t whole_of(uint64_t request)
{
    if (request & FS_AT_CONNECTION)
        return fs_at_connection(request, 0);
    return is_asker(request) ? fs_at_any_asker((uint32_t)request) : 0;
}

static bool is_whole(const struct keeper_suspect *one)
{
    return one->request == whole_of(one->request);
}

static void add_suspect(struct keeper *keeper, struct keeper_suspects *found, uint64_t request)
{
    const struct keeper_suspect *known = find_suspect(&keeper->suspects, request);

    if (find_suspect(found, request))
        return;
    struct keeper_suspect now = known ? *known
                                      : (struct keeper_suspect){.request = request,
                                                                .first = found->deaths,
                                                                .first_ms = clock_now_ms()};
    now.killed++;
    now.unserved += keeper->restarts.unserved > 0;
    now.ended += ended_of_itself(keeper->worker_status);
    found->items[found->count++] = now;
}

/* Makes suspects of the requests that the dead worker served, with the history of each; there are
 * no others now. */
static void suspect(struct keeper *keeper)
{
    struct keeper_suspects found = {.deaths = keeper->suspects.deaths + 1};

    for (unsigned i = 0; i < FS_LEDGER_AT; i++) {
        uint64_t request = atomic_exchange(&keeper->ledger->at[i], 0);
        if (!request)
            continue;
        add_suspect(keeper, &found, request);
        if (whole_of(request))
            add_suspect(keeper, &found, whole_of(request));
    }
    if (found.count == 0 && keeper->restarts.unserved > 0)
        return; /* it served none yet, so its end says nothing about one */
    keeper->suspects = found;
}

static bool has_come_to(unsigned count, unsigned limit)
{
    return limit > 0 && count >= limit;
}

static bool is_due(const struct keeper_suspect *one)
{
    const struct limits *most = is_whole(one) ? &whole_client : &one_request;

    return has_come_to(one->ended, most->ended) || has_come_to(one->unserved, most->unserved) ||
           (has_come_to(one->killed, most->killed) &&
            clock_now_ms() - one->first_ms >= most->killed_ms);
}

/* Of several requests, prefers the last: an innocent request that takes long had come before
 * the first death. Of those that came between the same two deaths only the kernel's numbers, which
 * grow, tell which one is later. */
static bool is_likelier(const struct keeper_suspect *one, const struct keeper_suspect *other)
{
    if (!other || one->first != other->first)
        return !other || one->first > other->first;
    return !((one->request | other->request) & (FS_AT_CONNECTION | FS_AT_ASKER)) &&
           one->request > other->request;
}

static struct keeper_suspect *choose_culprit(struct keeper *keeper)
{
    struct keeper_suspect *culprit = NULL;

    for (size_t i = 0; i < keeper->suspects.count; i++)
        if (is_due(&keeper->suspects.items[i]) && is_likelier(&keeper->suspects.items[i], culprit))
            culprit = &keeper->suspects.items[i];
    return culprit;
}

/* Refuses it for a while: the client can ask again on another connection. */
static void refuse_asker(struct fs_ledger *ledger, uint64_t request)
{
    struct fs_refused_asker *place = ledger->refused_askers;

    for (unsigned i = 1; i < FS_REFUSED_ASKERS; i++)
        if (ledger->refused_askers[i].until_ms < place->until_ms)
            place = &ledger->refused_askers[i];
    place->until_ms = clock_now_ms() + REFUSED_MS;
    atomic_store(&place->what, request);
}

static void tell(const struct keeper *keeper, const struct keeper_suspect *culprit)
{
    uint64_t request = culprit->request;
    char victim[128] = "request; it is answered with an input/output error";

    if (request & FS_AT_CONNECTION)
        snprintf(victim, sizeof victim, "GMS client; it is disconnected");
    else if (is_asker(request) && is_whole(culprit))
        snprintf(victim, sizeof victim, "user on .fds, %u; refused there for a minute",
                 (uint32_t)request);
    else if (is_asker(request))
        snprintf(victim, sizeof victim,
                 "request on .fds, of process %u of user %u; refused for a minute",
                 (unsigned)(request >> FS_AT_UID_BITS & ((1u << FS_AT_PID_BITS) - 1)),
                 (uint32_t)request);
    log_error("%s: %u workers in a row ended while they served one %s", keeper->setup->mountpoint,
              culprit->killed, victim);
}

void keeper_refuse_poison(struct keeper *keeper)
{
    struct fs_ledger *ledger = keeper->ledger;

    shelve_served(ledger);
    if (keeper->restarts.was_starved)
        return; /* its request does not matter: there was no memory left */
    suspect(keeper);
    struct keeper_suspect *culprit = choose_culprit(keeper);
    if (!culprit)
        return;
    tell(keeper, culprit);
    if (is_asker(culprit->request))
        refuse_asker(ledger, culprit->request);
    else
        ledger->refused = culprit->request;
    culprit->killed = culprit->ended = culprit->unserved = 0;
    if (is_asker(culprit->request))
        return; /* other processes of that user count for the user */
    for (size_t i = 0; i < keeper->suspects.count; i++) /* these workers died of that one */
        if (is_whole(&keeper->suspects.items[i]))
            keeper->suspects.items[i].killed = keeper->suspects.items[i].ended = 0;
}
