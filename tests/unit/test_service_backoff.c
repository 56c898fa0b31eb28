/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that failed are not tried for a while, each for its own reason, and the timer knows
 * when that is over. */
#include "service_fixture.h"

#include "service/service_internal.h"

static void start(void)
{
    service_start();
    require(fixture_timer_ms == UINT64_MAX);
}

TAP_TEST(a_reason_holds_for_its_store_until_its_time_is_over)
{
    start();
    service_back_off(service, BACKOFF_LEAVE, 7, 500);
    service_back_off(service, BACKOFF_PROMOTE, 0, 200);
    check(service_is_backed_off(service, BACKOFF_LEAVE, 7));
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 8));
    check(!service_is_backed_off(service, BACKOFF_EVICT, 0));
    check(service_is_backed_off(service, BACKOFF_PROMOTE, 0));
    fixture_now_ms += 200;
    check(!service_is_backed_off(service, BACKOFF_PROMOTE, 0));
    check(service_is_backed_off(service, BACKOFF_LEAVE, 7));
    fixture_now_ms += 300;
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 7));
    service_end();
}

TAP_TEST(the_timer_runs_out_at_the_end_of_each)
{
    start();
    service_back_off(service, BACKOFF_LEAVE, 7, 500);
    service_back_off(service, BACKOFF_EVICT, 0, 200);
    settle_step();
    check_int(fixture_timer_ms, fixture_now_ms + 200);
    fixture_now_ms += 200;
    run_timer();
    check_int(fixture_timer_ms, fixture_now_ms + 300);
    fixture_now_ms += 300;
    run_timer();
    check(fixture_timer_ms == UINT64_MAX);
    service_end();
}

TAP_TEST(waiters_for_memory_are_tried_again_when_a_back_off_is_over)
{
    uint64_t choices;

    start();
    service_back_off(service, BACKOFF_LEAVE, 7, 500);
    settle_step();
    choices = service->backoffs.choices;
    fixture_now_ms += 500;
    service_on_timer(service);
    check(service->step.has_memory);
    check(service->backoffs.choices > choices);
    check_int(service->backoffs.used, 0);
    settle_step();
    service_end();
}

static void pass(enum backoff_reason reason, uint64_t store)
{
    service_note_no_victims(service, 9, FIXTURE_GRAIN);
    service_back_off(service, reason, store, 200);
    settle_step();
    require(service_had_no_victims(service, 9, FIXTURE_GRAIN));
    fixture_now_ms += 200;
    service_on_timer(service);
}

TAP_TEST(only_a_store_that_may_leave_again_makes_another_choice)
{
    static const enum backoff_reason others[] = {BACKOFF_PROMOTE, BACKOFF_ALLOCS, BACKOFF_MOVES};
    static const enum backoff_reason choices[] = {BACKOFF_LEAVE, BACKOFF_STAY, BACKOFF_EVICT};

    start();
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        pass(others[i], 0);
        check(service_had_no_victims(service, 9, FIXTURE_GRAIN));
        check(service->step.is_unsettled);
        check_int(service->step.has_moves, others[i] == BACKOFF_MOVES);
        check_int(service->step.has_memory, others[i] == BACKOFF_ALLOCS);
        settle_step();
    }
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        pass(choices[i], choices[i] == BACKOFF_EVICT ? 0 : 7);
        check(!service_had_no_victims(service, 9, FIXTURE_GRAIN));
        check(service->step.has_memory);
        settle_step();
    }
    service_end();
}

TAP_TEST(a_back_off_for_ever_holds_until_it_is_ended)
{
    start();
    service_back_off(service, BACKOFF_TELL, store_id(), BACKOFF_FOREVER);
    settle_step();
    check(fixture_timer_ms == UINT64_MAX);
    fixture_now_ms += 1000000;
    check(service_is_backed_off(service, BACKOFF_TELL, store_id()));
    service_end_backoff(service, BACKOFF_TELL, store_id());
    check(!service_is_backed_off(service, BACKOFF_TELL, store_id()));
    check_int(service->backoffs.told.count, 0);
    service_end();
}

TAP_TEST(back_offs_for_ever_of_removed_stores_are_forgotten)
{
    start();
    service_back_off(service, BACKOFF_LEAVE, CORE_MAX_STORES + 9, 500);
    service_back_off(service, BACKOFF_TELL, store_id(), BACKOFF_FOREVER);
    for (uint64_t store = 0; store < CORE_MAX_STORES; store++)
        service_back_off(service, BACKOFF_TELL, store_id() + 1 + store, BACKOFF_FOREVER);
    check(service->backoffs.told.count < CORE_MAX_STORES);
    check(service_is_backed_off(service, BACKOFF_TELL, store_id()));
    check(service_is_backed_off(service, BACKOFF_LEAVE, CORE_MAX_STORES + 9));
    service_end();
}

TAP_TEST(a_full_table_forgets_the_back_off_that_ends_first)
{
    start();
    for (uint64_t store = 1; store <= SERVICE_BACKOFFS; store++)
        service_back_off(service, BACKOFF_LEAVE, store, 500 + store);
    service_back_off(service, BACKOFF_LEAVE, 1, 5000); /* the same row */
    check_int(service->backoffs.used, SERVICE_BACKOFFS);
    service_back_off(service, BACKOFF_STAY, 1, 500);
    check(!service_is_backed_off(service, BACKOFF_LEAVE, 2));
    check(service_is_backed_off(service, BACKOFF_LEAVE, 1));
    check(service_is_backed_off(service, BACKOFF_LEAVE, 3));
    check(service_is_backed_off(service, BACKOFF_STAY, 1));
    check_int(service->backoffs.used, SERVICE_BACKOFFS);
    service_end();
}

TAP_TEST(so_many_looks_are_counted_within_so_long)
{
    start();
    for (unsigned i = 0; i < SERVICE_TRIES_MAX; i++)
        check_int(service_count_try(service, BACKOFF_FREE_LOOKS), 0);
    fixture_now_ms += 30;
    check_int(service_count_try(service, BACKOFF_FREE_LOOKS), SERVICE_TRIES_MS - 30);
    check_int(service_count_try(service, BACKOFF_EVICT_TRIES), 0);
    fixture_now_ms += SERVICE_TRIES_MS - 30;
    check_int(service_count_try(service, BACKOFF_FREE_LOOKS), 0);
    settle_step();
    check(fixture_timer_ms == UINT64_MAX);
    service_end();
}
