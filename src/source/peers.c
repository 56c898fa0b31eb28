/* SPDX-License-Identifier: Apache-2.0 */
#include "source/peers.h"

#include "base/number.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAUSE_MS       250u
#define LEAST_RETRY_MS       1000u
#define MEDIANS              8u
#define MOST_FULL_DOUBLINGS  3u
#define MOST_DOUBLINGS       5u
#define GOOD_BEFORE_ONE_MORE 16u /* pieces until a full peer is asked for one more at a time */
#define AVERAGE_OF           4u

void peers_init(struct peers *peers, size_t count, uint64_t now_ms)
{
    memset(peers, 0, sizeof(*peers));
    peers->count = count;
    peers->alive_ms = now_ms;
    for (size_t i = 0; i < count; i++)
        peers->peer[i].most = UINT_MAX;
}

/* Returns the pause after so many failures in a row. */
static uint64_t pause_ms(unsigned failed)
{
    unsigned doublings = failed < 8 ? failed : 8;

    return number_smaller((uint64_t)FIRST_PAUSE_MS << doublings, PEERS_MOST_PAUSE_MS);
}

static bool is_refusal(enum peer_result result)
{
    return result == PEER_FULL || result == PEER_SHUT;
}

/* Leaves a full peer as long as it wants; longer, if it was full again: it serves others, which may
 * have the contents soon. */
static void wait_for_room(struct peer *peer, uint64_t now_ms, uint64_t retry_ms)
{
    uint64_t pause = retry_ms > LEAST_RETRY_MS ? retry_ms : LEAST_RETRY_MS;

    pause <<= peer->full < MOST_FULL_DOUBLINGS ? peer->full : MOST_FULL_DOUBLINGS;
    peer->full++;
    peer->until_ms = now_ms + number_smaller(pause, PEERS_MOST_RETRY_MS);
}

static bool is_without(enum peer_result result)
{
    return result == PEER_LACKS || result == PEER_WRITTEN;
}

/* Leaves a peer, which is asked again after a pause. One that only lacks the contents may get them
 * at any time, and answers at no cost. */
static void leave(struct peer *peer, uint64_t now_ms, enum peer_result result)
{
    uint64_t pause = pause_ms(peer->failed++);

    peer->state = PEER_NEW;
    peer->until_ms =
        now_ms + (is_without(result) ? number_smaller(pause, PEERS_MOST_LACK_MS) : pause);
}

/* ---- questions ------------------------------------------------------------------------------ */

size_t peers_count_having(const struct peers *peers)
{
    size_t count = 0;

    for (size_t i = 0; i < peers->count; i++)
        count += peers->peer[i].state == PEER_HAS;
    return count;
}

/* Returns how many peers, from the first on, may be asked. */
static size_t count_askable(const struct peers *peers)
{
    size_t having = peers_count_having(peers);

    if (having == 0)
        return peers->count;
    return having < PEERS_USED ? (size_t)number_smaller(peers->count, PEERS_ASKED) : 0;
}

size_t peers_next_ask(struct peers *peers, uint64_t now_ms, uint64_t *wait_ms)
{
    size_t askable = count_askable(peers), asked = 0;

    *wait_ms = PEERS_MOST_PAUSE_MS;
    for (size_t i = 0; i < peers->count; i++)
        asked += peers->peer[i].state == PEER_ASKED;
    for (size_t i = 0; i < askable && asked < PEERS_ASKED; i++) {
        struct peer *peer = &peers->peer[i];

        if (peer->state != PEER_NEW)
            continue;
        if (peer->until_ms <= now_ms) {
            peer->state = PEER_ASKED;
            return i;
        }
        *wait_ms = number_smaller(*wait_ms, peer->until_ms - now_ms);
    }
    return PEERS_NONE;
}

void peers_answered(struct peers *peers, size_t index, uint64_t began_ms, uint64_t now_ms,
                    enum peer_result result, uint64_t retry_ms)
{
    struct peer *peer = &peers->peer[index];

    if (peer->state == PEER_BARRED)
        return;
    peer->has_answered = true;
    peer->is_full = result == PEER_FULL;
    peer->is_written = result == PEER_WRITTEN;
    if (peer->is_written && peer->written_ms == 0)
        peer->written_ms = now_ms;
    peer->has_lacked |= is_without(result);
    if (result == PEER_GOOD || is_without(result))
        peer->full = 0;
    if (result == PEER_GOOD) {
        peer->state = PEER_HAS;
        peer->until_ms = 0;
        peer->answer_ms = now_ms - began_ms;
        return;
    }
    if (result == PEER_USELESS) {
        peer->state = PEER_BARRED;
        return;
    }
    leave(peer, now_ms, result);
    if (is_refusal(result))
        wait_for_room(peer, now_ms, retry_ms);
}

bool peers_may_improve(const struct peers *peers)
{
    bool is_asking = false;

    for (size_t i = 0; i < peers->count; i++)
        is_asking |= peers->peer[i].state == PEER_ASKED;
    return is_asking && peers_count_having(peers) < PEERS_USED;
}

/* ---- the begin ------------------------------------------------------------------------------ */

uint64_t peers_spread_ms(const struct peers *peers)
{
    const size_t askable = count_askable(peers);
    uint64_t lacking = 0;

    for (size_t i = 0; i < askable; i++)
        lacking += peers->peer[i].has_lacked && peers->peer[i].state != PEER_HAS;
    return lacking * PEERS_SPREAD_MS;
}

void peers_look(struct peers *peers, uint64_t now_ms)
{
    for (size_t i = 0; i < peers->count; i++) {
        struct peer *peer = &peers->peer[i];

        if (peer->state == PEER_NEW && peer->has_lacked && peer->full == 0)
            peer->until_ms = now_ms;
    }
}

bool peers_are_looked_at(const struct peers *peers, uint64_t now_ms, bool with_first)
{
    const size_t askable = count_askable(peers);
    bool is_asking = false, is_lacked = false;

    for (size_t i = 0; i < askable; i++) {
        const struct peer *peer = &peers->peer[i];

        is_lacked |= peer->has_lacked;
        is_asking |=
            (peer->has_lacked || (with_first && !peer->has_answered)) &&
            (peer->state == PEER_ASKED || (peer->state == PEER_NEW && peer->until_ms <= now_ms));
    }
    return is_asking && is_lacked;
}

size_t peers_awaited(const struct peers *peers, uint64_t now_ms, uint64_t most_ms)
{
    const size_t askable = count_askable(peers);
    size_t written = 0, first = PEERS_NONE;

    for (size_t i = 0; i < askable; i++) {
        const struct peer *peer = &peers->peer[i];

        if (!peer->is_written || now_ms - peer->written_ms >= most_ms)
            continue;
        written++;
        if (first == PEERS_NONE)
            first = i;
    }
    return written < peers_count_having(peers) ? PEERS_NONE : first;
}

/* ---- pieces --------------------------------------------------------------------------------- */

static bool is_usable(const struct peer *peer, uint64_t now_ms)
{
    return peer->state == PEER_HAS && peer->until_ms <= now_ms && peer->open < peer->most;
}

/* Returns the usable peer that answered fastest and is not in `taken`. */
static size_t find_fastest(const struct peers *peers, uint64_t now_ms, uint64_t taken)
{
    size_t fastest = PEERS_NONE;

    for (size_t i = 0; i < peers->count; i++) {
        if (!is_usable(&peers->peer[i], now_ms) || (taken >> i & 1) != 0)
            continue;
        if (fastest == PEERS_NONE || peers->peer[i].answer_ms < peers->peer[fastest].answer_ms)
            fastest = i;
    }
    return fastest;
}

/* Returns about when another piece of this peer would come. */
static uint64_t expect_ms(const struct peer *peer)
{
    return (peer->open + 1u) * (peer->piece_ms > 0 ? peer->piece_ms : 1u);
}

static size_t choose(const struct peers *peers, uint64_t now_ms, uint64_t taken)
{
    size_t best = PEERS_NONE;

    for (unsigned n = 0; n < PEERS_USED; n++) {
        size_t next = find_fastest(peers, now_ms, taken);

        if (next == PEERS_NONE)
            break;
        taken |= (uint64_t)1 << next;
        if (best == PEERS_NONE || expect_ms(&peers->peer[next]) < expect_ms(&peers->peer[best]))
            best = next;
    }
    return best;
}

/* Returns true if the peer sends before the peers that had the contents from the begin. fastest_ms:
 * of a piece of the latter. */
static bool is_preferred(const struct peer *peer, uint64_t fastest_ms)
{
    if (!peer->has_lacked || peer->has_failed)
        return false;
    return peer->piece_ms == 0 ? peer->open == 0 : peer->piece_ms <= PEERS_SLOW * fastest_ms;
}

/* Returns a bit for each peer without a preference. */
static uint64_t find_old(const struct peers *peers)
{
    uint64_t old = 0, fastest_ms = UINT64_MAX / PEERS_SLOW;

    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];

        if (peer->state == PEER_HAS && !peer->has_lacked && peer->piece_ms > 0)
            fastest_ms = number_smaller(fastest_ms, peer->piece_ms);
    }
    for (size_t i = 0; i < peers->count; i++)
        if (!is_preferred(&peers->peer[i], fastest_ms))
            old |= (uint64_t)1 << i;
    return old;
}

/* Returns a bit for each new peer that has a piece, and has sent none since one failed. */
static uint64_t find_probed(const struct peers *peers)
{
    uint64_t probed = 0;

    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];

        if (peer->has_lacked && peer->open > 0 && (peer->piece_ms == 0 || peer->has_failed))
            probed |= (uint64_t)1 << i;
    }
    return probed;
}

/* Returns how long to wait for the first piece of a new peer before an old one is used: 0 if none
 * is on its way, or for too long. */
static uint64_t probe_ms(const struct peers *peers, uint64_t now_ms)
{
    uint64_t wait_ms = 0;

    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];

        if (peer->open > 0 && peer->state == PEER_HAS && peer->probe_ms > now_ms)
            wait_ms = peer->probe_ms - now_ms;
    }
    return wait_ms;
}

static size_t begin_piece(struct peers *peers, size_t index, uint64_t now_ms)
{
    struct peer *peer = &peers->peer[index];

    peer->open++;
    if (peer->probe_ms == 0 && peer->has_lacked)
        peer->probe_ms = now_ms + PEERS_PROBE_MS;
    return index;
}

size_t peers_next(struct peers *peers, uint64_t now_ms, size_t avoid, uint64_t *wait_ms)
{
    const uint64_t avoided = avoid == PEERS_NONE ? 0 : (uint64_t)1 << avoid;
    size_t best = choose(peers, now_ms, avoided | find_old(peers));

    *wait_ms = best == PEERS_NONE ? probe_ms(peers, now_ms) : 0;
    if (*wait_ms > 0)
        return PEERS_NONE;
    if (best == PEERS_NONE)
        best = choose(peers, now_ms, avoided | find_probed(peers));
    if (best == PEERS_NONE)
        best = choose(peers, now_ms, avoided);
    if (best == PEERS_NONE)
        best = choose(peers, now_ms, 0);
    if (best != PEERS_NONE)
        return begin_piece(peers, best, now_ms);
    *wait_ms = PEERS_MOST_PAUSE_MS;
    for (size_t i = 0; i < peers->count; i++) {
        const struct peer *peer = &peers->peer[i];

        if (peer->state == PEER_HAS && peer->until_ms > now_ms)
            *wait_ms = number_smaller(*wait_ms, peer->until_ms - now_ms);
    }
    return PEERS_NONE;
}

static int compare_times(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* Returns how long a piece may take where none was late. */
static uint64_t punctual_ms(const struct peers *peers)
{
    size_t count = (size_t)number_smaller(peers->times, PEERS_TIMES);
    uint64_t sorted[PEERS_TIMES], deadline;

    if (count == 0)
        return PEERS_FIRST_DEADLINE_MS;
    memcpy(sorted, peers->times_ms, count * sizeof(sorted[0]));
    qsort(sorted, count, sizeof(sorted[0]), compare_times);
    deadline = number_smaller(MEDIANS * sorted[count / 2], PEERS_MEDIAN_DEADLINE_MS);
    return deadline > PEERS_LEAST_DEADLINE_MS ? deadline : PEERS_LEAST_DEADLINE_MS;
}

static void note_good(struct peers *peers, struct peer *peer, uint64_t began_ms, uint64_t now_ms)
{
    uint64_t took_ms = now_ms - began_ms;

    peers->alive_ms = now_ms;
    peers->times_ms[peers->times++ % PEERS_TIMES] = took_ms;
    if (took_ms <= punctual_ms(peers))
        peers->late = 0;
    peer->failed = peer->wrong = peer->full = 0;
    peer->has_failed = false;
    peer->piece_ms =
        peer->piece_ms == 0 ? took_ms : (peer->piece_ms * (AVERAGE_OF - 1) + took_ms) / AVERAGE_OF;
    if (peer->most < UINT_MAX && ++peer->good >= GOOD_BEFORE_ONE_MORE) {
        peer->most++;
        peer->good = 0;
    }
}

/* A peer that still sends other pieces only takes no more of them. */
static void note_full(struct peer *peer, uint64_t now_ms, uint64_t retry_ms)
{
    peer->most = peer->open > 0 ? peer->open : 1;
    peer->good = 0;
    if (peer->open == 0)
        wait_for_room(peer, now_ms, retry_ms);
}

static void note_late(struct peers *peers, struct peer *peer, uint64_t began_ms, uint64_t now_ms)
{
    peer->piece_ms = now_ms - began_ms; /* at least */
    if (began_ms < peers->late_ms || peers->late >= MOST_DOUBLINGS)
        return;
    peers->late++;
    peers->late_ms = now_ms;
}

void peers_end(struct peers *peers, size_t index, uint64_t began_ms, uint64_t now_ms,
               enum peer_result result, uint64_t retry_ms)
{
    struct peer *peer = &peers->peer[index];

    peer->open--;
    peer->probe_ms = number_smaller(peer->probe_ms, now_ms);
    peer->is_full = result == PEER_FULL;
    if (result == PEER_GOOD)
        note_good(peers, peer, began_ms, now_ms);
    else if (!is_refusal(result))
        peer->has_failed = true;
    if (result == PEER_LATE)
        note_late(peers, peer, began_ms, now_ms);
    if (peer->state != PEER_HAS)
        return;
    if (is_refusal(result))
        note_full(peer, now_ms, retry_ms);
    else if (result == PEER_USELESS || (result == PEER_WRONG && ++peer->wrong >= PEERS_WRONG))
        peer->state = PEER_BARRED;
    else if (result == PEER_LATE || result == PEER_DEAD || result == PEER_LACKS)
        leave(peer, now_ms, result);
    if (result == PEER_LACKS && peer->failed == 1)
        peer->until_ms = now_ms; /* its sums may only be unknown until it is asked */
}

void peers_drop(struct peers *peers, size_t peer)
{
    peers->peer[peer].open--;
}

void peers_bar(struct peers *peers, size_t peer)
{
    peers->peer[peer].state = PEER_BARRED;
}

/* ---- times ---------------------------------------------------------------------------------- */

uint64_t peers_deadline_ms(const struct peers *peers)
{
    return number_smaller(punctual_ms(peers) << peers->late, PEERS_MOST_DEADLINE_MS);
}

void peers_want(struct peers *peers, uint64_t now_ms)
{
    if (peers->wanted++ == 0)
        peers->alive_ms = now_ms;
}

void peers_unwant(struct peers *peers)
{
    peers->wanted--;
}

bool peers_are_gone(const struct peers *peers, uint64_t now_ms, uint64_t patience_ms)
{
    const size_t askable = count_askable(peers);
    bool is_hopeless = true, is_full = false, is_due = false;

    for (size_t i = 0; i < peers->count; i++) {
        if (peers->peer[i].open > 0)
            return false;
        is_hopeless &= peers->peer[i].state == PEER_BARRED;
        is_full |= peers->peer[i].is_full;
        is_due |= i < askable && !peers->peer[i].has_answered;
    }
    if (is_full)
        patience_ms *= PEERS_FULL_PATIENCE;
    if (is_due && patience_ms < PEERS_FIRST_ANSWER_MS)
        patience_ms = PEERS_FIRST_ANSWER_MS;
    return is_hopeless || now_ms - peers->alive_ms > patience_ms;
}
