/* SPDX-License-Identifier: Apache-2.0 */
/* Tests memory that one thread asks for while others fill it; any file takes its place here. */
#include "mover/supply.h"

#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MANY  200
#define AHEAD 3

struct asked {
    struct supply *supply;
    size_t items[MANY], count, most_at_once;
    size_t enough; /* so many arrive, and no more */
    atomic_int open, most_open;
};

struct filler {
    struct supply *supply;
    struct asked *asked;
    size_t enough; /* so many are filled, and no more */
    size_t filled;
    int last; /* result of supply_take */
};

static int get(void *context, size_t first, size_t count)
{
    struct asked *asked = context;
    int open_now;

    if (count > asked->most_at_once)
        asked->most_at_once = count;
    if (asked->count + count > asked->enough)
        return -ENOSPC;
    open_now = atomic_fetch_add(&asked->open, (int)count) + (int)count;
    if (open_now > atomic_load(&asked->most_open))
        atomic_store(&asked->most_open, open_now);
    for (size_t i = 0; i < count; i++) {
        asked->items[asked->count++] = first + i;
        supply_put(asked->supply, first + i, open("/dev/null", O_RDWR | O_CLOEXEC));
    }
    return 0;
}

static void *fill(void *context)
{
    struct filler *filler = context;
    struct supply *supply = filler->supply;

    while (filler->filled < supply->count && filler->filled < filler->enough) {
        size_t item = filler->filled;
        bool writes;

        filler->last = supply_take(supply, item, &writes);
        if (filler->last < 0)
            break;
        atomic_fetch_sub(&filler->asked->open, 1);
        supply_give_back(supply, item, writes);
        filler->filled++;
    }
    supply_stop(supply);
    return NULL;
}

static int count_descriptors(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Runs one filling thread beside the test's thread, which supplies. Checks that nothing stays
 * open. */
static void go(struct supply *supply, struct asked *asked, struct filler *filler)
{
    int before = count_descriptors();
    pthread_t thread;

    supply->get = get;
    if (supply->at_once == 0)
        supply->at_once = 1;
    supply->context = asked;
    asked->supply = filler->supply = supply;
    filler->asked = asked;
    require(supply_begin(supply) == 0);
    for (size_t i = 0; i < supply->count; i++)
        supply_add_part(supply, i);
    require(pthread_create(&thread, NULL, fill, filler) == 0);
    supply_run(supply);
    pthread_join(thread, NULL);
    supply_end(supply);
    check_int(count_descriptors(), before);
}

TAP_TEST(all_come_in_order_and_only_some_are_open_at_a_time)
{
    struct asked asked = {.enough = MANY};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = MANY, .most = AHEAD};

    go(&supply, &asked, &filler);
    check_int(asked.count, MANY);
    check_int(filler.filled, MANY);
    check_int(supply.refusal, 0);
    for (size_t i = 0; i < asked.count; i++)
        check_int(asked.items[i], i);
    check(atomic_load(&asked.most_open) <= AHEAD);
}

static bool is_same_five(const void *context, size_t item, size_t other)
{
    (void)context;
    return item / 5 == other / 5;
}

TAP_TEST(items_that_are_not_alike_are_asked_for_apart)
{
    struct asked asked = {.enough = 13};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = 20, .most = MANY, .at_once = 8, .alike = is_same_five};

    go(&supply, &asked, &filler);
    check_int(asked.most_at_once, 5);
    check_int(filler.filled, 10);
    check_int(supply.refused, 10);
    check_int(supply.refused_count, 5);
}

TAP_TEST(items_that_arrived_are_filled_even_if_the_next_is_refused)
{
    struct asked asked = {.enough = 2};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = 5, .most = MANY};

    go(&supply, &asked, &filler);
    check_int(filler.filled, 2);
    check_int(filler.last, -ECANCELED);
    check_int(supply.refusal, -ENOSPC);
    check_int(supply.refused, 2);
}

TAP_TEST(a_stopped_filling_ends_the_supply)
{
    struct asked asked = {.enough = MANY};
    struct filler filler = {.enough = 5};
    struct supply supply = {.count = MANY, .most = AHEAD};

    go(&supply, &asked, &filler);
    check_int(supply.refusal, 0);
    check(asked.count >= 5 && asked.count <= 5 + AHEAD);
}

TAP_TEST(several_are_asked_for_at_once_as_far_as_there_is_room)
{
    struct asked asked = {.enough = MANY};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = MANY, .most = 10, .at_once = 4};

    go(&supply, &asked, &filler);
    check_int(filler.filled, MANY);
    check_int(asked.most_at_once, 4);
    for (size_t i = 0; i < asked.count; i++)
        check_int(asked.items[i], i);
    check(atomic_load(&asked.most_open) <= 10);
}

TAP_TEST(refused_items_leave_the_earlier_ones)
{
    struct asked asked = {.enough = 10};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = MANY, .most = MANY, .at_once = 4};

    go(&supply, &asked, &filler);
    check_int(filler.filled, 8);
    check_int(supply.refusal, -ENOSPC);
    check_int(supply.refused, 8);
}

static int get_one(void *context, size_t first, size_t count)
{
    (void)count;
    supply_put(context, first, open("/dev/null", O_RDWR | O_CLOEXEC));
    return 0;
}

TAP_TEST(an_item_of_several_parts_is_open_until_the_last_one_is_filled)
{
    struct supply supply = {.count = 1, .most = 1, .at_once = 1, .get = get_one};
    bool writes;
    int fd;

    supply.context = &supply;
    require(supply_begin(&supply) == 0);
    for (int i = 0; i < 3; i++)
        supply_add_part(&supply, 0);
    supply_run(&supply);
    fd = supply_take(&supply, 0, &writes);
    check(fd >= 0 && writes);
    for (int i = 0; i < 3; i++) {
        check_int(supply_take(&supply, 0, &writes), fd);
        check(fcntl(fd, F_GETFD) >= 0);
        check_int(supply.filled, 0);
        supply_give_back(&supply, 0, writes);
    }
    check_int(supply.filled, 1);
    check_int(fcntl(fd, F_GETFD), -1);
    supply_end(&supply);
}

TAP_TEST(one_thread_at_a_time_writes_to_an_item)
{
    struct supply supply = {.count = 2, .most = 2, .at_once = 1, .get = get_one};
    bool writes;

    supply.context = &supply;
    require(supply_begin(&supply) == 0);
    for (int i = 0; i < 6; i++)
        supply_add_part(&supply, i == 0);
    supply_run(&supply);
    for (int turn = 0; turn < 2; turn++) {
        check(supply_take(&supply, 0, &writes) >= 0 && writes);
        check(supply_take(&supply, 0, &writes) >= 0 && !writes);
        supply_give_back(&supply, 0, false);
        check(supply_take(&supply, 0, &writes) >= 0 && !writes);
        supply_give_back(&supply, 0, turn == 0);
    }
    check(supply_take(&supply, 1, &writes) >= 0 && writes);
    supply_end(&supply);
}

TAP_TEST(an_item_without_parts_is_closed_at_once_and_holds_up_none)
{
    struct supply supply = {.count = 3, .most = 1, .at_once = 1, .get = get_one};
    int before = count_descriptors();

    supply.context = &supply;
    require(supply_begin(&supply) == 0);
    supply_run(&supply);
    check_int(supply.there, 3);
    check_int(supply.filled, 3);
    check_int(count_descriptors(), before);
    supply_end(&supply);
}

static int get_none(void *context, size_t first, size_t count)
{
    (void)first;
    (void)count;
    supply_stop(context); /* as by a thread that fails to fill it meanwhile */
    return -ENOSPC;
}

TAP_TEST(a_refusal_behind_the_stop_does_not_count)
{
    struct supply supply = {.count = 1, .most = 1, .at_once = 1, .get = get_none};

    supply.context = &supply;
    require(supply_begin(&supply) == 0);
    supply_run(&supply);
    check_int(supply.refusal, 0);
    check_int(supply_stop(&supply), 0);
    supply_end(&supply);
}

struct waiting {
    struct supply *supply;
    atomic_int is_asked, cancels;
};

/* Gets the first item, and waits for the second until a cancel comes that is not too early. */
static int get_when_cancelled(void *context, size_t first, size_t count)
{
    struct waiting *waiting = context;

    if (first == 0)
        return get_one(waiting->supply, first, count);
    atomic_store(&waiting->is_asked, 1);
    for (int i = 0; i < 5000 && atomic_load(&waiting->cancels) < 2; i++)
        usleep(1000);
    return atomic_load(&waiting->cancels) < 2 ? -ETIMEDOUT : -ECANCELED;
}

static void count_cancel(void *context)
{
    struct waiting *waiting = context;

    atomic_fetch_add(&waiting->cancels, 1);
}

static void *fail_to_fill(void *context)
{
    struct waiting *waiting = context;
    bool writes;

    check(supply_take(waiting->supply, 0, &writes) >= 0);
    while (!atomic_load(&waiting->is_asked))
        usleep(1000);
    check_int(supply_stop(waiting->supply), 0);
    supply_give_back(waiting->supply, 0, writes);
    return NULL;
}

TAP_TEST(a_failure_ends_the_wait_for_the_next_item)
{
    struct waiting waiting = {0};
    struct supply supply = {.count = 2,
                            .most = 2,
                            .at_once = 1,
                            .get = get_when_cancelled,
                            .cancel = count_cancel,
                            .context = &waiting};
    pthread_t thread;

    waiting.supply = &supply;
    require(supply_begin(&supply) == 0);
    supply_add_part(&supply, 0);
    supply_add_part(&supply, 1);
    require(pthread_create(&thread, NULL, fail_to_fill, &waiting) == 0);
    supply_run(&supply);
    pthread_join(thread, NULL);
    check_int(supply.refusal, 0);
    check(atomic_load(&waiting.cancels) >= 2);
    supply_end(&supply);
}

TAP_TEST(no_items_are_no_wait)
{
    struct asked asked = {.enough = MANY};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.most = AHEAD};

    go(&supply, &asked, &filler);
    check_int(asked.count, 0);
}
