/* SPDX-License-Identifier: Apache-2.0 */
/* The heap of deadlines: the first is always known, and all pass in their order. */
#include "tap.h"

#include "service/service_internal.h"

#define COUNT 200u

static struct service service;
static struct deadline deadlines[COUNT];
static uint64_t passed_ms;
static unsigned passed;

static void pass(struct service *s, struct deadline *deadline)
{
    check(s == &service);
    check(!deadline->link);
    check(deadline->at_ms >= passed_ms);
    passed_ms = deadline->at_ms;
    passed++;
}

static uint64_t draw(uint64_t bound)
{
    static uint64_t state = 88172645463325252u;

    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % bound;
}

static void start(void)
{
    memset(&service, 0, sizeof service);
    memset(deadlines, 0, sizeof deadlines);
    for (unsigned i = 0; i < COUNT; i++)
        deadlines[i].pass = pass;
    passed_ms = passed = 0;
}

static uint64_t find_first(unsigned *set)
{
    uint64_t first_ms = UINT64_MAX;

    *set = 0;
    for (unsigned i = 0; i < COUNT; i++) {
        if (!deadlines[i].link)
            continue;
        ++*set;
        if (deadlines[i].at_ms < first_ms)
            first_ms = deadlines[i].at_ms;
    }
    return first_ms;
}

TAP_TEST(the_earliest_is_known_after_any_sets_and_clears)
{
    unsigned set;

    start();
    for (unsigned i = 0; i < 20000; i++) {
        struct deadline *deadline = &deadlines[draw(COUNT)];
        if (draw(3) == 0)
            deadline_clear(&service, deadline);
        else
            deadline_set(&service, deadline, 1 + draw(1000));
        require(deadline_first(&service) == find_first(&set));
    }
    deadline_pass_all(&service, 500);
    check(deadline_first(&service) > 500);
    deadline_pass_all(&service, 1000);
    check(find_first(&set) == UINT64_MAX);
    check_int(set, 0);
    check(service.deadlines == NULL);
}

TAP_TEST(each_passes_once_and_in_its_order)
{
    unsigned set;

    start();
    for (unsigned i = 0; i < COUNT; i++)
        deadline_set(&service, &deadlines[i], 1 + draw(50));
    find_first(&set);
    check_int(set, COUNT);
    deadline_pass_all(&service, 50);
    check_int(passed, COUNT);
}

TAP_TEST(a_deadline_is_set_anew_and_never_is_not_set)
{
    start();
    deadline_set(&service, &deadlines[0], 20);
    deadline_set(&service, &deadlines[0], 30);
    check_int(deadline_first(&service), 30);
    deadline_set(&service, &deadlines[0], UINT64_MAX);
    check(!deadlines[0].link);
    check(deadline_first(&service) == UINT64_MAX);
}
