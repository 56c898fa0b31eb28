/* SPDX-License-Identifier: Apache-2.0 */
/* Many ALLOCs that wait for memory: what comes free goes to the oldest that it is enough for. */
#include "evict_fixture.h"

#define UNITS   (FIXTURE_BYTES / FIXTURE_GRAIN)
#define WAITERS 65u
#define MOST    150u

static struct client waiters[MOST], large, small;

static void write_store(struct client *client, const char *name, uint64_t pid)
{
    make_store(name);
    open_ctl_of(client, name, pid);
    acquire(client, LOCK_WISH_RW, 0);
    require(client->answers == 1 && client->error == 0);
}

static void ask(struct client *client, unsigned units)
{
    uint64_t ctl = client->ctl;

    alloc(client, (uint64_t)units * FIXTURE_GRAIN, true);
    require(client->ctl == ctl);
}

/* The device is full of two writers' memory: of 13 units, and of 3. Then another writer asks for
 * the whole device, in vain, but the first time and the last time for these units. */
static void start_waiting(unsigned first_units, unsigned last_units)
{
    struct client writer;

    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    write_store(&large, "a", 1);
    write_store(&small, "b", 2);
    ask(&large, UNITS - 3);
    ask(&small, 3);
    write_store(&writer, "c", 3);
    for (unsigned i = 0; i < WAITERS; i++) {
        waiters[i] = writer;
        ask(&waiters[i], i == 0 ? first_units : i == WAITERS - 1 ? last_units : UNITS);
        require(waiters[i].answers == 0);
    }
}

static void leave(struct client *client)
{
    close_file(client->ctl);
    settle();
}

/* Of all waiters only this one has memory. */
static void check_only(const struct client *waiter)
{
    check_answer(waiter, 0);
    for (unsigned i = 0; i < WAITERS; i++)
        check_int(waiters[i].answers, &waiters[i] == waiter);
}

TAP_TEST(memory_that_comes_free_goes_to_the_oldest_waiter)
{
    start_waiting(UNITS - 3, UNITS - 3);
    leave(&large);
    check_only(&waiters[0]);
    end();
}

TAP_TEST(memory_that_is_too_little_for_older_waiters_goes_to_one_that_it_is_enough_for)
{
    start_waiting(UNITS, UNITS - 3);
    leave(&large);
    check_only(&waiters[WAITERS - 1]);
    end();
}

TAP_TEST(memory_that_comes_after_other_memory_goes_to_the_oldest_waiter)
{
    start_waiting(UNITS - 2, UNITS - 2);
    leave(&large);
    check_int(waiters[0].answers, 0);
    leave(&small);
    check_only(&waiters[0]);
    end();
}

TAP_TEST(a_newcomer_does_not_take_memory_that_an_older_waiter_waits_for)
{
    struct client late;

    start_waiting(UNITS, UNITS - 3);
    write_store(&late, "d", 9);
    leave(&large);
    ask(&late, UNITS - 3);
    check_int(late.answers, 0);
    check_only(&waiters[WAITERS - 1]);
    end();
}

TAP_TEST(waiters_keep_their_order_when_the_last_and_the_first_of_them_leave)
{
    start_waiting(UNITS, UNITS);
    service_interrupt(service, &waiters[WAITERS - 1].request);
    service_interrupt(service, &waiters[0].request);
    leave(&large);
    check_answer(&waiters[WAITERS - 1], -EINTR);
    check_answer(&waiters[0], -EINTR);
    leave(&small);
    check_answer(&waiters[1], 0);
    for (unsigned i = 2; i < WAITERS - 1; i++)
        check_int(waiters[i].answers, 0);
    end();
}

static unsigned tries;

/* Another program has the device's memory. The last error ends tries without end. */
static int refuse(void)
{
    return ++tries > 4 * MOST ? -EIO : -ENOMEM;
}

static void pass_time(void)
{
    fixture_now_ms += 200;
    run_timer();
    settle();
}

/* The account grants the memory to as many at once as there are units. */
static void check_tries(unsigned count)
{
    struct client writer;

    fixture_host_bytes = FIXTURE_BYTES;
    service_start();
    write_store(&large, "a", 1);
    ask(&large, UNITS);
    write_store(&writer, "c", 3);
    for (unsigned i = 0; i < count; i++) {
        waiters[i] = writer;
        ask(&waiters[i], 1);
        require(waiters[i].answers == 0);
    }
    fixture_on_admit = refuse;
    tries = 0;
    leave(&large);
    check(tries > 0 && tries <= count);
    unsigned former = tries;
    pass_time();
    check(tries > former && tries <= former + count);
    fixture_on_admit = NULL;
    pass_time();
    check_answer(&waiters[0], 0);
    end();
}

TAP_TEST(waiters_that_the_device_refuses_are_not_tried_again_before_some_time_has_passed)
{
    check_tries(WAITERS);
    check_tries(MOST);
}
