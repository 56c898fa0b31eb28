/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the choice among several servers, on an artificial clock. */
#include "peers_begin.h"
#include "tap.h"

/* All peers have the contents, and answered in the order of their numbers. */
static void begin(size_t count)
{
    now = 1000;
    peers_init(&peers, count, now);
    for (size_t i = 0; i < count && i < PEERS_ASKED; i++)
        peers_next_ask(&peers, now, &wait_ms);
    for (size_t i = 0; i < count && i < PEERS_ASKED; i++)
        peers_answered(&peers, i, now, now + 1 + i, PEER_GOOD, 0);
}

static size_t next(size_t avoid)
{
    return peers_next(&peers, now, avoid, &wait_ms);
}

static void end(size_t peer, uint64_t took_ms, enum peer_result result)
{
    peers_end(&peers, peer, now - took_ms, now, result, 0);
}

TAP_TEST(sixteen_are_asked_at_once_and_others_while_none_has_it)
{
    peers_init(&peers, 20, 0);
    for (size_t i = 0; i < PEERS_ASKED; i++)
        check_int(peers_next_ask(&peers, 0, &wait_ms), i);
    check_int(peers_next_ask(&peers, 0, &wait_ms), PEERS_NONE);
    peers_answered(&peers, 3, 0, 10, PEER_LACKS, 0);
    check_int(peers_next_ask(&peers, 10, &wait_ms), 16);
    peers_answered(&peers, 4, 0, 10, PEER_GOOD, 0);
    peers_answered(&peers, 5, 0, 10, PEER_DEAD, 0);
    check_int(peers_next_ask(&peers, 10, &wait_ms), PEERS_NONE);
    check_int(wait_ms, 250);
    check_int(peers_next_ask(&peers, 260, &wait_ms), 3);
}

TAP_TEST(no_one_is_asked_again_while_four_have_it)
{
    begin(6);
    peers_end(&peers, next(PEERS_NONE), now, now, PEER_DEAD, 0);
    now += 60000;
    check_int(peers_next_ask(&peers, now, &wait_ms), PEERS_NONE);
    peers_end(&peers, next(PEERS_NONE), now, now, PEER_DEAD, 0);
    now += 60000;
    check(peers_next_ask(&peers, now, &wait_ms) == PEERS_NONE);
    peers_end(&peers, next(PEERS_NONE), now, now, PEER_DEAD, 0);
    now += 60000;
    check(peers_next_ask(&peers, now, &wait_ms) != PEERS_NONE);
}

TAP_TEST(the_four_that_answered_fastest_get_the_pieces)
{
    begin(10);
    for (size_t i = 0; i < 40; i++)
        check(next(PEERS_NONE) < PEERS_USED);
    for (size_t i = 0; i < PEERS_USED; i++)
        check_int(peers.peer[i].open, 10);
}

TAP_TEST(a_slower_peer_gets_fewer_pieces)
{
    begin(2);
    for (size_t i = 0; i < 8; i++)
        next(PEERS_NONE);
    end(0, 100, PEER_GOOD);
    end(1, 700, PEER_GOOD);
    for (size_t i = 0; i < 10; i++)
        next(PEERS_NONE);
    check(peers.peer[0].open >= 12);
    check(peers.peer[1].open <= 4);
}

TAP_TEST(a_dead_peer_is_left_and_a_spare_steps_in)
{
    begin(5);
    end(next(PEERS_NONE), 5, PEER_DEAD);
    check(peers.peer[0].state == PEER_NEW);
    for (size_t i = 0; i < 40; i++)
        check(next(PEERS_NONE) != 0);
    check(peers.peer[4].open > 0);
}

TAP_TEST(pauses_grow_and_have_a_bound)
{
    uint64_t before = 0;

    begin(1);
    for (unsigned i = 0; i < 20; i++) {
        end(next(PEERS_NONE), 0, PEER_DEAD);
        check_int(peers_next_ask(&peers, now, &wait_ms), PEERS_NONE);
        check(wait_ms >= before && wait_ms <= PEERS_MOST_PAUSE_MS);
        before = wait_ms;
        now += wait_ms;
        check_int(peers_next_ask(&peers, now, &wait_ms), 0);
        peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    }
    check_int(before, PEERS_MOST_PAUSE_MS);
}

TAP_TEST(an_answer_that_no_later_one_changes_bars_a_peer_for_good)
{
    peers_init(&peers, 2, 1000);
    peers_next_ask(&peers, 1000, &wait_ms);
    peers_answered(&peers, 0, 1000, 1010, PEER_USELESS, 0);
    check_int(peers.peer[0].state, PEER_BARRED);
    check(!peers_are_gone(&peers, 1010, 100));
    peers_next_ask(&peers, 1010, &wait_ms);
    peers_answered(&peers, 1, 1010, 1020, PEER_GOOD, 0);
    now = 1020;
    check_int(next(PEERS_NONE), 1);
    check(!peers_are_gone(&peers, now, 100));
    end(1, 10, PEER_USELESS);
    check(peers_are_gone(&peers, now, 100));
}

TAP_TEST(a_wrong_piece_is_asked_elsewhere_and_two_in_a_row_bar_the_peer)
{
    begin(2);
    check_int(next(1), 0);
    end(0, 10, PEER_WRONG);
    check(peers.peer[0].state == PEER_HAS);
    check_int(next(0), 1);
    check_int(next(0), 1); /* however much it has to do */
    check_int(next(1), 0);
    end(0, 10, PEER_GOOD);
    check_int(next(1), 0);
    end(0, 10, PEER_WRONG);
    check(peers.peer[0].state == PEER_HAS); /* not in a row */
    check_int(next(1), 0);
    end(0, 10, PEER_WRONG);
    check(peers.peer[0].state == PEER_BARRED);
    check_int(next(1), 1);
    now += 1000000;
    peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    check(peers.peer[0].state == PEER_BARRED);
}

TAP_TEST(the_only_peer_is_asked_again_after_a_wrong_piece)
{
    begin(1);
    end(next(PEERS_NONE), 10, PEER_WRONG);
    check_int(next(0), 0);
    end(0, 10, PEER_WRONG);
    check_int(next(0), PEERS_NONE);
    check(peers_are_gone(&peers, now, 1000000));
}

TAP_TEST(a_full_peer_gets_no_more_pieces_than_it_took)
{
    begin(1);
    for (size_t i = 0; i < 3; i++)
        next(PEERS_NONE);
    end(0, 1, PEER_FULL);
    check_int(peers.peer[0].most, 2);
    check_int(next(PEERS_NONE), PEERS_NONE);
    for (size_t i = 0; i < 16; i++) {
        end(0, 5, PEER_GOOD);
        check_int(next(PEERS_NONE), 0);
    }
    check_int(next(PEERS_NONE), 0); /* one more, after so many */
    check_int(next(PEERS_NONE), PEERS_NONE);
}

TAP_TEST(a_full_peer_that_took_none_is_left_as_long_as_it_wants)
{
    begin(1);
    next(PEERS_NONE);
    peers_end(&peers, 0, now, now, PEER_FULL, 7000);
    check_int(next(PEERS_NONE), PEERS_NONE);
    check_int(wait_ms, 7000);
    check(!peers_are_gone(&peers, now + 7000, 7000));
    now += 7000;
    check_int(next(PEERS_NONE), 0);
    peers_end(&peers, 0, now, now, PEER_FULL, 0);
    check_int(next(PEERS_NONE), PEERS_NONE);
    check_int(wait_ms, 2000); /* the second time in a row */
    now += 2000;
    check_int(next(PEERS_NONE), 0);
    peers_end(&peers, 0, now, now, PEER_FULL, 3600000);
    check_int(next(PEERS_NONE), PEERS_NONE);
    check_int(wait_ms, 30000);
}

TAP_TEST(refusals_of_questions_do_not_lengthen_those_of_pieces)
{
    begin(1);
    peers.peer[0].state = PEER_ASKED;
    peers_answered(&peers, 0, now, now, PEER_FULL, 0);
    peers_answered(&peers, 0, now, now, PEER_FULL, 0);
    peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    check_int(next(PEERS_NONE), 0);
    end(0, 0, PEER_FULL);
    check_int(next(PEERS_NONE), PEERS_NONE);
    check_int(wait_ms, 1000);
}

TAP_TEST(a_peer_without_the_contents_is_asked_again_at_once_the_first_time)
{
    begin(1);
    end(next(PEERS_NONE), 1, PEER_LACKS);
    check_int(peers_next_ask(&peers, now, &wait_ms), 0);
    peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    end(next(PEERS_NONE), 1, PEER_LACKS);
    check_int(peers_next_ask(&peers, now, &wait_ms), PEERS_NONE);
}

TAP_TEST(a_peer_that_lacks_the_contents_is_asked_every_two_seconds)
{
    begin(1);
    now = 100000;
    peers.peer[0].state = PEER_NEW;
    for (unsigned i = 0; i < 20; i++) {
        check_int(peers_next_ask(&peers, now, &wait_ms), 0);
        peers_answered(&peers, 0, now, now, PEER_LACKS, 0);
        check_int(peers_next_ask(&peers, now, &wait_ms), PEERS_NONE);
        now += wait_ms;
    }
    check_int(wait_ms, PEERS_MOST_LACK_MS);
}

TAP_TEST(a_peer_that_got_the_contents_since_sends_before_one_that_had_them)
{
    begin_with(3, 1, PEER_GOOD, PEER_LACKS);
    check_int(next(PEERS_NONE), 0);
    now += 60000;
    check_int(peers_next_ask(&peers, now, &wait_ms), 1);
    peers_answered(&peers, 1, now, now + 500, PEER_GOOD, 0);
    check_int(next(PEERS_NONE), 1);
    check_int(next(PEERS_NONE), PEERS_NONE); /* its first piece is waited for */
    check_int(wait_ms, PEERS_PROBE_MS);
    end(1, 10, PEER_GOOD);
    for (size_t i = 0; i < 8; i++)
        check_int(next(PEERS_NONE), 1);
    check_int(next(1), 0); /* it failed with this piece */
    end(1, 10, PEER_FULL);
    check_int(next(PEERS_NONE), 0); /* it takes no more */
}

TAP_TEST(new_peers_that_send_no_piece_cost_a_thread_each_for_one_deadline)
{
    begin_with(3, 1, PEER_GOOD, PEER_LACKS);
    now += 60000;
    answer_all(PEER_GOOD);
    check_int(next(PEERS_NONE), 1);
    check_int(next(PEERS_NONE), 2);
    check_int(next(PEERS_NONE), PEERS_NONE);
    now += PEERS_PROBE_MS;
    for (size_t i = 0; i < 6; i++)
        check_int(next(PEERS_NONE), 0);
    end(0, 500, PEER_GOOD); /* slower than a piece that has not come is expected */
    check_int(next(PEERS_NONE), 0);
    now += PEERS_FIRST_DEADLINE_MS;
    end(1, PEERS_FIRST_DEADLINE_MS, PEER_LATE);
    end(2, 100, PEER_DEAD);
    now += 60000;
    answer_all(PEER_GOOD); /* they have the contents again, but no preference */
    check_int(next(1), 2);
    check_int(next(2), 0);
    end(2, 10, PEER_GOOD);
    for (size_t i = 0; i < 4; i++)
        check_int(next(PEERS_NONE), 2);
}

TAP_TEST(a_newer_peer_that_is_much_slower_is_one_of_all)
{
    begin_with(2, 1, PEER_GOOD, PEER_LACKS);
    next(PEERS_NONE);
    end(0, 100, PEER_GOOD);
    now += 60000;
    answer_all(PEER_GOOD);
    check_int(next(PEERS_NONE), 1);
    end(1, 100 * PEERS_SLOW, PEER_GOOD);
    check_int(next(PEERS_NONE), 1);
    end(1, 100 * PEERS_SLOW + 100, PEER_GOOD);
    check_int(next(PEERS_NONE), 0);
}

TAP_TEST(the_deadline_follows_the_median)
{
    begin(1);
    check_int(peers_deadline_ms(&peers), PEERS_FIRST_DEADLINE_MS);
    next(PEERS_NONE);
    end(0, 100, PEER_GOOD);
    check_int(peers_deadline_ms(&peers), PEERS_LEAST_DEADLINE_MS);
    now = 100000;
    for (size_t i = 0; i < 2 * PEERS_TIMES; i++) {
        next(PEERS_NONE);
        end(0, i % 3 == 0 ? 50000 : 1000, PEER_GOOD);
    }
    check_int(peers_deadline_ms(&peers), 8 * 1000);
}

TAP_TEST(pieces_that_come_just_in_time_do_not_lengthen_the_deadline_for_ever)
{
    begin(1);
    for (size_t i = 0; i < 20; i++) {
        next(PEERS_NONE);
        now += peers_deadline_ms(&peers);
        end(0, peers_deadline_ms(&peers), PEER_GOOD);
    }
    check_int(peers_deadline_ms(&peers), PEERS_MEDIAN_DEADLINE_MS);
    /* A slow link, which needs more: once late, not after each good piece again. */
    next(PEERS_NONE);
    now += PEERS_MEDIAN_DEADLINE_MS;
    end(0, PEERS_MEDIAN_DEADLINE_MS, PEER_LATE);
    for (size_t i = 0; i < 3; i++) {
        check_int(peers_deadline_ms(&peers), 2 * PEERS_MEDIAN_DEADLINE_MS);
        peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
        next(PEERS_NONE);
        now += 100000;
        end(0, 100000, PEER_GOOD);
    }
    next(PEERS_NONE);
    end(0, 30000, PEER_GOOD);
    check_int(peers_deadline_ms(&peers), PEERS_MEDIAN_DEADLINE_MS);
}

TAP_TEST(the_deadline_doubles_once_for_pieces_that_were_late_together)
{
    begin(1);
    for (size_t i = 0; i < 8; i++)
        next(PEERS_NONE);
    now += PEERS_FIRST_DEADLINE_MS;
    for (size_t i = 0; i < 8; i++)
        end(0, PEERS_FIRST_DEADLINE_MS, PEER_LATE);
    check_int(peers_deadline_ms(&peers), 2 * PEERS_FIRST_DEADLINE_MS);
    for (size_t i = 0; i < 20; i++) {
        peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
        next(PEERS_NONE);
        end(0, 0, PEER_LATE);
        now++;
    }
    check_int(peers_deadline_ms(&peers), 32 * PEERS_FIRST_DEADLINE_MS);
    peers_answered(&peers, 0, now, now, PEER_GOOD, 0);
    next(PEERS_NONE);
    end(0, 100, PEER_GOOD);
    check_int(peers_deadline_ms(&peers), PEERS_LEAST_DEADLINE_MS);
}

TAP_TEST(peers_are_gone_after_the_patience_without_a_sign_of_life)
{
    begin(2);
    next(PEERS_NONE);
    check(!peers_are_gone(&peers, now + 1000000, 10)); /* a piece is on its way */
    end(0, 0, PEER_DEAD);
    check(!peers_are_gone(&peers, now + 10, 10));
    check(peers_are_gone(&peers, now + 11, 10));
    next(PEERS_NONE);
    now += 11;
    end(1, 0, PEER_GOOD);
    check(!peers_are_gone(&peers, now + 10, 10));
}

/* Refuses all pieces for so many seconds. */
static void refuse_for(uint64_t seconds, enum peer_result result)
{
    for (uint64_t until = now + 1000 * seconds; now < until; now += 1000)
        if (next(PEERS_NONE) == 0)
            end(0, 0, result);
}

TAP_TEST(peers_that_refuse_for_ever_are_gone)
{
    begin(1);
    refuse_for(29, PEER_SHUT);
    check(!peers_are_gone(&peers, now, 30000));
    refuse_for(3, PEER_SHUT);
    check(peers_are_gone(&peers, now, 30000));
    begin(1);
    refuse_for(32, PEER_FULL);
    check(!peers_are_gone(&peers, now, 30000)); /* it sends to others */
    refuse_for(270, PEER_FULL);
    check(peers_are_gone(&peers, now, 30000));
    begin(1);
    refuse_for(32, PEER_FULL);
    peers.peer[0].state = PEER_ASKED;
    peers_answered(&peers, 0, now, now, PEER_SHUT, 0);
    check(peers_are_gone(&peers, now, 30000)); /* full no longer */
}

TAP_TEST(patience_begins_when_bytes_are_wanted)
{
    begin(1);
    now += 300000; /* for the lock of the target */
    peers_want(&peers, now);
    next(PEERS_NONE);
    end(0, 0, PEER_DEAD);
    check(!peers_are_gone(&peers, now + 60000, 60000));
    peers_want(&peers, now + 30000); /* another thread */
    check(peers_are_gone(&peers, now + 60001, 60000));
    peers_unwant(&peers);
    peers_unwant(&peers);
    now += 100000;
    peers_want(&peers, now);
    check(!peers_are_gone(&peers, now + 60000, 60000));
    check(peers_are_gone(&peers, now + 60001, 60000));
}

TAP_TEST(no_patience_still_waits_for_the_first_answer_of_each_peer)
{
    peers_init(&peers, 2, 0);
    check(!peers_are_gone(&peers, 5, 0)); /* no question was asked yet */
    peers_next_ask(&peers, 5, &wait_ms);
    peers_next_ask(&peers, 5, &wait_ms);
    peers_answered(&peers, 0, 5, 10, PEER_LACKS, 0);
    check(!peers_are_gone(&peers, 10, 0));
    check(!peers_are_gone(&peers, PEERS_FIRST_ANSWER_MS, 0));
    check(peers_are_gone(&peers, PEERS_FIRST_ANSWER_MS + 1, 0));
    peers_answered(&peers, 1, 5, 20, PEER_DEAD, 0);
    check(peers_are_gone(&peers, 20, 0));
    peers_next_ask(&peers, 1000, &wait_ms);
    check(peers_are_gone(&peers, 1000, 0)); /* later questions do not count */
}

TAP_TEST(peers_that_are_not_asked_are_not_waited_for)
{
    begin(20);
    for (size_t i = 0; i < PEERS_USED; i++)
        peers.peer[i].until_ms = 1000000;
    check(peers_are_gone(&peers, now + 1, 0));
}

/* ---- a pull of many pieces ------------------------------------------------------------------ */

#define THREADS 8
#define PIECES  400

struct world {
    uint64_t takes_ms[8];       /* duration of a piece */
    enum peer_result result[8]; /* of each piece */
    uint64_t from_ms[8];        /* until then all is well */
};

static struct {
    size_t peer, avoid;
    uint64_t began, ends;
    enum peer_result result;
} doing[THREADS];

/* Answers questions: with what a piece would end, or that it has the contents. */
static void answer(const struct world *world)
{
    size_t peer = peers_next_ask(&peers, now, &wait_ms);
    bool is_dead = peer != PEERS_NONE && now >= world->from_ms[peer] &&
                   (world->result[peer] == PEER_DEAD || world->result[peer] == PEER_LACKS);

    if (peer != PEERS_NONE)
        peers_answered(&peers, peer, now, now, is_dead ? world->result[peer] : PEER_GOOD, 0);
}

static void start(const struct world *world, size_t at)
{
    size_t peer = next(doing[at].avoid);
    uint64_t takes, deadline = peers_deadline_ms(&peers);

    doing[at].peer = peer;
    if (peer == PEERS_NONE)
        return;
    takes = world->takes_ms[peer];
    doing[at].began = now;
    doing[at].result = now >= world->from_ms[peer] ? world->result[peer] : PEER_GOOD;
    if (takes > deadline)
        doing[at].result = PEER_LATE;
    doing[at].ends = now + (takes > deadline ? deadline : takes);
}

/* Returns the milliseconds until all pieces have come; 0: they did not within an hour. */
static uint64_t run(const struct world *world, size_t count)
{
    size_t come = 0;
    uint64_t begun;

    begin(count);
    begun = now;
    for (size_t i = 0; i < THREADS; i++)
        doing[i].peer = doing[i].avoid = PEERS_NONE;
    for (; now - begun < 3600000; now++) {
        answer(world);
        for (size_t i = 0; i < THREADS; i++) {
            if (doing[i].peer != PEERS_NONE && doing[i].ends <= now) {
                peers_end(&peers, doing[i].peer, doing[i].began, now, doing[i].result, 0);
                come += doing[i].result == PEER_GOOD;
                doing[i].avoid = doing[i].result == PEER_GOOD ? PEERS_NONE : doing[i].peer;
                doing[i].peer = PEERS_NONE;
            }
            if (doing[i].peer == PEERS_NONE)
                start(world, i);
        }
        if (come >= PIECES)
            return now - begun + 1;
    }
    return 0;
}

TAP_TEST(any_one_peer_may_fail_in_any_way)
{
    static const enum peer_result results[] = {PEER_FULL,  PEER_LATE,  PEER_DEAD,
                                               PEER_WRONG, PEER_LACKS, PEER_USELESS};
    const uint64_t good_ms = run(&(struct world){.takes_ms = {40, 40, 40, 40}}, 4);

    check(good_ms > 0);
    for (size_t bad = 0; bad < 4; bad++)
        for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
            struct world world = {.takes_ms = {40, 40, 40, 40}};
            uint64_t took_ms;

            world.result[bad] = results[i];
            world.from_ms[bad] = 1500;
            took_ms = run(&world, 4);
            check(took_ms > 0 && took_ms < 2 * good_ms + 500);
        }
}

TAP_TEST(slow_peers_cost_seconds_and_a_slow_link_none_forever)
{
    uint64_t took_ms = run(&(struct world){.takes_ms = {600000, 50, 600000, 50}}, 4);

    check(took_ms > 0 && took_ms < 60000);
    took_ms = run(&(struct world){.takes_ms = {30000}}, 1); /* more than the first deadline */
    check(took_ms > 0 && took_ms < 30000 * (PIECES / THREADS + 4));
}
