/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/loop.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOUD_COUNT 300u
#define QUIET_AT   LOUD_COUNT
#define ALL        (LOUD_COUNT + 1)

static struct loop *loop;
static struct event_watch watches[ALL];
static unsigned served[ALL], served_count, quiet_was;
static bool takes_long;

static bool on_tick(void *context, uint64_t now_ms)
{
    (void)context;
    (void)now_ms;
    return false;
}

/* Counts the call; the descriptor stays ready. */
static void on_ready(struct event_watch *watch, uint32_t events)
{
    size_t which = (size_t)(watch - watches);

    (void)events;
    served[which]++;
    served_count++;
    if (which == QUIET_AT)
        quiet_was = served_count;
    if (takes_long)
        usleep(1000);
}

static void watch_for(unsigned count, uint32_t events)
{
    const struct loop_calls calls = {.on_tick = on_tick};

    require(loop_new(&calls, &loop) == 0);
    memset(served, 0, sizeof served);
    served_count = quiet_was = 0;
    for (unsigned i = 0; i < count; i++) {
        watches[i] = (struct event_watch){.fd = eventfd(1, EFD_CLOEXEC), .ready = on_ready};
        watches[i].whose = event_of_user(i == QUIET_AT ? 1000 : 0);
        require(watches[i].fd >= 0 && loop_watch(loop, &watches[i], events) == 0);
    }
}

static void watch_all(unsigned count)
{
    watch_for(count, EVENT_READ);
}

static void end(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        loop_unwatch(loop, &watches[i]);
        close(watches[i].fd);
    }
    loop_free(loop);
}

TAP_TEST(with_many_ready_sockets_of_a_user_one_of_another_user_is_served_second)
{
    watch_all(ALL);
    require(loop_turn(loop, 0) == 0);
    check(quiet_was >= 1 && quiet_was <= 2);
    end(ALL);
}

static void check_turns_go_on(uint32_t events)
{
    watch_for(LOUD_COUNT, events);
    takes_long = true;
    require(loop_turn(loop, 0) == 0);
    takes_long = false;
    check(served_count >= 1 && served_count <= 2);
    for (unsigned i = 0; i < LOUD_COUNT; i++)
        require(loop_turn(loop, 0) == 0);
    for (unsigned i = 0; i < LOUD_COUNT; i++)
        if (!check(served[i] > 0))
            break;
    end(LOUD_COUNT);
}

TAP_TEST(a_turn_has_an_end_and_the_others_come_in_the_next_ones)
{
    check_turns_go_on(EVENT_READ);
}

TAP_TEST(an_edge_that_a_turn_did_not_come_to_is_told_in_a_later_one)
{
    check_turns_go_on(EVENT_WRITE | EVENT_TAKEN);
}

static void stop_reading(struct event_watch *watch, uint32_t events)
{
    (void)watch;
    (void)events;
    require(loop_watch(loop, &watches[1], 0) == 0);
}

TAP_TEST(a_watch_for_nothing_since_this_turn_gets_no_older_event)
{
    watch_all(2);
    watches[0].ready = stop_reading;
    watches[0].whose = 0;
    require(loop_turn(loop, 0) == 0);
    check_int(served[1], 0);
    require(loop_watch(loop, &watches[1], EVENT_READ) == 0);
    watches[0].ready = on_ready;
    require(loop_turn(loop, 0) == 0);
    check_int(served[1], 1);
    end(2);
}

TAP_TEST(watches_without_a_user_are_served_in_each_turn)
{
    watch_all(ALL);
    watches[QUIET_AT].whose = 0;
    takes_long = true;
    for (unsigned i = 1; i <= 5; i++) {
        require(loop_turn(loop, 0) == 0);
        check_int(served[QUIET_AT], i);
    }
    takes_long = false;
    end(ALL);
}

#define USERS        64u
#define EACH         4u
#define FIRST_UID    2000u
#define OF_USER(i)   ((i) / EACH)
#define ALL_OF_USERS (USERS * EACH)

TAP_TEST(each_of_many_users_with_events_is_served_in_each_turn)
{
    unsigned of_user[USERS] = {0};

    watch_all(ALL_OF_USERS);
    for (unsigned i = 0; i < ALL_OF_USERS; i++)
        watches[i].whose = event_of_user(FIRST_UID + OF_USER(i));
    takes_long = true; /* a turn ends with one event of each */
    require(loop_turn(loop, 0) == 0);
    takes_long = false;
    for (unsigned i = 0; i < ALL_OF_USERS; i++)
        of_user[OF_USER(i)] += served[i];
    for (unsigned i = 0; i < USERS; i++)
        if (!check_int(of_user[i], 1))
            break;
    end(ALL_OF_USERS);
}
