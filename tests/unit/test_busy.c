/* SPDX-License-Identifier: Apache-2.0 */
/* Waits of helpers for a busy loop, with a clock of the test's own. */
#include "tap.h"

#include "base/clock.h"

#include <pthread.h>

static unsigned waits, end_after;
static uint64_t now_ms = 7;

static int count_wait(unsigned us);

#define usleep         count_wait
#define clock_now_ms() now_ms
#include "base/busy.c"
#undef usleep

static int count_wait(unsigned us)
{
    check(us > 0);
    now_ms++;
    if (++waits == end_after)
        busy_end();
    return 0;
}

/* Counts the waits of one call beside a loop that is busy until `ends_after` of them. */
static unsigned count_waits(unsigned ends_after)
{
    waits = 0;
    end_after = ends_after;
    busy_begin();
    busy_let_pass();
    busy_end();
    return waits;
}

TAP_TEST(a_helper_that_gives_way_waits_until_the_loop_is_not_busy)
{
    busy_give_way_for(1000);
    check_int(count_waits(3), 3);
    waits = 0;
    busy_let_pass();
    check_int(waits, 0);
}

TAP_TEST(one_call_waits_for_a_loop_that_is_always_busy_only_so_often)
{
    busy_give_way_for(1000);
    check_int(count_waits(0), WAITS_MAX);
    check_int(count_waits(0), WAITS_MAX);
}

TAP_TEST(a_helper_gives_way_for_its_time_and_no_longer)
{
    busy_give_way_for(5);
    check_int(count_waits(0), 5);
    check_int(count_waits(0), 0);
}

static void *let_pass(void *unused)
{
    busy_let_pass();
    return unused;
}

TAP_TEST(a_thread_that_does_not_give_way_does_not_wait_whatever_others_do)
{
    pthread_t other;

    busy_give_way_for(1000);
    busy_begin();
    waits = 0;
    require(pthread_create(&other, NULL, let_pass, NULL) == 0);
    pthread_join(other, NULL);
    check_int(waits, 0);
    busy_give_way_for(0);
    check_int(count_waits(0), 0);
}
