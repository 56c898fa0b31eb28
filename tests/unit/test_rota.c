/* SPDX-License-Identifier: Apache-2.0 */
#include "base/rota.h"
#include "tap.h"

#include <stdlib.h>
#include <string.h>

#define MANY 200u

struct work {
    struct rota_item item; /* first */
    uint64_t path[ROTA_DEPTH];
    unsigned number;
};

static struct rota rota;
static struct work works[MANY * 4];
static unsigned count;

static struct work *add(uint64_t kind, uint64_t user, uint64_t group)
{
    struct work *work = &works[count];

    require(count < sizeof works / sizeof works[0]);
    *work = (struct work){.path = {kind, user, group}, .number = count++};
    require(rota_push(&rota, work->path, &work->item) == 0);
    return work;
}

static struct work *take(void)
{
    return (struct work *)rota_pop(&rota);
}

static void end(void)
{
    while (take())
        ;
    check_int(rota.count, 0);
    rota_free(&rota);
    memset(&rota, 0, sizeof rota);
    count = 0;
}

/* Counts the items taken before this one. */
static unsigned count_before(const struct work *wanted)
{
    unsigned before = 0;

    for (const struct work *work; (work = take()) != wanted; before++)
        require(work != NULL);
    return before;
}

TAP_AFTER_EACH(end)

TAP_TEST(nothing_waits_in_an_empty_one)
{
    check(take() == NULL);
    add(0, 1, 1);
    check(take() != NULL && take() == NULL);
}

TAP_TEST(the_last_user_waits_for_one_turn_of_each_other_one)
{
    for (unsigned i = 0; i < MANY; i++)
        add(0, 1 + i % 3, 7);
    check_int(count_before(add(0, 9, 7)), 3);
}

TAP_TEST(a_look_waits_for_one_of_the_others)
{
    for (unsigned i = 0; i < MANY; i++)
        add(1, 1 + i % 50, i);
    check(count_before(add(0, 9, 7)) <= 1);
    check(count_before(add(0, 9, 7)) <= 1);
}

TAP_TEST(a_user_with_many_groups_has_one_turn_among_users)
{
    unsigned of_one = 0;

    for (unsigned i = 0; i < MANY; i++)
        add(0, 0, i);
    for (unsigned i = 0; i < MANY / 4; i++)
        add(0, 1, 7);
    for (unsigned i = 0; i < MANY / 2; i++)
        of_one += take()->path[1] == 1;
    check_int(of_one, MANY / 4);
}

TAP_TEST(groups_of_a_user_take_turns)
{
    for (unsigned i = 0; i < MANY; i++)
        add(0, 0, 7);
    check(count_before(add(0, 0, 8)) <= 1);
}

TAP_TEST(items_of_one_path_keep_their_order)
{
    unsigned last[3][2] = {{0}};

    srand(1);
    for (unsigned i = 0; i < MANY; i++)
        add(0, (uint64_t)rand() % 3, (uint64_t)rand() % 2);
    for (const struct work *work; (work = take());) {
        unsigned *before = &last[work->path[1]][work->path[2]];
        check(work->number + 1 > *before);
        *before = work->number + 1;
    }
}

/* By path: between the arrival of the first item of its path and its turn, each other party beside
 * it, or beside one of its parents, is served at most once. */
TAP_TEST(no_party_is_passed_over_twice_in_any_traffic)
{
    unsigned waiting[2][3][4] = {{{0}}}, passed[2] = {0};

    srand(2);
    for (unsigned step = 0; step < MANY * 4; step++) {
        if (count < sizeof works / sizeof works[0] && rand() % 2) {
            struct work *work =
                add((uint64_t)rand() % 2, (uint64_t)rand() % 3, (uint64_t)rand() % 4);
            waiting[work->path[0]][work->path[1]][work->path[2]]++;
        }
        const struct work *work = rand() % 2 ? take() : NULL;
        if (!work)
            continue;
        check(waiting[work->path[0]][work->path[1]][work->path[2]]-- > 0);
        bool other_waits = false;
        for (unsigned i = 0; i < 12; i++)
            other_waits |= waiting[!work->path[0]][i / 4][i % 4] > 0;
        passed[!work->path[0]] += other_waits;
        passed[work->path[0]] = 0;
        check(passed[0] <= 1 && passed[1] <= 1);
    }
}
