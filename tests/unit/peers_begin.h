/* SPDX-License-Identifier: Apache-2.0 */
/*
 * peers_begin - several servers on an artificial clock, and their first answers
 *
 * For test_peers.c and test_peers_turn.c, each of which includes it once.
 */
#ifndef GMSFS_TESTS_UNIT_PEERS_BEGIN_H
#define GMSFS_TESTS_UNIT_PEERS_BEGIN_H

#include "source/peers.h"

static struct peers peers;
static uint64_t now, wait_ms;

/* One question of each peer that is due, with this answer. */
static void answer_all(enum peer_result result)
{
    size_t peer;

    while ((peer = peers_next_ask(&peers, now, &wait_ms)) != PEERS_NONE)
        peers_answered(&peers, peer, now, now, result, 0);
}

/* Asks: the first peers answer with `first`, in their order, all others with `rest`. */
static void begin_with(size_t count, size_t firsts, enum peer_result first, enum peer_result rest)
{
    now = 1000;
    peers_init(&peers, count, now);
    for (size_t i = 0; i < count; i++)
        peers_next_ask(&peers, now, &wait_ms);
    for (size_t i = 0; i < count; i++)
        peers_answered(&peers, i, now, now + 1, i < firsts ? first : rest, 0);
}

#endif
