/* SPDX-License-Identifier: Apache-2.0 */
/* What workers die of: whatever several of them in a row were at when they ended is given to no
 * other one. */
#include "daemon/keeper_internal.h"

#include "base/log.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#define MAX_ENDED 3u /* of itself: signals of faults, exit statuses */
/* Or killed as from outside, as the kernel does where memory is short: before they served; or after
 * that, which says little of what they were at, and so has to go on for long. */
#define MAX_IN_VAIN 5u
#define MAX_KILLED  6u
#define KILLED_MS   60000u

/* It is one of those without an answer now, for the next worker is not at it yet. Where they have
 * taken all places it stays: so does the place of one that waits. */
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

static struct keeper_suspect *find_suspect(struct keeper_suspects *suspects, uint64_t what)
{
    for (size_t i = 0; i < suspects->count; i++)
        if (suspects->items[i].what == what)
            return &suspects->items[i];
    return NULL;
}

static uint64_t any_frame(uint64_t what)
{
    return fs_at_connection(what, 0);
}

static bool is_any_frame(const struct keeper_suspect *one)
{
    return one->what & FS_AT_CONNECTION && one->what == any_frame(one->what);
}

static void add_suspect(struct keeper *keeper, struct keeper_suspects *found, uint64_t what)
{
    const struct keeper_suspect *known = find_suspect(&keeper->suspects, what);

    if (find_suspect(found, what))
        return;
    struct keeper_suspect now = known ? *known
                                      : (struct keeper_suspect){.what = what,
                                                                .first = found->deaths,
                                                                .first_ms = keeper_now_ms()};
    now.killed++;
    now.in_vain += keeper->restarts.in_vain > 0;
    now.ended += ended_of_itself(keeper->worker_status);
    found->items[found->count++] = now;
}

/* Those that the dead worker was at, with what is known of each; there are no others now. */
static void suspect(struct keeper *keeper)
{
    struct keeper_suspects found = {.deaths = keeper->suspects.deaths + 1};

    for (unsigned i = 0; i < FS_LEDGER_AT; i++) {
        uint64_t what = atomic_exchange(&keeper->ledger->at[i], 0);
        if (!what)
            continue;
        add_suspect(keeper, &found, what);
        if (what & FS_AT_CONNECTION)
            add_suspect(keeper, &found, any_frame(what));
    }
    if (found.count == 0 && keeper->restarts.in_vain > 0)
        return; /* it came to none, and says nothing of one */
    keeper->suspects = found;
}

/* Of a client whatever it asked for: it works on, and is at another frame at each death, but so is
 * one that only was there as well. */
#define MAX_ENDED_CLIENT 10u

static bool is_due(const struct keeper_suspect *one)
{
    if (is_any_frame(one))
        return one->ended >= MAX_ENDED_CLIENT;
    return one->ended >= MAX_ENDED || one->in_vain >= MAX_IN_VAIN ||
           (one->killed >= MAX_KILLED && keeper_now_ms() - one->first_ms >= KILLED_MS);
}

/* Where there are several, the one that came last: what only was there as well, and takes long, had
 * come before the first death. Of those that came between the same two deaths nothing tells which
 * was the later one, but among the kernel's numbers, which grow. */
static bool is_likelier(const struct keeper_suspect *one, const struct keeper_suspect *other)
{
    if (!other || one->first != other->first)
        return !other || one->first > other->first;
    return !((one->what | other->what) & FS_AT_CONNECTION) && one->what > other->what;
}

static struct keeper_suspect *choose_culprit(struct keeper *keeper)
{
    struct keeper_suspect *culprit = NULL;

    for (size_t i = 0; i < keeper->suspects.count; i++)
        if (is_due(&keeper->suspects.items[i]) && is_likelier(&keeper->suspects.items[i], culprit))
            culprit = &keeper->suspects.items[i];
    return culprit;
}

void keeper_refuse_poison(struct keeper *keeper)
{
    struct fs_ledger *ledger = keeper->ledger;

    shelve_served(ledger);
    suspect(keeper);
    struct keeper_suspect *culprit = choose_culprit(keeper);
    if (!culprit)
        return;
    bool is_connection = culprit->what & FS_AT_CONNECTION;
    log_error("%s: %u workers in a row ended while they served one %s; it is %s",
              keeper->setup->mountpoint, culprit->killed, is_connection ? "GMS client" : "request",
              is_connection ? "let go" : "answered with an input/output error");
    ledger->refused = culprit->what;
    culprit->killed = culprit->ended = culprit->in_vain = 0;
    for (size_t i = 0; i < keeper->suspects.count; i++) /* these ends were that one's */
        if (is_any_frame(&keeper->suspects.items[i]))
            keeper->suspects.items[i].killed = keeper->suspects.items[i].ended = 0;
}
