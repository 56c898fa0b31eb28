/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that one thread asks for while others fill it; any file takes its place here. */
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
    size_t enough; /* so many come, and then none */
    atomic_int open, most_open;
};

struct filler {
    struct supply *supply;
    struct asked *asked;
    size_t enough; /* so many are filled, and then none */
    size_t filled;
    int last; /* what supply_take said */
};

static int get(void *context, const size_t *items, size_t count, size_t *refused)
{
    struct asked *asked = context;
    int open_now;

    if (count > asked->most_at_once)
        asked->most_at_once = count;
    if (asked->count + count > asked->enough) {
        *refused = items[0];
        return -ENOSPC;
    }
    open_now = atomic_fetch_add(&asked->open, (int)count) + (int)count;
    if (open_now > atomic_load(&asked->most_open))
        atomic_store(&asked->most_open, open_now);
    for (size_t i = 0; i < count; i++) {
        asked->items[asked->count++] = items[i];
        supply_put(asked->supply, items[i], open("/dev/null", O_RDWR | O_CLOEXEC));
    }
    return 0;
}

static void *fill(void *context)
{
    struct filler *filler = context;
    struct supply *supply = filler->supply;

    while (filler->filled < supply->count && filler->filled < filler->enough) {
        size_t at = filler->filled;

        size_t item = supply->order ? supply->order[at] : at;

        filler->last = supply_take(supply, item);
        if (filler->last < 0)
            break;
        atomic_fetch_sub(&filler->asked->open, 1);
        supply_give_back(supply, item);
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

/* One that fills, beside the thread of the test, which supplies. Nothing stays open. */
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

TAP_TEST(an_order_is_kept)
{
    static const size_t order[] = {2, 0, 3, 1};
    struct asked asked = {.enough = MANY};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = 4, .most = 1, .order = order};

    go(&supply, &asked, &filler);
    check_int(filler.filled, 4);
    for (size_t i = 0; i < 4; i++)
        check_int(asked.items[i], order[i]);
}

TAP_TEST(what_is_there_is_filled_also_where_the_next_is_refused)
{
    static const size_t order[] = {4, 3, 2, 1, 0};
    struct asked asked = {.enough = 2};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = 5, .most = MANY, .order = order};

    go(&supply, &asked, &filler);
    check_int(filler.filled, 2);
    check_int(filler.last, -ECANCELED);
    check_int(supply.refusal, -ENOSPC);
    check_int(supply.refused, 2);
}

TAP_TEST(who_fills_no_more_ends_the_supply)
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

TAP_TEST(several_that_are_refused_leave_what_was_there)
{
    struct asked asked = {.enough = 10};
    struct filler filler = {.enough = MANY};
    struct supply supply = {.count = MANY, .most = MANY, .at_once = 4};

    go(&supply, &asked, &filler);
    check_int(filler.filled, 8);
    check_int(supply.refusal, -ENOSPC);
    check_int(supply.refused, 8);
}

static int get_one(void *context, const size_t *items, size_t count, size_t *refused)
{
    (void)count;
    (void)refused;
    supply_put(context, items[0], open("/dev/null", O_RDWR | O_CLOEXEC));
    return 0;
}

TAP_TEST(an_item_of_several_parts_is_open_until_the_last_one_is_filled)
{
    static const size_t parts[] = {3};
    struct supply supply = {.count = 1, .parts = parts, .most = 1, .at_once = 1, .get = get_one};
    int fd;

    supply.context = &supply;
    require(supply_begin(&supply) == 0);
    supply_run(&supply);
    fd = supply_take(&supply, 0);
    check(fd >= 0);
    for (int i = 0; i < 3; i++) {
        check_int(supply_take(&supply, 0), fd);
        check(fcntl(fd, F_GETFD) >= 0);
        check_int(supply.filled, 0);
        supply_give_back(&supply, 0);
    }
    check_int(supply.filled, 1);
    check_int(fcntl(fd, F_GETFD), -1);
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
