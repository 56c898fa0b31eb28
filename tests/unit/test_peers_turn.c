/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when a pull begins beside others, on an artificial clock. */
#include "peers_begin.h"
#include "tap.h"

static bool may_begin(void)
{
    return peers_awaited(&peers, now, 100000) == PEERS_NONE;
}

TAP_TEST(a_store_that_keeps_its_writer_delays_the_begin_for_a_bounded_time)
{
    begin_with(4, 1, PEER_GOOD, PEER_LACKS);
    peers_look(&peers, now);
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now, PEER_WRITTEN, 0);
    answer_all(PEER_LACKS);
    for (unsigned i = 0; i < 10; i++) {
        check_int(peers_awaited(&peers, now, 10000), 1);
        now += 1000;
        peers_look(&peers, now);
        check_int(peers_next_ask(&peers, now, &wait_ms), 1);
        peers_answered(&peers, 1, now, now, PEER_WRITTEN, 0);
        answer_all(PEER_LACKS);
    }
    check_int(peers_awaited(&peers, now, 10000), PEERS_NONE);
    peers_look(&peers, now);
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now, PEER_WRITTEN, 0);
    answer_all(PEER_WRITTEN); /* others go by the rule */
    check_int(peers_awaited(&peers, now, 10000), 2);
}

TAP_TEST(first_answers_are_waited_for_once_where_a_peer_lacked_the_contents)
{
    now = 1000;
    peers_init(&peers, 3, now);
    for (size_t i = 0; i < 3; i++)
        peers_next_ask(&peers, now, &wait_ms);
    peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    check(!peers_are_looked_at(&peers, now, true));
    peers_answered(&peers, 1, now, now, PEER_LACKS, 0);
    check(peers_are_looked_at(&peers, now, true));
    check(!peers_are_looked_at(&peers, now, false));
}

TAP_TEST(a_look_leaves_a_full_peer_as_long_as_it_wants)
{
    begin_with(2, 1, PEER_GOOD, PEER_LACKS);
    peers_look(&peers, now);
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now, PEER_FULL, 30000);
    peers_look(&peers, now + 29999);
    check_int(peers_next_ask(&peers, now + 29999, &wait_ms), PEERS_NONE);
    check_int(peers_next_ask(&peers, now + 30000, &wait_ms), 1);
    peers_answered(&peers, 1, now, now + 30000, PEER_LACKS, 0);
    peers_look(&peers, now + 30001);
    check_int(peers_next_ask(&peers, now + 30001, &wait_ms), 1);
}

TAP_TEST(as_many_pulls_begin_as_peers_have_the_contents)
{
    begin_with(6, 1, PEER_GOOD, PEER_LACKS);
    check_int(peers_spread_ms(&peers), 5 * PEERS_SPREAD_MS);
    check(may_begin());
    peers_look(&peers, now);
    check(peers_are_looked_at(&peers, now, true));
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now, PEER_WRITTEN, 0);
    check(!may_begin());
    answer_all(PEER_LACKS);
    check(!peers_are_looked_at(&peers, now, true));
    peers_look(&peers, now);
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now, PEER_GOOD, 0);
    check(may_begin());
    answer_all(PEER_WRITTEN);
    check(!may_begin());
    now += 60000;
    for (size_t i = 2; i < 4; i++) {
        check_int(peers_next_ask(&peers, now, &wait_ms), i);
        peers_answered(&peers, i, now, now, PEER_GOOD, 0);
    }
    check(may_begin()); /* four have them, whatever the others do */
    check_int(peers_spread_ms(&peers), 0);
}

TAP_TEST(one_peer_or_peers_that_are_dead_or_drained_delay_no_begin)
{
    begin_with(1, 1, PEER_GOOD, PEER_GOOD);
    check_int(peers_spread_ms(&peers), 0);
    peers_look(&peers, now);
    check(!peers_are_looked_at(&peers, now, true));
    check(may_begin());
    begin_with(6, 1, PEER_GOOD, PEER_DEAD);
    check_int(peers_spread_ms(&peers), 0);
    check(may_begin());
    begin_with(6, 1, PEER_GOOD, PEER_SHUT);
    check(may_begin());
}
